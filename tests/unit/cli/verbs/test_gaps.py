"""`mirrord gaps`: what is listed, since when, and the exit code."""

import json
from pathlib import Path

import pytest

from mirrord.cli.main import main
from mirrord.cli.verbs import gaps as verb
from mirrord.ledger.codec import encode_entry, encode_state
from mirrord.ledger.errors import LedgerMissing
from mirrord.ledger.facts.core import (
    Entry,
    LaneTaken,
    LeaseTaken,
    Progress,
    SourceRun,
    TargetRun,
    Verdict,
    VerdictGiven,
)
from mirrord.ledger.facts.source_ends import SourceEnds
from mirrord.ledger.state_topic_records import state_key
from mirrord.ledger.store.log_interface import StateRow
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.model.names import LaneKey, TopicId
from mirrord.model.runs import Run
from mirrord.replication.dead_letters.records import Returned
from mirrord.replication.dead_letters.replayed import BroughtBack
from mirrord.runtime.clock import SystemClock
from tests.fixtures.ledger import FLOW, HOLDER, entry, opened
from tests.fixtures.ledger_contract import LANE

HOUR_MS = 3_600_000


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "conf.toml"
    clusters = '[clusters.eu]\nbootstrap = "eu:1"\n[clusters.us]\nbootstrap = "us:1"\n'
    path.write_text(f'{clusters}[[flows]]\nfrom = "eu"\nto = "us"\ntopics = [".*"]\n')
    return path


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> MemoryLedger:
    """Markers and a loss of two hours ago, then duplicates; and a fact that does not bind."""
    now_ms = SystemClock().wall_ms()
    lost = SourceRun(LANE, 1, (Run(0, 0), Run(10, 30)), (Verdict(9, 10, "control"), Verdict(10, 30, "expired")))
    former = VerdictGiven(LANE, 7, (Verdict(40, 50, "rejected"),), "of nobody")
    doubled = VerdictGiven(LANE, 1, (Verdict(2, 4, "doubled"),), "twice")
    entries = [
        entry(FLOW, epoch=0),
        entry(LeaseTaken(1, HOLDER, 6000)),
        entry(opened(0), LaneTaken(LANE, 1, "r1")),
        Entry(1, now_ms - 2 * HOUR_MS, (lost,)),
        Entry(1, now_ms, (former,)),
        Entry(1, now_ms, (doubled,)),
    ]
    memory = MemoryLedger(entries=[encode_entry(one) for one in entries])
    monkeypatch.setattr(verb, "KafkaLog", lambda *_: MemoryLog(memory))
    return memory


def listed(capsys: pytest.CaptureFixture[str]) -> list[tuple[object, ...]]:
    gaps = json.loads(capsys.readouterr().out)["gaps"]
    return [(gap["topic"], gap["partition"], gap["start"], gap["end"], gap["reason"]) for gap in gaps]


