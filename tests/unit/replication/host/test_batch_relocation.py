"""The search for the source offsets of a lane's batches, in a source that cannot be read from the first offset of the
search to the last one."""

from random import Random

import pytest

from mirrord.kafka.client.range_reader import ReadBatch, ReadFailed
from mirrord.kafka.protocol.record_batch import LOG_APPEND_TIME, TRANSACTIONAL
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import AnyFact, Rewound, SourceRun, TargetRun, Verdict
from mirrord.ledger.facts.seeks import LaneSought, SeekDone
from mirrord.model.intervals import Interval
from mirrord.model.runs import Run
from mirrord.replication.host import batch_relocation
from mirrord.replication.host.batch_relocation import POLICY, UNKNOWN_POLICY, BatchRelocation
from mirrord.replication.host.newer_copies import NewerCopies
from mirrord.replication.lane.signals import AskRebuild, RebuildAnswer
from mirrord.replication.lane.target.relocation_result import Located
from tests.fixtures.fake_pipe import as_any
from tests.fixtures.superseded_logs import FakeLog, written
from tests.sim.log_readers import PARTITION, SourceReader, TargetReader, at_once
from tests.sim.source import FakeSource
from tests.sim.target import FakeTarget, Stored
from tests.unit.replication.lane.test_rebuilding import LANE, Play

PRODUCER = 501


def relocated(
    source: FakeSource,
    numbers: tuple[int, ...],
    first: int = 0,
    runs: tuple[Run, ...] = (Run(0, 0),),
    *others: AnyFact,
    unread_from: int = -1,
    changes: bool = False,
    is_filtered: bool = False,
    is_compacted: bool | None = False,
    regiven: bool = False,
    acknowledged: tuple[Interval, ...] = (),
) -> RebuildAnswer:
    """Search for a batch of the lane with these records, which begins with ordinal 0, from the ordinal `first` on. The
    ledger has the runs `runs` and other facts, and may say that other records were sent before (`regiven`). The lane
    may have a policy that changes records, or a filter."""
    target = FakeTarget()
    target.keys = source.keys
    target.brokers[0].append(Stored(0, len(numbers), PRODUCER, 0, 0, 1, numbers, 1))
    target.high_watermark = len(numbers)
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, runs, regiven=regiven), TargetRun(LANE, 1, 0, 0, 1), *others)
    reads, copies = as_any(SourceReader(source)), as_any(TargetReader(target))
    search = BatchRelocation(reads, copies, PARTITION, PARTITION, (reads, copies), None, read_committed=True)

    async def compacts() -> bool | None:
        return is_compacted

    wanted = AskRebuild(1, PRODUCER, first, first, len(numbers), unread_from, acknowledged=acknowledged)
    if changes:
        return at_once(search.leave_open(play.record, wanted, compacts))
    return at_once(search.run(play.record, wanted, compacts, compacts, is_filtered=is_filtered))


@pytest.mark.parametrize(("stable", "aborted"), [(3, False), (5, True)])
async def test_a_copied_record_may_not_be_committed(stable: int, *, aborted: bool) -> None:
    """DOUBLED. The flow had `isolation = "read_uncommitted"` when it copied the records at offsets 0, 3 and 4. Since
    then, the cleaner has removed those at 1 and 2. It was concluded that the last two copies were of these, so the
    records at 3 and 4 were copied again when their transaction was committed."""
    opened = written(3, "bc", attributes=TRANSACTIONAL, producer=(7, 0), aborted=aborted)
    source = FakeLog([written(0, "a"), opened], 5, stable)
    target = FakeLog([written(0, "a", producer=(PRODUCER, 0)), written(1, "bc", producer=(PRODUCER, 1))], 3, 3)
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)), TargetRun(LANE, 1, 0, 0, 1))
    sides = as_any(source), as_any(target), PARTITION, PARTITION
    search = BatchRelocation(*sides, (as_any(source), as_any(target)), None, read_committed=True)

    async def compacts() -> bool:
        return False

    answer = await search.run(play.record, AskRebuild(1, PRODUCER, 0, 0, 3), compacts, compacts)
    assert answer.located is None
    assert "ordinal 1 is a copy of a record that is not committed" in answer.trouble


