"""Lookups of records that a compacted target lacks: what a lane skips, and what it changes."""

from collections.abc import Sequence
from functools import partial
from typing import Any, Literal

import pytest

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.protocol.record import DecodedRecord
from mirrord.kafka.protocol.record_batch import HeaderTuple
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import SourceRun
from mirrord.ledger.facts.quarantine import Quarantined
from mirrord.ledger.facts.seeks import LaneSought, SeekDone
from mirrord.model.errors import PolicyUnusable
from mirrord.model.runs import Run
from mirrord.replication.host.superseded_lookup import FindCopies
from mirrord.replication.lane.signals import LaneRecord
from mirrord.replication.lane.target.scan_result import Missing
from mirrord.replication.lane.target.superseded_records import AskSuperseded
from tests.fixtures.superseded_logs import PARTITION, FakeLog, lookup, written
from tests.unit.replication.host.test_record_policies import SAMPLE, shaping
from tests.unit.replication.lane.test_rebuilding import LANE, Play

HOUR_MS = 3_600_000
"""The transform `Upper` adds this to the time of each record."""


def mapped(last_run: int = 0) -> LaneRecord:
    """Return a lane's record with a run from offset 0 on. If `last_run` is set, a run begins at this ordinal. Its
    offsets are higher than the ordinals by 10."""
    play = Play.opened()
    runs = (Run(0, 0), Run(last_run, last_run + 10)) if last_run else (Run(0, 0),)
    play.fold(SourceRun(LANE, 1, runs))
    return play.record


def twice(keys: str) -> FakeLog:
    """Return a source log with these records from offset 0 on, and again from offset 10 on."""
    return FakeLog([written(0, keys), written(10, keys)], 20, 20)


@pytest.mark.asyncio
@pytest.mark.parametrize(("time_ms", "until"), [(1_000, -1), (HOUR_MS, -1), (HOUR_MS + 1_000, 1)])
async def test_a_record_is_superseded_only_by_one_that_is_not_older_than_its_copy(time_ms: int, until: int) -> None:
    """LOST VALUE. A former holder ended before it copied the record. Another client wrote a record of the key."""
    source = FakeLog([written(0, "a")], 1, 1)
    target = FakeLog([written(3, "a", time_ms=time_ms)], 4, 4)
    asked = AskSuperseded(1, (Missing("last", 0, 0, 0, has_room=True),), 4)
    rules = shaping(transform=f"{SAMPLE}:Upper")
    answer = await lookup(source, target, mapped(), rules=rules).run(asked)
    assert (answer.trouble, answer.until) == ("", until)


@pytest.mark.asyncio
@pytest.mark.parametrize(("time_ms", "again"), [(1_000 + HOUR_MS, ()), (1_000, ((0, 0),))])
async def test_a_displaced_record_that_is_in_the_log_again_is_recognized_by_the_time_of_its_copy(
    time_ms: int, again: tuple[tuple[int, int], ...]
) -> None:
    """DOUBLED. A replica whose log had been discarded is the leader."""
    record = mapped()
    source = FakeLog([written(0, "a")], 1, 1)
    own = written(3, "a", leader_epoch=1, producer=(record.producer_id, 0), time_ms=time_ms)
    asked = AskSuperseded(1, (Missing("lost", 0, 0, 9, has_room=False, leader_epoch=1),), 4)
    rules = shaping(transform=f"{SAMPLE}:Upper")
    answer = await lookup(source, FakeLog([own], 4, 4), record, rules=rules).run(asked)
    assert (answer.trouble, answer.again) == ("", again)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("rules", "until"),
    [
        ({"filter": "keys", "filter_settings": {"exclude": "b"}}, 1),
        ({"filter": "keys", "filter_settings": {"exclude": "b"}, "on_error": "reject"}, 1),
        ({"filter": "keys", "filter_settings": {"exclude": "b"}, "transform": f"{SAMPLE}:WithoutB"}, 1),
        ({"transform": f"{SAMPLE}:WithoutB"}, 1),
        ({"transform": f"{SAMPLE}:WithoutB", "on_error": "reject"}, 1),
        ({"filter": f"{SAMPLE}:Odd", "filter_settings": {"raises": 0}}, -1),
        ({"filter": f"{SAMPLE}:Odd", "filter_settings": {"raises": 0}, "on_error": "reject"}, -1),
        ({"filter": "tombstones"}, 3),
    ],
    ids=[
        "filtered",
        "filtered, and errors are rejected",
        "filtered, and the transform would fail",
        "the transform fails",
        "rejected",
        "the filter fails",
        "rejected because the filter fails",
        "copied",
    ],
)
async def test_nothing_after_a_record_that_the_policies_do_not_copy_was_appended(
    rules: dict[str, Any], until: int
) -> None:
    """The ledger has a run from offset 0 on and nothing else, and other writers have newer records of all keys. The
    lane would have recorded a verdict on such a record, or have halted, before it wrote the next one."""
    source, target = FakeLog([written(0, "abc")], 3, 3), FakeLog([written(3, "abc")], 6, 6)
    asked = AskSuperseded(1, (Missing("last", 0, 2, 0, has_room=True),), 6)
    answer = await lookup(source, target, mapped(), rules=shaping(**rules)).run(asked)
    assert (answer.error, answer.trouble, answer.until) == (0, "", until)