def test_losses_and_what_stands_twice(ledger: MemoryLedger, conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gaps", str(conf), "--json"]) == 3
    assert listed(capsys) == [("orders", 0, 2, 4, "doubled"), ("orders", 0, 10, 30, "expired")]


@pytest.mark.parametrize("trouble", ["", "the topic may not be read"])
def test_what_was_brought_back_is_listed_with_its_place(
    trouble: str,
    ledger: MemoryLedger,
    conf: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def brought_back(*_: object) -> BroughtBack:
        there = [Returned(45, "eu.orders-0 offset 99"), Returned(60, "eu.orders-0 offset 101")]
        return BroughtBack({} if trouble else {LANE: there}, trouble)

    ledger.entries.append(
        encode_entry(Entry(1, 0, (VerdictGiven(LANE, 1, (Verdict(40, 50, "rejected"),), "refused"),)))
    )
    monkeypatch.setattr(verb, "brought_back", brought_back)
    assert main(["gaps", str(conf), "--json"]) == 3
    captured = capsys.readouterr()
    returned = {gap["start"]: gap["brought_back"] for gap in json.loads(captured.out)["gaps"]}
    assert returned == {2: [], 10: [], 40: [] if trouble else [[45, "eu.orders-0 offset 99"]]}
    assert captured.err == (f"mirrord: {trouble}\n" if trouble else "")
    assert main(["gaps", str(conf)]) == 3
    line = "orders-0 of eu-us: brought back: source offset 45 is at eu.orders-0 offset 99"
    assert (line in capsys.readouterr().out) is not bool(trouble)


def test_everything(ledger: MemoryLedger, conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gaps", str(conf), "--json", "--all"]) == 3
    assert ("orders", 0, 9, 10, "control") in listed(capsys)


def test_since(ledger: MemoryLedger, conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for since in ("1h", str(SystemClock().wall_ms() - HOUR_MS)):
        assert main(["gaps", str(conf), "--json", "--since", since]) == 0, "no loss since then"
        assert listed(capsys) == [("orders", 0, 2, 4, "doubled")]


def test_an_entry_that_cannot_be_read_is_no_gap_less(
    ledger: MemoryLedger, conf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.entries.append(b"\x01\x94garbage")
    assert main(["gaps", str(conf)]) == 1
    assert capsys.readouterr().err.startswith("mirrord: ")


def test_what_was_recorded_at_an_unknown_time_is_listed_whatever_the_time(
    conf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def read(*_: object) -> tuple[list[verb.GapLine], list[verb.ForgottenLine]]:
        return [verb.GapLine("eu-us", "orders", 0, 3, 5, "expired", None)], []

    monkeypatch.setattr(verb, "_read", read)
    assert main(["gaps", str(conf), "--json", "--since", "1h"]) == 3
    assert listed(capsys) == [("orders", 0, 3, 5, "expired")]


def test_what_somebody_else_wrote(ledger: MemoryLedger, conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ledger.entries.append(encode_entry(entry(TargetRun(LANE, 1, 0, 7, 0), TargetRun(LANE, 1, 5, 15, 0))))
    assert main(["gaps", str(conf), "--foreign"]) == 0
    assert "no other client" in capsys.readouterr().out, "without a mark nothing is known"
    mark = Progress(LANE, 1, 1, 9, 19, 0, 0, 0, 0, 0, protected=True, state="copying")
    ledger.rows.append(StateRow(state_key(mark), encode_state(mark)))
    assert main(["gaps", str(conf), "--foreign"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1] == ["eu-us", "eu.orders-0", "12", "15", "3"]
    assert main(["gaps", str(conf), "--foreign", "--json"]) == 0
    (line,) = json.loads(capsys.readouterr().out)["foreign"]
    assert line == {"flow": "eu-us", "target_topic": "eu.orders", "partition": 0, "start": 12, "end": 15}
    assert main(["gaps", str(conf), "--foreign", "--all"]) == 2


def test_what_was_lost_before_any_lane_was_opened(
    ledger: MemoryLedger, conf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only the state topic holds it, whether or not the ledger was trimmed."""
    found_ms, key = SystemClock().wall_ms() - HOUR_MS // 2, LaneKey(TopicId("gone"), 0, TopicId("")).id
    ends = SourceEnds("gone", (7, -1), lost=True)
    record = Progress(key, 1, 0, 0, 0, -1, 0, -1, -1, found_ms, protected=False, state="", source=ends)
    ledger.rows.append(StateRow(state_key(record), encode_state(record)))
    assert main(["gaps", str(conf), "--json", "--since", "1h"]) == 3
    assert listed(capsys)[-1] == ("gone", 0, 0, 7, "recreated")
    ledger.rows.append(StateRow(state_key(record), None))
    assert main(["gaps", str(conf), "--json", "--since", "1h"]) == 0, "it was removed"


def test_a_table_for_people(ledger: MemoryLedger, conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main(["gaps", str(conf)])
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[2][:6] == ["eu-us", "orders-0", "10", "30", "20", "expired"]


@pytest.mark.parametrize("since", ["yesterday", "latest", "-1h"])
def test_a_time_that_is_none(since: str, conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["gaps", str(conf), f"--since={since}"]) == 2
    assert f'"{since}" is neither a time nor a duration; allowed: ' in capsys.readouterr().err


def test_a_flow_that_never_ran_has_none(
    conf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Missing(MemoryLog):
        async def open(self, *, create: bool) -> None:
            assert not create
            raise LedgerMissing("there is no flow eu-us on this cluster")

    monkeypatch.setattr(verb, "KafkaLog", lambda *_: Missing(MemoryLedger()))
    assert main(["gaps", str(conf)]) == 0
    assert capsys.readouterr().out == "nothing is known to be missing\n"


def test_losses_whose_topics_are_forgotten_are_listed_as_a_number(
    conf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def read(*_: object) -> tuple[list[verb.GapLine], list[verb.ForgottenLine]]:
        return [], [verb.ForgottenLine("eu-us", "recreated", 1_234)]

    monkeypatch.setattr(verb, "_read", read)
    assert main(["gaps", str(conf)]) == 3
    assert "1,234 source offsets of topics that were deleted long ago: recreated" in capsys.readouterr().out
    assert main(["gaps", str(conf), "--json"]) == 3
    assert json.loads(capsys.readouterr().out)["forgotten"] == [
        {"flow": "eu-us", "reason": "recreated", "offsets": 1_234}
    ]
    assert main(["gaps", str(conf), "--since", "1h"]) == 0, "it is not known when they were lost"
