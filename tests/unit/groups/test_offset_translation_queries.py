"""Questions about offsets as users and programs ask them."""

from pathlib import Path

import pytest

from mirrord import translate as public
from mirrord.cli.main import main
from mirrord.config.schema import ClusterConfig, Config, FlowConfig
from mirrord.config.security import Security
from mirrord.groups import offset_translation_queries
from mirrord.groups.offset_translation_queries import Answer, Chart, Question, answer
from mirrord.ledger.facts.core import (
    AnyFact,
    CopyInherited,
    HoleFound,
    LaneHalted,
    LaneTaken,
    LeaseTaken,
    Progress,
    SourceRun,
    TakeoverChecked,
    TargetRun,
    Verdict,
)
from mirrord.ledger.fold import fold
from mirrord.ledger.state import FlowState
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.names import LaneId
from mirrord.model.runs import Run
from mirrord.translate import translate
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

CONFIG = Config(
    clusters={alias: ClusterConfig((f"{alias}:9092",), Security()) for alias in ("eu", "us")},
    flows=(FlowConfig(name="eu-us", source="eu", target="us", topics=("orders",)),),
)
LANE = lane_id(0)


def ledger(*facts: AnyFact) -> FlowState:
    state = FlowState()
    taken = (opened(), opened(1), LaneTaken(LANE, 1, "r"))
    for offset, each in enumerate(((FLOW,), (LeaseTaken(1, HOLDER, 6000),), taken, facts)):
        assert all(fold(state, entry(*each, epoch=min(offset, 1)), offset))
    return state


def copied(ordinal: int, target_offset: int, source_offset: int = 100) -> dict[LaneId, Progress]:
    mark = Progress(LANE, 1, 1, ordinal, target_offset, 0, source_offset, 0, 0, 0, True, "copying", settled=True)
    return {LANE: mark}


MAP = (
    SourceRun(LANE, 1, (Run(0, 10), Run(5, 16)), (Verdict(15, 16, "control"),)),
    TargetRun(LANE, 1, 0, 100, 0),
    TargetRun(LANE, 1, 7, 110, 0),
)


async def ask(known: Chart, offset: int, *, reverse: bool = False) -> Answer:
    topic = "eu.orders" if reverse else "orders"
    question = Question(flow="eu-us", topic=topic, partition=0, offset=offset, reverse=reverse)
    return await answer(CONFIG, known, question)


@pytest.mark.parametrize(
    ("offset", "kind", "there", "words"),
    [
        (12, "exact", 102, "resume at offset 102 of eu.orders-0 of us: this is the same record"),
        (15, "not_copied", 105, "no record at the offset was copied (control); this is the next one"),
        (18, "exact", 110, "the same record"),
        (3, "before_map", 100, "the copy begins there"),
        (30, "at_end", 113, "nothing after the offset has been copied yet"),
        (130, "at_end", 113, "and 30 source offsets before it have not been processed yet"),
    ],
)
async def test_from_the_source_to_the_target(offset: int, kind: str, there: int, words: str) -> None:
    translated = await ask(Chart(ledger(*MAP), copied(10, 113)), offset)
    assert (translated.kind, translated.offset) == (kind, there)
    assert words in translated.line
    assert (str(translated.here), str(translated.there)) == ("orders-0 of eu", "eu.orders-0 of us")


@pytest.mark.parametrize(
    ("offset", "kind", "there", "words"),
    [
        (104, "exact", 14, "the same record"),
        (105, "exact", 16, "the same record"),
        (108, "not_copied", 18, "mirrord did not write the record at the offset"),
        (3, "before_map", 10, "the copy begins there"),
        (113, "at_end", 21, "nothing after the offset has been copied yet"),
    ],
)
async def test_from_the_target_back(offset: int, kind: str, there: int, words: str) -> None:
    translated = await ask(Chart(ledger(*MAP), copied(10, 113)), offset, reverse=True)
    assert (translated.kind, translated.offset) == (kind, there)
    assert words in translated.line


async def test_what_stands_out_of_order_is_said() -> None:
    hole = HoleFound(LANE, 1, 2, 3, 6, 8)
    runs = SourceRun(LANE, 1, (Run(6, 12), Run(8, 16)))
    state = ledger(
        SourceRun(LANE, 1, (Run(0, 10),)), TargetRun(LANE, 1, 0, 0, 0), TargetRun(LANE, 1, 4, 2, 0), hole, runs
    )
    translated = await ask(Chart(state, copied(9, 7)), 12)
    assert (translated.kind, translated.offset, translated.record) == ("reordered", 2, 4)
    assert "the same record is at offset 4" in translated.line
    translated = await ask(Chart(state, copied(6, 4)), 12)
    assert (translated.kind, translated.offset, translated.reason) == ("not_copied", 2, "pending")
    translated = await ask(Chart(state, copied(9, 7)), 2, reverse=True)
    assert (translated.kind, translated.offset, translated.record) == ("reordered", 12, 14)


