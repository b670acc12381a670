"""Which of the records that a compacted target lacks must not be copied again, because newer ones of their keys were
copied or are in the target."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from mirrord.kafka.protocol.record_batch import TRANSACTIONAL
from mirrord.ledger.facts.core import AnyFact, Displaced, SourceRun, TargetRun, Verdict, VerdictGiven
from mirrord.model.runs import Run
from mirrord.replication.host.newer_copies import Batches, NewerCopies, newer_copies
from mirrord.replication.lane.signals import AskRebuild, OwnBatch
from mirrord.replication.lane.source.record_search import LedgerAnswers, TargetBatch
from mirrord.replication.lane.target.relocation_result import Located
from tests.fixtures.fake_pipe import as_any
from tests.fixtures.superseded_logs import PARTITION, FakeLog, ReadBatch, marker, written
from tests.unit.replication.lane.test_rebuilding import LANE, Play

PRODUCER = 501
ABORTED, OTHER = 31, 32
"""Producers that write to the target in transactions."""


async def found(
    source: Sequence[ReadBatch],
    target: Sequence[ReadBatch],
    located: Located,
    *facts: AnyFact,
    own: tuple[OwnBatch, ...] = (),
    standing: tuple[TargetBatch, ...] | None = None,
    bare: tuple[tuple[int, int], ...] = ((0, 200),),
    acknowledged: tuple[tuple[int, int], ...] = (),
    earlier: tuple[tuple[int, int], ...] = (),
    is_cut: bool = False,
    opens: bool = True,
    first: int = 0,
    start: int = 0,
    end: int = 200,
    stable: int = 200,
    log: FakeLog | None = None,
) -> NewerCopies:
    """The ledger maps each ordinal below `first` to the source offset 100 higher. `own` are the lane's batches in the
    target from `start` to `end`, and `standing` is what they contain. `log` replaces the target."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 100),), epochs=((0, 4),)))
    for each in facts:
        play.fold(each)
    originals, copies = FakeLog(list(source), 200, 200), log or FakeLog(list(target), 200, stable, begin=start)
    sides = [(as_any(each), PARTITION, as_any(each)) for each in (originals, copies)]
    wanted = AskRebuild(1, PRODUCER, first, start, end, earlier=earlier, acknowledged=acknowledged, is_cut=is_cut)
    if standing is None:
        standing = tuple(TargetBatch(each.base_sequence, "x" * each.count) for each in own)
    ledger = LedgerAnswers(lambda _: opens, play.record.source_runs.offset_of)
    batches = Batches(own, standing, bare)
    answer = await newer_copies(sides[0], sides[1], play.record, wanted, batches, located, ledger)
    assert len(originals.reads) == 1
    return answer


def own(offset: int, keys: str, ordinal: int) -> ReadBatch:
    return written(offset, keys, producer=(PRODUCER, ordinal))


async def test_a_record_without_a_newer_copy_is_copied() -> None:
    """HALT. The target has a copy with this key whose record the source has lost to its cleaner, and an older one."""
    located = Located((Run(0, 3), Run(2, 9)), (), ((5, 7),), 10, open=((1, 2),))
    target = [own(0, "b", 0), own(1, "a", 1), own(2, "z", 2)]
    answer = await found(
        [written(3, "b"), written(5, "ab"), written(9, "z")], target, located, own=(OwnBatch(0, 3, 0, 0),)
    )
    assert answer == NewerCopies()


async def test_a_record_with_a_newer_copy_is_left_out() -> None:
    located, copied = Located((Run(0, 8),), (), ((5, 7),), 9), (OwnBatch(0, 1, 0, 0),)
    source = [written(5, "ab"), written(8, "b")]
    assert await found(source, [own(0, "b", 0)], located, own=copied) == NewerCopies(((6, 7),))
    # Whatever another client has written: the copy is newer.
    target = [own(0, "b", 0), written(1, "b")]
    assert await found(source, target, located, own=copied) == NewerCopies(((6, 7),))