def test_an_open_transaction_does_not_delay_the_search() -> None:
    source = FakeSource(Random(0))
    source.append(2, 1)
    source.append(2, 1, producer=3)
    first = min(source.offset_of)
    located = relocated(source, (first, first + 1)).located
    assert located is not None
    assert (located.runs, located.missing, located.next_offset) == ((Run(0, 0),), (), 2)


@pytest.mark.parametrize("is_branch", [False, True])
def test_lost_records_are_unknown_whatever_epoch_their_successors_have(*, is_branch: bool) -> None:
    """NEEDLESS HALT. The source has lost the records of epoch 1 that the lane has copied. In their place, it has
    records of epoch 2, or, if the next leader has a different history, of epoch 0."""
    source = FakeSource(Random(0))
    source.append(2, 1)
    first = min(source.offset_of)
    source.elect()
    source.append(2, 1)
    if is_branch:
        source.branch(3, 1)
    else:
        source.truncate(1)
        source.append(3, 1)
    numbers = tuple(range(first, first + 4))
    answer = relocated(source, numbers, 0, (Run(0, 0),), SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 0), (2, 1))))
    located = answer.located
    assert located is not None, answer.trouble
    assert (located.runs, located.open, located.missing) == ((Run(0, 0),), ((2, 4),), ((2, 4),))


def test_uncommitted_records_that_a_compacted_target_may_have_lost_are_not_new() -> None:
    """STALE VALUE. A former holder had sent offsets 0 and 1, which the source has deleted. Another one copied the
    uncommitted records at offsets 2 and 3 under the same ordinals. An election brought back the former batch."""
    source = FakeSource(Random(0))
    source.append(2, 1)
    numbers = tuple(source.offset_of)
    source.append(2, 1, producer=3)
    source.expire(1)
    with pytest.raises(ReadFailed, match="OFFSET_NOT_AVAILABLE"):
        relocated(source, numbers, 0, (Run(0, 2),), is_compacted=True, regiven=True)
    located = relocated(source, numbers, 0, (Run(0, 2),), regiven=True).located
    assert located is not None
    assert (located.open, located.missing, located.next_offset) == (((0, 2),), (), 2)
    source.finish(3, 1, commit=True)
    located = relocated(source, numbers, 0, (Run(0, 2),), is_compacted=True, regiven=True).located
    assert located is not None
    assert located.missing == ((2, 4),)


@pytest.mark.parametrize(("leader_epoch", "unknown"), [(1, ()), (2, ((0, 2),))])
def test_a_batch_is_not_that_of_records_to_which_its_ordinals_were_assigned_later(
    leader_epoch: int, unknown: tuple[tuple[int, int], ...]
) -> None:
    """FALSE MAP. An election brought back a batch of offsets 0 and 1. Its ordinals had been assigned to offsets 2 and 3
    since, and the source has deleted all four records. The batch has epoch 1. If the ordinals were assigned in epoch 1
    as well, the log may have had the batch then."""
    source = FakeSource(Random(0))
    source.append(2, 1)
    numbers = tuple(source.offset_of)
    source.append(2, 1)
    source.append(1, 1)
    source.expire(2)
    rewound = Rewound(0, 0, 2, leader_epoch)
    again = SourceRun(LANE, 1, (Run(0, 2),), (Verdict(0, 2, "expired"),), rewound=rewound)
    located = relocated(source, numbers, 0, (Run(0, 0),), again).located
    assert located is not None
    assert located.open == unknown
    assert (located.missing, located.next_offset) == ((), 4)