async def test_what_mirrormaker_copied_is_not_known() -> None:
    inherited = CopyInherited(LANE, 1, 10, 10, 100, 5, "verified")
    known = Chart(ledger(inherited, *MAP), copied(10, 113))
    for offset, reverse in ((9, False), (99, True)):
        translated = await ask(known, offset, reverse=reverse)
        assert (translated.kind, translated.offset, translated.reason) == ("before_map", None, "inherited")
        assert translated.line.startswith("not known: MirrorMaker 2")


async def test_a_map_to_be_rebuilt_answers_nothing_after_the_difference() -> None:
    halted = LaneHalted(LANE, 1, "unexplained", "they differ", 16, 17)
    check = TakeoverChecked(LANE, 1, 5, 6, "different")
    known = Chart(ledger(*MAP, check, halted), copied(10, 113))
    assert (await ask(known, 14)).kind == "exact"
    for offset, reverse in ((16, False), (200, False), (100, True)):
        translated = await ask(known, offset, reverse=reverse)
        assert (translated.kind, translated.offset) == ("unknown", None)
        assert "differ from ordinal 5 on" in translated.line
    assert (await ask(Chart(ledger(*MAP), {}), 14)).kind == "unknown"


@pytest.mark.parametrize(
    ("topic", "partition", "words"),
    [
        ("order", 0, 'has no topic "order"; did you mean "orders"'),
        ("orders", 7, "partition 7 of orders is not copied; these are: 0, 1"),
        ("eu.orders", 0, "is a topic of the target: use `translate` with --reverse"),
    ],
)
async def test_what_is_not_there_is_named(topic: str, partition: int, words: str) -> None:
    known = Chart(ledger(*MAP), copied(10, 113))
    with pytest.raises(ConfigError, match=words):
        await answer(CONFIG, known, Question(flow="eu-us", topic=topic, partition=partition, offset=3))


async def test_by_time(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[object, ...]] = []

    async def at(
        cluster: ClusterConfig, partitions: list[object], time_ms: int
    ) -> dict[object, tuple[int, int] | None]:
        asked.append((cluster.bootstrap, time_ms))
        return {partitions[0]: (12, 1_234) if time_ms < 2_000 else None} if time_ms else {}

    async def ends(cluster: ClusterConfig, partitions: list[object], which: str) -> dict[object, int]:
        return {partitions[0]: 21}

    monkeypatch.setattr(offset_translation_queries, "offsets_at", at)
    monkeypatch.setattr(offset_translation_queries, "log_offsets", ends)
    known = Chart(ledger(*MAP), copied(10, 113))

    async def ask_at(time_ms: int, *, reverse: bool = False) -> Answer:
        topic = "eu.orders" if reverse else "orders"
        question = Question(flow="eu-us", topic=topic, partition=0, time_ms=time_ms, reverse=reverse)
        return await answer(CONFIG, known, question)

    found = await ask_at(1_000)
    assert (found.asked, found.time_ms, found.offset) == (12, 1_234, 102)
    assert ((await ask_at(5_000)).asked, (await ask_at(5_000)).kind) == (21, "at_end")
    await ask_at(1_000, reverse=True)
    assert asked[-1] == (("us:9092",), 1_000)
    with pytest.raises(ConfigError, match="no longer exists"):
        await ask_at(0)


@pytest.mark.parametrize("offset", ["-1", "x", "1.5", "@", "@yesterday", "@latest", "@2026-01-31T12:00:00", "9" * 19])
def test_bad_offsets_are_one_clear_line(offset: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "conf.toml"
    path.write_text(
        '[clusters.eu]\nbootstrap = "eu:9092"\n[clusters.us]\nbootstrap = "us:9092"\n'
        '[[flows]]\nfrom = "eu"\nto = "us"\ntopics = ["orders"]\n'
    )
    assert main(["translate", str(path), "eu-us", "orders", "0", "--", offset]) == 2
    error = capsys.readouterr().err
    assert error.startswith("mirrord: ")
    assert "allowed" in error
    assert error.count("\n") == 1


def test_the_public_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(config: Config, questions: list[Question]) -> list[Answer]:
        raise EnvironmentFault(f"{questions[0].flow} of {len(config.flows)}")

    monkeypatch.setattr(public, "_translate_all", refuse)
    with pytest.raises(EnvironmentFault, match="eu-us of 1"):
        translate(CONFIG, Question(flow="eu-us", topic="orders", partition=0, offset=1))