async def test_the_cleaner_may_have_removed_the_newer_copy() -> None:
    """OLDER VALUE. The newer record is a tombstone. The source still has it. The target's cleaner has removed its copy
    from a batch, of which other records are left."""
    located, copied = Located((Run(0, 8),), (), ((5, 7),), 10), (OwnBatch(0, 2, 0, 0),)
    source = [written(5, "ab"), written(8, "bc")]
    assert await found(source, [own(0, "-c", 0)], located, own=copied) == NewerCopies(((6, 7),))


async def test_a_copy_whose_record_is_gone_is_older() -> None:
    """LOSS. The ledger maps it to a later offset, and nothing confirms that."""
    located, copied = Located((Run(0, 8),), (), ((5, 7),), 9), (OwnBatch(0, 1, 0, 0),)
    assert await found([written(5, "ab")], [own(0, "b", 0)], located, own=copied) == NewerCopies()


async def test_it_is_not_known_whether_the_record_of_another_client_is_newer() -> None:
    located = Located((), (), ((5, 8),), 9)
    assert await found([written(5, "aba")], [written(3, "a")], located) == NewerCopies((), ((5, 6), (7, 8)))
    assert await found([written(5, "aba")], [written(3, "c")], located) == NewerCopies()


async def test_records_of_transactions_that_are_not_committed_remove_nothing() -> None:
    """NEEDLESS HALT. One of two transactions of other clients is aborted, the other one is open."""
    located = Located((), (), ((5, 7),), 9)
    aborted = written(3, "a", attributes=TRANSACTIONAL, producer=(ABORTED, 0), aborted=True)
    opened = written(5, "b", attributes=TRANSACTIONAL, producer=(OTHER, 0))
    target = [aborted, marker(4, ABORTED, commit=False), opened]
    for stable in (5, 3):
        assert await found([written(5, "ab")], target, located, stable=stable) == NewerCopies()
    target.append(marker(6, OTHER, commit=True))
    for stable in (200, 3):
        assert await found([written(5, "ab")], target, located, stable=stable) == NewerCopies((), ((6, 7),))


async def test_records_below_the_missing_ones_are_older() -> None:
    """NEEDLESS HALT. Later source records were copied under lower ordinals. The copy of an earlier topic of the same
    name, which a lane with another producer id has written, is at lower offsets of the target."""
    located = Located((), (), ((102, 103),), 110)
    target = [written(3, "a", producer=(77, 0)), own(6, "dbcd", 0)]
    assert await found([written(100, "dba")], target, located, first=4, start=10) == NewerCopies()


async def test_the_target_is_read_up_to_its_present_end() -> None:
    """OLDER VALUE. The cleaner has removed the newer record of another client, because an even later one has been
    written since."""
    located = Located((), (), ((5, 6),), 9)
    assert await found([written(5, "a")], [written(50, "a")], located, end=40) == NewerCopies((), ((5, 6),))


@dataclass
class GrowingLog(FakeLog):
    """A log to which something is written between two questions about its end."""

    writes: Callable[["GrowingLog"], None] = lambda _: None

    def bounds(self, partition: object, epoch: int, report: Callable[[int, int, int], None]) -> None:
        self.writes(self)
        super().bounds(partition, epoch, report)


async def test_other_clients_that_write_all_the_time_do_not_hold_the_search_up() -> None:
    """STANDSTILL. The target was read up to an end that had moved on each time."""

    def write(log: GrowingLog) -> None:
        log.batches.append(written(log.end, "x" * 10))
        log.end = log.stable = log.end + 10
        assert log.end < 500, "the search does not end"

    log = GrowingLog([written(3, "a")], 40, 40, writes=write)
    answer = await found([written(5, "a")], [], Located((), (), ((5, 6),), 9), log=log, end=40)
    assert answer == NewerCopies((), ((5, 6),))


async def test_a_transaction_may_be_committed_during_the_search() -> None:
    """OLDER VALUE. It was open when its records were read."""

    def commit(log: GrowingLog) -> None:
        if log.end == 40:
            log.batches.append(marker(40, OTHER, commit=True))
            log.end = log.stable = 41

    opened = written(39, "a", attributes=TRANSACTIONAL, producer=(OTHER, 0))
    log = GrowingLog([opened], 40, 39, writes=commit)
    answer = await found([written(5, "a")], [], Located((), (), ((5, 6),), 9), log=log, end=40)
    assert answer == NewerCopies((), ((5, 6),))