WITHOUT_B = {"filter": "keys", "filter_settings": {"exclude": "b"}, "on_error": "reject"}


@pytest.mark.asyncio
@pytest.mark.parametrize(("last_run", "until"), [(0, 1), (1, 1), (2, 3), (3, 3)])
async def test_a_filter_is_not_asked_about_records_before_the_last_run(last_run: int, until: int) -> None:
    """The ledger contains the decision to copy them. The filter now decides differently about ordinal 1."""
    target = FakeLog([written(3, "abc")], 6, 6)
    asked = AskSuperseded(1, (Missing("last", 0, 2, 0, has_room=True),), 6)
    answer = await lookup(twice("abc"), target, mapped(last_run), rules=shaping(**WITHOUT_B)).run(asked)
    assert (answer.trouble, answer.until) == ("", until)


@pytest.mark.asyncio
@pytest.mark.parametrize("missing", [
    Missing("between", 0, 2, 0, has_room=False),
    Missing("lost", 0, 2, 9, has_room=False, leader_epoch=3),
])  # fmt: skip
async def test_a_filter_is_not_asked_about_records_that_were_in_the_log(missing: Missing) -> None:
    """No newer record of their keys exists, so all are copied again: the filter is not asked then, either."""
    source, target = FakeLog([written(0, "abc")], 3, 3), FakeLog([], 6, 6)
    asked = AskSuperseded(1, (missing,), 6)
    answer = await lookup(source, target, mapped(), rules=shaping(**WITHOUT_B)).run(asked)
    assert (answer.trouble, answer.again) == ("", ((0, 2),))


@pytest.mark.asyncio
@pytest.mark.parametrize(("kind", "last_run"), [("last", 3), ("between", 0)])
async def test_the_key_of_a_copied_record_is_not_known_if_its_transform_fails(
    kind: Literal["last", "between"], last_run: int
) -> None:
    target = FakeLog([written(3, "abc")], 6, 6)
    rules = shaping(transform=f"{SAMPLE}:WithoutB", on_error="reject")
    asked = AskSuperseded(1, (Missing(kind, 0, 2, 0, has_room=True),), 6)
    answer = await lookup(twice("abc"), target, mapped(last_run), rules=rules).run(asked)
    assert "changed raised ValueError: no b" in answer.trouble


@pytest.mark.asyncio
@pytest.mark.parametrize("kind", ["last", "between"])
@pytest.mark.parametrize("has_later_run", [False, True])
@pytest.mark.parametrize(
    "fact",
    [Quarantined(LANE, 1, 2, 4, 10, "too large", skip=True), SeekDone(LANE, 1, 2, 4)],
    ids=["rejected", "sought"],
)
async def test_nothing_after_a_record_that_was_skipped_was_appended(
    kind: Literal["last", "between"], fact: Quarantined | SeekDone, *, has_later_run: bool
) -> None:
    """The holder that was to record a run after the skipped offsets [2, 4) ended before it did."""
    source, target = FakeLog([written(0, "abcdef")], 6, 6), FakeLog([written(6, "abcdef")], 12, 12)
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0), Run(5, 15)) if has_later_run else (Run(0, 0),)))
    if isinstance(fact, SeekDone):
        play.fold(LaneSought(LANE, 2, 4, 0, Origin("someone", "why", 0)))
    play.fold(fact)
    asked = AskSuperseded(1, (Missing(kind, 0, 4, 0, has_room=True),), 12)
    answer = await lookup(source, target, play.record).run(asked)
    assert (answer.trouble, answer.again, answer.until) == ("", (), 2 if kind == "last" else -1)