def test_the_lane_continues_with_records_that_the_source_has_deleted() -> None:
    """The source has deleted the offsets 0 to 4, of which the lane had copied the first two. The lane has to find out
    that the other ones are gone, and record their loss."""
    source = FakeSource(Random(0))
    source.append(2, 1)
    first = min(source.offset_of)
    source.append(3, 1)
    source.append(2, 1)
    source.expire(2)
    answer = relocated(source, (first, first + 1), 2)
    located = answer.located
    assert located is not None, answer.trouble
    assert (located.next_offset, located.source_start) == (2, 5)


def test_records_of_an_open_transaction_that_are_to_be_copied_again() -> None:
    """The lane used to copy uncommitted records. Ordinals 4 and 5 were to copy the offsets 2 and 3 again, which are in
    an open transaction. As long as they cannot be read, they are neither found nor explained."""
    source = FakeSource(Random(0))
    source.append(2, 1)
    source.append(2, 1, producer=3)
    source.append(2, 1)
    numbers = sorted(source.offset_of)
    copied = (*numbers[:2], *numbers[4:])
    with pytest.raises(ReadFailed, match="OFFSET_NOT_AVAILABLE"):
        relocated(source, copied, 4, (Run(0, 0), Run(2, 4), Run(4, 2), Run(6, 6)))


def deleted(later: int = 0) -> FakeSource:
    """Offsets 0 and 1 were copied. A former holder sent offsets 2 and 3, which the source has deleted. The ledger says
    that the next record that it has, at offset 4, follows."""
    source = FakeSource(Random(0))
    source.append(2, 1)
    source.append(2, 1)
    source.expire(2)
    if later:
        source.append(later, 1)
    return source


LEAPT = (Run(0, 0), Run(2, 4))


@pytest.mark.parametrize(("changes", "is_filtered"), [(False, False), (True, True), (False, True)])
def test_the_offsets_of_records_under_unread_ordinals_are_not_known(*, changes: bool, is_filtered: bool) -> None:
    """FALSE TRUNCATION. The source did not have an offset 4 or 5 yet, and the lane took it for truncated. Or it stayed
    halted, because the records go through a policy."""
    source = deleted()
    numbers = tuple(sorted(source.offset_of)[:4])
    answer = relocated(source, numbers, 2, LEAPT, unread_from=2, changes=changes, is_filtered=is_filtered)
    assert answer.located is not None, answer.trouble
    assert (answer.located.open, answer.located.next_offset) == (((2, 4),), 4)
    assert (answer.located.missing, answer.located.source_start) == ((), 4)
    assert [(batch.base_sequence, batch.count) for batch in answer.own] == [(0, 4)]


@pytest.mark.parametrize(("unread_from", "later"), [(2, 1), (3, 0), (-1, 0)])
def test_records_that_a_policy_changes_are_not_searched_for(unread_from: int, later: int) -> None:
    """If the source has later records, the former batch may contain some of them as well."""
    source = deleted(later)
    numbers = tuple(sorted(source.offset_of)[:4])
    answer = relocated(source, numbers, 2, LEAPT, unread_from=unread_from, changes=True)
    assert (answer.located, answer.trouble) == (None, POLICY)


def test_a_filter_may_have_excluded_records_between_those_of_a_batch() -> None:
    """NEEDLESS HALT. The contents of the copies show where they come from, because a filter changes no records."""
    source = FakeSource(Random(0))
    source.append(6, 1)
    numbers = sorted(source.offset_of)
    copied = (numbers[1], numbers[3], numbers[4])
    answer = relocated(source, copied, runs=(Run(0, 0), Run(1, 3)), is_filtered=True)
    assert answer.located is not None, answer.trouble
    assert (answer.located.runs, answer.located.next_offset) == ((Run(0, 1), Run(1, 3)), 5)
    assert answer.located.missing == ((0, 1), (2, 3)), "the ledger shows which of these the filter excludes"