@pytest.mark.parametrize(
    ("contents", "acknowledged", "opens", "others_at", "is_clear"),
    [
        ("abc", 0, True, 11, True),
        ("abc", 0, True, 14, False),
        ("abc", 9, True, 11, False),
        ("a_c", 0, True, 11, False),
        ("a_c", 0, False, 11, True),
        ("_bc", 0, False, 11, True),
        ("ab_", 0, False, 11, True),
        ("ab_", 0, False, 12, False),
    ],
)
async def test_a_missing_record_would_be_after_those_that_the_log_has(
    contents: str, acknowledged: int, others_at: int, *, opens: bool, is_clear: bool
) -> None:
    """NEEDLESS HALT. The log has all records of the first ordinals, so the missing one had a later ordinal if it was
    appended at all. Only if it was acknowledged, the log may have lost it before it had these records. The cleaner has
    removed the record in the place of the underscore. It was another one if no other was sent under its ordinal, and
    if the ledger does not map its ordinal to the missing one."""
    located = Located((Run(0, 100), Run(2, 103)), (), ((102, 103),), 104)
    copied = (OwnBatch(8, 2, 0, 0), OwnBatch(12, 1, 2, 0))
    held = tuple(None if each == "_" else each for each in contents)
    standing = (TargetBatch(0, held[:2]), TargetBatch(2, held[2:]))
    target = [own(8, "xy", 0), written(others_at, "a"), own(12, "z", 2)]
    places = {"own": copied, "standing": standing, "acknowledged": ((acknowledged, 4),), "opens": opens}
    answer = await found([written(102, "ab")], target, located, **places, start=8)
    assert answer == NewerCopies((), () if is_clear else ((102, 103),))


@pytest.mark.parametrize(
    ("bare", "contents", "more", "is_clear"),
    [
        ((), "x", {}, True),
        (((2, 7),), "x", {}, True),
        (((10, 12),), "x", {}, True),
        (((8, 9),), "x", {}, False),
        ((), "_", {}, False),
        ((), "x", {"earlier": ((0, 1),)}, False),
        ((), "x", {"is_cut": True}, False),
    ],
)
async def test_the_cleaner_must_have_removed_a_record_before_that_of_another_client(
    bare: tuple[tuple[int, int], ...], contents: str, more: dict[str, Any], *, is_clear: bool
) -> None:
    """NEEDLESS HALT. The record of the other client is at the offset 9. If an election has brought back batches, the
    missing record may have been in the log before, or where retention has deleted the beginning of the range."""
    located, copied = Located((Run(0, 99),), (), ((102, 103),), 104), (OwnBatch(7, 1, 0, 0),)
    standing = (TargetBatch(0, (None,) if contents == "_" else contents),)
    places = {"own": copied, "standing": standing, "bare": bare, **more}
    answer = await found([written(102, "ab")], [written(9, "a")], located, **places, start=2)
    assert answer == NewerCopies((), () if is_clear else ((102, 103),))


@pytest.mark.parametrize(
    ("until", "epoch", "source_epoch", "is_newer"),
    [(3, 3, 4, True), (3, 4, 4, False), (3, -1, 4, False), (2, 3, 4, False), (3, 3, 5, False)],
)
async def test_a_record_of_a_later_leader_is_newer_than_an_acknowledged_one(
    until: int, epoch: int, source_epoch: int, *, is_newer: bool
) -> None:
    """NEEDLESS HALT. An election has removed the acknowledged record of ordinal 2. The record of the other client has
    the leader epoch 4. LOSS, if the source has another record at the offset: that one was never acknowledged."""
    located, places = Located((), (), ((102, 103),), 104), (((102, 103),), ())
    source = [written(102, "ab", leader_epoch=source_epoch)]
    answer = await found(source, [written(9, "a")], located, acknowledged=((1, 1), (until, epoch)))
    assert answer == NewerCopies(*(places if is_newer else places[::-1]))