@pytest.mark.asyncio
@pytest.mark.parametrize(("refused", "epochs", "until"), [(3, ((0, 4),), 5), (4, ((0, 4),), 2), (3, (), 2)])
async def test_what_follows_a_record_in_the_place_of_a_refused_one_may_have_been_appended(
    refused: int, epochs: tuple[tuple[int, int], ...], until: int
) -> None:
    """If the refused record had another epoch, the source has lost it, and the record at its offset was copied."""
    source, target = FakeLog([written(0, "abcdef")], 6, 6), FakeLog([written(6, "abcdef")], 12, 12)
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), epochs))
    play.fold(Quarantined(LANE, 1, 2, 4, 10, "too large", skip=True, epoch=refused))
    asked = AskSuperseded(1, (Missing("last", 0, 4, 0, has_room=True),), 12)
    answer = await lookup(source, target, play.record).run(asked)
    assert (answer.trouble, answer.again, answer.until) == ("", (), until)


def finding(*found: int) -> tuple[list[list[int]], FindCopies]:
    """Return a function that names these batches as copies, and the offsets of the batches that it is asked about."""
    asked: list[list[int]] = []

    async def find(partition: PartitionId, headers: Sequence[HeaderTuple]) -> set[int]:
        assert partition == PARTITION
        asked.append([header[0] for header in headers])
        return {at for at, header in enumerate(headers) if header[0] in found}

    return asked, find


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("last_run", "copies", "asked", "until"),
    [
        (0, (2,), [[0, 2]], 2),
        (0, (), [[0, 2]], 6),
        (0, (0,), [[0, 2]], -1),
        (2, (12,), [[12]], 2),
        (2, (0,), [[12]], 6),
        (4, (0, 2), [], 6),
    ],
)
async def test_nothing_after_a_copy_in_the_source_was_appended(
    last_run: int, copies: tuple[int, ...], asked: list[list[int]], until: int
) -> None:
    """Both clusters have the topic under the same name, and another flow may have written a batch to the source."""
    batches = [
        batch
        for at in (0, 10)
        for batch in (
            written(at, "ab", producer=(8, 0)),
            written(at + 2, "cd", producer=(9, 0)),
            written(at + 4, "ef"),
        )
    ]
    source, target = FakeLog(batches, 20, 20), FakeLog([written(6, "abcdef")], 12, 12)
    was_asked, find = finding(*copies)
    question = AskSuperseded(1, (Missing("last", 0, 5, 0, has_room=True),), 12)
    answer = await lookup(source, target, mapped(last_run), find_copies=find).run(question)
    assert (answer.trouble, answer.until, was_asked) == ("", until, asked)


@pytest.mark.asyncio
async def test_it_does_not_matter_who_wrote_records_that_were_in_the_log() -> None:
    source, target = FakeLog([written(0, "ab", producer=(8, 0))], 2, 2), FakeLog([], 6, 6)
    was_asked, find = finding(0)
    asked = AskSuperseded(1, (Missing("between", 0, 1, 0, has_room=True),), 6)
    answer = await lookup(source, target, mapped(), find_copies=find).run(asked)
    assert (answer.again, was_asked) == (((0, 1),), [])


@pytest.mark.asyncio
async def test_policies_are_asked_only_for_the_topics_that_they_concern() -> None:
    source, target = FakeLog([written(0, "abc")], 3, 3), FakeLog([written(3, "abc")], 6, 6)
    asked = AskSuperseded(1, (Missing("last", 0, 2, 0, has_room=True),), 6)
    rules = shaping(topics=("payments",), **WITHOUT_B)
    assert (await lookup(source, target, mapped(), rules=rules).run(asked)).until == 3


@pytest.mark.parametrize("on_error", ["halt", "reject"])
@pytest.mark.parametrize(("topics", "is_concerned"), [((".*",), True), (("payments",), False)])
def test_nothing_is_looked_up_or_compared_with_a_policy_that_cannot_be_loaded(
    on_error: str, topics: tuple[str, ...], *, is_concerned: bool
) -> None:
    """A former holder, on another machine, may have been able to use it, so what was copied is not known."""
    rules = shaping(transform="no_such_module:Upper", on_error=on_error, topics=topics)
    decide, changing = rules.decider(PARTITION.topic), rules.changing(PARTITION.topic)
    assert (decide is not None, changing is not None) == (is_concerned, is_concerned)
    record = DecodedRecord(0, 1_000, b"a", b"", ())
    if decide is not None and changing is not None:
        for call in (partial(decide, record, None), partial(decide, record, True), partial(changing, record)):
            with pytest.raises(PolicyUnusable, match="a policy cannot be used here"):
                call()


@pytest.mark.asyncio
async def test_a_lookup_with_a_policy_that_cannot_be_loaded_reports_it() -> None:
    source, target = FakeLog([written(0, "a")], 1, 1), FakeLog([written(3, "a")], 4, 4)
    asked = AskSuperseded(1, (Missing("last", 0, 0, 0, has_room=True),), 4)
    answer = await lookup(source, target, mapped(), rules=shaping(transform="no_such_module:Upper")).run(asked)
    assert "a policy cannot be used here" in answer.trouble