def test_free_offsets_do_not_show_what_a_filter_has_kept() -> None:
    """The source has deleted offsets 0 and 1. The filter may have excluded one of their records, but the ledger has
    offsets for both."""
    source = FakeSource(Random(0))
    source.append(2, 1)
    source.append(2, 1)
    source.expire(1)
    numbers = tuple(sorted(source.offset_of))
    assert relocated(source, numbers).located is not None
    answer = relocated(source, numbers, is_filtered=True)
    assert answer.located is not None
    assert answer.located.runs == (Run(0, 0),)
    answer = relocated(source, numbers, is_filtered=True, runs=(Run(2, 2),))
    assert answer.located is None
    assert "the ledger has no source offset for ordinal 0" in answer.trouble
    answer = relocated(source, numbers, is_filtered=True, regiven=True)
    assert answer.located is not None
    assert (answer.located.runs, answer.located.open) == ((Run(2, 2),), ((0, 2),))


def test_records_of_other_clients_that_cannot_be_read_are_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """The target is compacted and lacks a record of the source."""

    async def unreadable(*_: object) -> NewerCopies:
        raise ValueError("a batch is too large")

    monkeypatch.setattr(batch_relocation, "newer_copies", unreadable)
    source = FakeSource(Random(0))
    source.append(3, 1)
    first = min(source.offset_of)
    answer = relocated(source, (first + 1, first + 2), is_compacted=True)
    assert (answer.located, answer.trouble) == (None, "a batch is too large")


@pytest.mark.parametrize("is_compacted", [True, False, None])
def test_a_newer_copy_supersedes_nothing_if_the_topic_may_not_be_compacted(*, is_compacted: bool | None) -> None:
    """LOSS. Without DESCRIBE_CONFIGS, it is not known whether the target is compacted. If it is not, the missing record
    has to be copied, although a later one with its key was copied."""
    source = FakeSource(Random(0))
    source.keys = 1
    source.append(3, 1)
    first = min(source.offset_of)
    answer = relocated(source, (first + 1, first + 2), is_compacted=is_compacted)
    if is_compacted is None:
        assert (answer.located, answer.trouble) == (None, UNKNOWN_POLICY)
        return
    assert answer.located is not None
    assert answer.located.missing == (() if is_compacted else ((0, 1),))
    # If nothing is superseded, the policy makes no difference.
    source.keys = 3
    answer = relocated(source, (first + 1, first + 2), is_compacted=None)
    assert answer.located is not None
    assert answer.located.missing == ((0, 1),)


@pytest.mark.parametrize("is_recent", [True, False])
def test_the_policy_makes_no_difference_for_records_that_a_filter_excludes(*, is_recent: bool) -> None:
    """NEEDLESS HALT. Without DESCRIBE_CONFIGS, a lane with a filter stayed halted whenever it had excluded a record and
    copied a later one with the same key. The ledger's state contains only the newest verdicts, but it shows which
    offsets between those of acknowledged records were excluded."""
    source = FakeSource(Random(0))
    source.keys = 1
    source.append(3, 1)
    first = min(source.offset_of)
    verdicts = (Verdict(1, 2, "filtered"),) if is_recent else ()
    later = SourceRun(LANE, 1, (Run(1, 2),), verdicts)
    places = {"is_filtered": True, "is_compacted": None, "acknowledged": () if is_recent else ((2, 0),)}
    answer = relocated(source, (first, first + 2), 0, (Run(0, 0),), later, **places)
    assert answer.located is not None, answer.trouble
    assert (answer.located.runs, answer.located.missing) == ((Run(0, 0), Run(1, 2)), ((1, 2),))
    answer = relocated(source, (first, first + 2), 0, (Run(0, 0), Run(1, 2)), is_filtered=True, is_compacted=None)
    assert answer.trouble == UNKNOWN_POLICY, "nothing shows what the filter has decided"