@pytest.mark.parametrize(("epoch", "is_same"), [(4, True), (5, False)])
async def test_a_record_that_gave_way_to_a_newer_one_does_so_again(epoch: int, *, is_same: bool) -> None:
    """NEEDLESS HALT. The target had lost this record and not copied it again, because another client had written a
    newer one. The source may have another record at its offset now."""
    given = VerdictGiven(LANE, 1, (Verdict(5, 6, "compacted"),), epochs=((3, 8, 4),))
    located, source = Located((), (), ((5, 7),), 9), [written(5, "ab", leader_epoch=epoch)]
    places = ((5, 6),), ()
    answer = await found(source, [written(3, "a")], located, given)
    assert answer == NewerCopies(*(places if is_same else places[::-1]))
    # LOSS. Whatever superseded it has been lost, or was a tombstone that the cleaner has removed: nothing shows which.
    assert await found(source, [written(3, "c")], located, given) == NewerCopies()


@pytest.mark.parametrize("bare", [((0, 200),), ()])
async def test_a_record_is_superseded_if_a_later_one_with_its_key_is(bare: tuple[tuple[int, int], ...]) -> None:
    """OLDER VALUE, or NEEDLESS HALT. The record at offset 7 gave way to a newer one of another client, so the one at
    offset 5 is older than that, too. The one at offset 8 may be newer."""
    given = VerdictGiven(LANE, 1, (Verdict(7, 8, "compacted"),), epochs=((3, 8, 4),))
    located = Located((), (), ((5, 9),), 10)
    answer = await found([written(5, "abaa")], [written(3, "a")], located, given, bare=bare)
    assert answer == NewerCopies(((5, 6), (7, 8)), ((8, 9),) if bare else ())


@pytest.mark.parametrize(("epoch", "is_same"), [(4, True), (5, False)])
async def test_a_record_that_a_lookup_took_for_removed_counts_as_such_again(epoch: int, *, is_same: bool) -> None:
    """NEEDLESS HALT. A lookup found that the cleaner had removed the record of ordinal 2."""
    displaced = TargetRun(LANE, 1, 3, 9, 1, (Displaced(1, 2, 0, 1, by_look_up=True),))
    located, places = Located((), (), ((102, 103),), 104), (((102, 103),), ())
    answer = await found([written(102, "ab", leader_epoch=epoch)], [written(3, "a")], located, displaced)
    assert answer == NewerCopies(*(places if is_same else places[::-1]))


@pytest.mark.parametrize(("missing", "superseded"), [((102, 103), ((102, 103),)), ((104, 105), ())])
async def test_later_records_may_have_been_copied_before(
    missing: tuple[int, int], superseded: tuple[tuple[int, int], ...]
) -> None:
    """Ordinals 0 to 3 have the offsets 100 to 103. The search begins with ordinal 4."""
    located = Located((), (), (missing,), 110)
    source = [written(missing[0], "a"), written(103, "a")]
    source = source if missing[0] < 103 else source[::-1]
    assert await found(source, [], located, first=4, start=9) == NewerCopies(superseded)


@pytest.mark.parametrize("is_recorded", [True, False])
async def test_a_copied_record_that_the_source_has_lost_is_no_newer_one(*, is_recorded: bool) -> None:
    """LOSS. The source has lost the records of ordinals 2 and 3, which are still in the target. In their place, it has
    other records, and the first of these was not copied yet. The lane may not know that yet."""
    lost = SourceRun(LANE, 1, (Run(4, 102),), (Verdict(102, 104, "truncated"),), epochs=((4, 5),))
    source = [written(102, "aa", leader_epoch=5)]
    located = Located((), (), ((102, 103 + is_recorded),), 110)
    answer = await found(source, [own(8, "cada", 0)], located, *([lost] if is_recorded else ()), first=4, start=10)
    assert answer == NewerCopies()


async def test_records_without_a_key_are_copied() -> None:
    assert await found([written(5, "-")], [written(3, "a")], Located((), (), ((5, 6),), 9)) == NewerCopies()