async def compared(
    source: list[ReadBatch], target: list[ReadBatch], end: int, *facts: AnyFact, is_compacted: bool
) -> Located:
    """Search both logs for the lane's records. Both logs end at `end`, and the ledger maps each ordinal to itself,
    unless other `facts` say otherwise."""
    logs = FakeLog(source, end, end), FakeLog(target, end, end)
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)), TargetRun(LANE, 1, 0, 0, 1), *facts)
    sides = as_any(logs[0]), as_any(logs[1]), PARTITION, PARTITION
    asks = as_any(logs[0]), as_any(logs[1])
    search = BatchRelocation(*sides, asks, None, read_committed=True)

    async def compacts() -> bool:
        return is_compacted

    answer = await search.run(play.record, AskRebuild(1, PRODUCER, 0, 0, end), compacts, compacts)
    assert answer.located is not None, answer.trouble
    assert answer.compacts is is_compacted
    return answer.located


def own(offset: int, keys: str) -> ReadBatch:
    return written(offset, keys, producer=(PRODUCER, offset))


async def test_an_older_value_is_not_copied_after_a_tombstone_that_the_cleaner_has_removed() -> None:
    """STALE VALUE. The target's cleaner has removed the value at offset 1 and the tombstone at offset 2, both with the
    key j. The neighbors of the tombstone show its place, but nothing shows the place of the value. The value was copied
    again, so the target had a key that the source has deleted."""
    source = [written(0, "a"), written(1, "j"), written(2, "jd")]
    located = await compared(source, [own(0, "a-"), own(2, "-d")], 4, is_compacted=True)
    assert (located.open, located.missing, located.next_offset) == (((1, 2),), (), 4)
    assert located.left_out == (Verdict(1, 2, "compacted"),)


@pytest.mark.parametrize(("is_compacted", "missing"), [(True, ()), (False, ((3, 4),))])
async def test_only_what_the_cleaner_may_have_removed_is_superseded_in_a_topic_that_was_compacted(
    *, is_compacted: bool, missing: tuple[Interval, ...]
) -> None:
    """LOSS. The topic is no longer compacted. Its cleaner has removed a record of the first batch. The target also
    lacks offset 3, which is not next to it: this record was lost, and is copied again although the target has a later
    record with its key."""
    source = [written(0, "a"), written(1, "b"), written(2, "cbbd")]
    located = await compared(source, [own(0, "a-"), own(2, "c"), own(4, "bd")], 6, is_compacted=is_compacted)
    assert (located.open, located.missing, located.next_offset) == (((1, 2),), missing, 6)


async def test_a_decision_to_skip_a_record_applies_although_a_later_one_with_its_key_was_copied() -> None:
    """LIE. The record at offset 1 was skipped on a command, which counts as a loss. A rebuild replaced this verdict by
    "compacted"."""
    source = [written(at, "j", time_ms=at) for at in range(3)]
    target = [written(0, "j", producer=(PRODUCER, 0), time_ms=0), written(1, "j", producer=(PRODUCER, 1), time_ms=2)]
    sought = LaneSought(LANE, 1, 2, 0, Origin("ada@host", "broken", 0)), SeekDone(LANE, 1, 1, 2)
    later = SourceRun(LANE, 1, (Run(1, 2),), (Verdict(1, 2, "skipped"),))
    located = await compared(source, target, 3, *sought, later, is_compacted=True)
    assert (located.missing, located.left_out) == (((1, 2),), ())


async def test_the_target_topic_may_have_begun_to_set_the_timestamps() -> None:
    """NEEDLESS HALT. The topic's `message.timestamp.type` has changed between two batches of the lane."""
    source = [written(0, "ab", time_ms=1), written(2, "cd", time_ms=2)]
    later = written(2, "c", producer=(PRODUCER, 2), attributes=LOG_APPEND_TIME, time_ms=50)
    first = written(0, "ab", producer=(PRODUCER, 0), time_ms=1)
    last = written(3, "d", producer=(PRODUCER, 3), time_ms=2)
    for target in ([first, later, last], [first, later]):
        end = target[-1].header.last_offset + 1
        located = await compared(source, target, end, is_compacted=False)
        assert (located.runs, located.missing, located.next_offset) == ((Run(0, 0),), (), end)
