"""The lookup of records that a compacted target lacks: records that a lane never copies were never appended."""

from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass

import pytest

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.range_reader import ReadBatch
from mirrord.kafka.protocol.record_batch import CONTROL, TRANSACTIONAL
from mirrord.ledger.facts.core import SourceRun
from mirrord.model.runs import Run, Runs
from mirrord.replication.host import superseded_lookup
from mirrord.replication.host.superseded_lookup import SupersededLookup
from mirrord.replication.lane.target import superseded_records
from mirrord.replication.lane.target.scan_result import Missing
from mirrord.replication.lane.target.superseded_records import AskSuperseded
from tests.fixtures.attic import no_room, scarce
from tests.fixtures.superseded_logs import FakeLog, lookup, written
from tests.unit.replication.lane.test_rebuilding import LANE, Play


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("read_committed", "uncopied", "stable", "until"),
    [
        (True, written(2, "cde", attributes=TRANSACTIONAL, aborted=True), 6, 2),
        (False, written(2, "cde", attributes=TRANSACTIONAL, aborted=True), 6, 6),
        (True, written(2, "cde", attributes=TRANSACTIONAL), 2, 2),
        (True, written(2, "c", attributes=CONTROL), 6, 2),
        (True, written(2, "cde"), 6, 6),
    ],
    ids=["aborted", "aborted, and copied", "open transaction", "control", "copied"],
)
async def test_nothing_after_a_record_that_a_lane_never_copies_was_appended(
    *, read_committed: bool, uncopied: ReadBatch, stable: int, until: int
) -> None:
    """The ledger has a run from offset 0 on and nothing else, and other writers have newer records of all keys."""
    source = FakeLog([written(0, "ab"), uncopied, written(5, "f")], 6, stable)
    target = FakeLog([written(6, "abcdef")], 12, 12)
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)))
    missing = Missing("last", 0, 5, 0, has_room=True)
    search = lookup(source, target, play.record, read_committed=read_committed)
    answer = await search.run(AskSuperseded(1, (missing,), 12))
    assert (answer.error, answer.trouble, answer.until) == (0, "", until)


@pytest.mark.asyncio
@pytest.mark.parametrize(("keys", "until", "epoch"), [("abcdef", 6, 5), ("abc", 3, 4), ("bcdef", -1, -1)])
async def test_the_source_epoch_of_the_last_superseded_record_is_reported(keys: str, until: int, epoch: int) -> None:
    """The source's leader changed at offset 3. Other writers have newer records of some keys."""
    source = FakeLog([written(0, "abc"), written(3, "def", leader_epoch=5)], 6, 6)
    target = FakeLog([written(6, keys)], 6 + len(keys), 6 + len(keys))
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)))
    missing = Missing("last", 0, 5, 0, has_room=True)
    answer = await lookup(source, target, play.record).run(AskSuperseded(1, (missing,), 6 + len(keys)))
    assert (answer.until, answer.until_epoch) == (until, epoch)


def of_eight(is_open: Callable[[int], bool] = lambda _: True) -> SupersededLookup:
    """The source has keys a to h at offsets 0 to 7, the target a newer record of c, e and h, from a later epoch."""
    source, target = FakeLog([written(0, "abcdefgh")], 8, 8), FakeLog([written(3, "che")], 6, 6)
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)))
    return lookup(source, target, play.record, is_open=is_open)


LOST = AskSuperseded(1, (Missing("lost", 0, 7, 9, has_room=False, leader_epoch=1),), 6)


@pytest.mark.asyncio
@pytest.mark.parametrize("at_once", [1, 2, 3, 4, 100])
async def test_many_records_are_looked_up_in_several_parts(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(superseded_records, "MOST_AT_ONCE", at_once)
    assert (await of_eight().run(LOST)).again == ((0, 1), (3, 3), (5, 6))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("begin", "keys", "until", "reads"),
    [
        (0, "abcdefgh", 8, [(0, 2), (2, 5), (5, 8)]),
        (0, "bcdefgh", -1, [(0, 2)]),
        (0, "abcefgh", 3, [(0, 2), (2, 5)]),
        (0, "abcdfgh", 4, [(0, 2), (2, 5)]),
        (0, "abcdeg", 5, [(0, 2), (2, 5), (5, 8)]),
        (3, "efgh", -1, [(3, 5)]),
        (3, "defgh", 8, [(3, 5), (5, 8)]),
    ],
    ids=["all", "none", "3 of 8", "4 of 8", "5 of 8", "none after expired ones", "all after expired ones"],
)
async def test_the_next_part_of_the_last_records_is_looked_up_if_all_before_it_were_appended(
    begin: int, keys: str, until: int, reads: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At most two records at first, then three at a time. Other clients have newer records of some keys."""
    monkeypatch.setattr(superseded_records, "MOST_LAST", 2)
    monkeypatch.setattr(superseded_records, "MOST_AT_ONCE", 3)
    source = FakeLog([written(0, "abcdefgh")], 8, 8, begin=begin)
    target = FakeLog([written(8, keys)], 8 + len(keys), 8 + len(keys))
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)))
    asked = AskSuperseded(1, (Missing("last", 0, 7, 0, has_room=True),), 8 + len(keys))
    assert (await lookup(source, target, play.record).run(asked)).until == until
    assert source.reads == reads


@pytest.mark.asyncio
async def test_more_ranges_than_one_entry_of_the_ledger_can_contain_are_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(superseded_lookup, "MOST_RANGES", 2)
    answer = await of_eight().run(LOST)
    assert (answer.again, answer.trouble) == (
        (),
        "more than 2 separate ranges of records would have to be copied again",
    )


@pytest.mark.asyncio
async def test_a_lookup_that_the_lane_no_longer_waits_for_ends_after_the_current_part(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its answer must not say that the other records are superseded."""
    monkeypatch.setattr(superseded_records, "MOST_AT_ONCE", 3)
    open_for = iter((True, True, False))
    answer = await of_eight(is_open=lambda _: next(open_for)).run(LOST)
    assert (answer.error, answer.again) == (13, ())


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("appended", "again"),
    [((), ((0, 1),)), (((2, 3),), ((1, 1),)), (((3, 3),), ((0, 1),)), (((4, 9),), ((0, 1),))],
    ids=["unknown", "one of its key", "another key", "beyond the end of the source"],
)
async def test_a_copied_record_that_the_cleaner_removed_supersedes_older_ones(
    appended: tuple[tuple[int, int], ...], again: tuple[tuple[int, int], ...]
) -> None:
    """STALE VALUE. The source has key a at offsets 0 and 2. The target had another writer's newer record of that key,
    the cleaner removed both copied ones, and an election removed the newer record."""
    source, target = FakeLog([written(0, "ab"), written(2, "ac")], 4, 4), FakeLog([written(3, "c")], 4, 4)
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)))
    missing = Missing("between", 0, 1, 0, has_room=True)
    answer = await lookup(source, target, play.record).run(AskSuperseded(1, (missing,), 4, appended))
    assert (answer.trouble, answer.again) == ("", again)


@pytest.mark.asyncio
@pytest.mark.parametrize(("end", "again"), [(3, ((0, 0), (2, 2))), (4, ((0, 0),))])
async def test_records_that_others_write_to_an_empty_log_supersede_lost_ones(
    end: int, again: tuple[tuple[int, int], ...]
) -> None:
    """STALE VALUE. Retention has deleted all of the target log, which ended at offset 2 when the lane asked. Other
    clients have written one or two records since."""
    source = FakeLog([written(0, "abc")], 3, 3)
    target = FakeLog([written(2, "bc"[: end - 2])], end, end, begin=2)
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)))
    missing = Missing("lost", 0, 2, 2, has_room=False, leader_epoch=1)
    answer = await lookup(source, target, play.record).run(AskSuperseded(1, (missing,), 2))
    assert (answer.trouble, answer.again) == ("", again)


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("epoch", "again"), [(3, ((0, 1),)), (4, ((1, 1),)), (5, ((0, 1),))], ids=["earlier", "the same", "later"]
)
async def test_a_record_of_another_source_epoch_was_not_copied_under_the_ordinal(
    epoch: int, again: tuple[tuple[int, int], ...]
) -> None:
    """STALE VALUE. As above, but the source has elected a replica with other records from offset 2 on. They do not
    show that a newer record of key a was copied."""
    source = FakeLog([written(0, "ab"), written(2, "ac", leader_epoch=epoch)], 4, 4)
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 4),)))
    missing = Missing("between", 0, 1, 0, has_room=True)
    search = lookup(source, FakeLog([written(3, "c")], 4, 4), play.record)
    answer = await search.run(AskSuperseded(1, (missing,), 4, ((2, 3),)))
    assert (answer.trouble, answer.again) == ("", again)


@pytest.mark.asyncio
@pytest.mark.parametrize(("first", "last"), [(3, 3), (4, 4), (5, 5), (3, 4), (3, 5)])
async def test_copied_records_are_found_whatever_the_order_of_their_runs(first: int, last: int) -> None:
    """Ordinals 3 to 5 are source offsets 8, 4 and 10. Offset 9 was not copied."""
    source = FakeLog([written(0, "abcd"), written(4, "b"), written(8, "cd"), written(10, "a")], 11, 11)
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0), Run(3, 8), Run(4, 4), Run(5, 10))))
    missing = Missing("between", 0, 2, 0, has_room=True)
    asked = AskSuperseded(1, (missing,), 1, ((first, last),))
    (*again,) = (await lookup(source, FakeLog([], 1, 1), play.record).run(asked)).again
    superseded = {3: 2, 4: 1, 5: 0}
    left = {0, 1, 2} - {superseded[each] for each in range(first, last + 1)}
    assert {each for begin, end in again for each in range(begin, end + 1)} == left


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("stands", "again"),
    [("--cd", ()), ("a-cd", ()), ("-xcd", ((1, 1),)), ("xycd", ((0, 1),))],
)
async def test_a_record_is_not_copied_again_if_a_later_one_of_its_key_was_in_a_batch_of_the_lane(
    stands: str, again: tuple[tuple[int, int], ...]
) -> None:
    """STALE VALUE. The lane copied keys a and b, and then a batch with the tombstones of some of them, c, and d. The
    cleaner removed the first batch, and the tombstones from the second one. No record in the log has these keys, but
    if the first values were copied again, they would come after the tombstones."""
    keys = {"--cd": "abcd", "a-cd": "abcd", "-xcd": "axcd", "xycd": "xycd"}[stands]
    source = FakeLog([written(0, "ab"), written(2, keys)], 6, 6)
    target = FakeLog([written(2, stands, producer=(7, 2))], 6, 6)
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)))
    missing = Missing("between", 0, 1, 0, has_room=True)
    answer = await lookup(source, target, play.record).run(AskSuperseded(1, (missing,), 6, ((2, 5),)))
    assert (answer.error, answer.trouble, answer.again) == (0, "", again)


@pytest.mark.asyncio
async def test_a_later_record_that_was_not_copied_yet_does_not_supersede_a_missing_one() -> None:
    """Ordinal 0 is missing, ordinal 1 is the lane's last one, and the source has a newer record of the key after it."""
    source = FakeLog([written(0, "aba")], 3, 3)
    target = FakeLog([written(1, "b", producer=(7, 1))], 2, 2)
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)))
    missing = Missing("between", 0, 0, 0, has_room=True)
    answer = await lookup(source, target, play.record).run(AskSuperseded(1, (missing,), 2, ((1, 1),)))
    assert answer.again == ((0, 0),)


@pytest.mark.asyncio
@pytest.mark.parametrize(("keys", "reads"), [("axcd", [(0, 2), (2, 6)]), ("abcd", [(0, 2)])])
async def test_copied_records_are_read_only_if_a_record_would_be_copied_again(
    keys: str, reads: list[tuple[int, int]]
) -> None:
    source = FakeLog([written(0, "ab"), written(2, keys)], 6, 6)
    target = FakeLog([written(2, keys, producer=(7, 2))], 6, 6)
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),)))
    missing = Missing("between", 0, 1, 0, has_room=True)
    await lookup(source, target, play.record).run(AskSuperseded(1, (missing,), 6, ((2, 5),)))
    assert source.reads == reads


@dataclass
class PrunedLog(FakeLog):
    """A source log. After it is read at a higher offset for the first time, the runs below `ordinal` are pruned."""

    runs: Runs | None = None
    ordinal: int = 0

    async def read(
        self, partition: PartitionId, start: int, end: int, *, committed: bool = False
    ) -> AsyncGenerator[ReadBatch, None]:
        async for each in super().read(partition, start, end, committed=committed):
            yield each
        if self.runs is not None and len(self.reads) > 1:
            self.runs.forget_below(self.ordinal)


@pytest.mark.asyncio
@pytest.mark.parametrize("newer", range(9, 21))
async def test_copied_records_are_found_while_older_runs_are_pruned(
    newer: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """STALE VALUE. The records of ordinals 0 to 7 have been deleted from both logs. While the look-up of ordinal 8
    reads the source, the supervisor prunes their runs."""
    monkeypatch.setattr(superseded_lookup, "NEAR", 0)
    source = PrunedLog([written(2 * at, "a" if at in {8, newer} else "b") for at in range(21)], 42, 42)
    play = Play.opened()
    with scarce(fewest=2, most=4, block=2):
        play.record.source_runs = source.runs = Runs([Run(at, 2 * at) for at in range(21)], no_room())
        source.ordinal = 8
        missing = Missing("between", 8, 8, 0, has_room=True)
        asked = AskSuperseded(1, (missing,), 1, ((9, 20),))
        assert (await lookup(source, FakeLog([], 1, 1), play.record).run(asked)).again == ()
    assert source.runs.first is not None
    assert source.runs.first.ordinal > 0


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("source", "theirs", "again"),
    [
        ([written(0, "abca")], "", ((3, 3),)),
        ([written(0, "abc")], "", ((0, 0), (3, 3))),
        ([written(0, "abc"), written(3, "d", leader_epoch=5)], "", ((0, 0), (3, 3))),
        ([written(0, "bac")], "", ((1, 1), (3, 3))),
        ([written(0, "aac")], "", ((1, 1), (3, 3))),
        ([written(0, "abc")], "a", ((3, 3),)),
        ([written(0, "abc")], "b", ((0, 0), (3, 3))),
    ],
    ids=["not lost", "lost", "replaced", "another place", "older ones", "written since", "another key"],
)
async def test_a_removed_record_is_the_newest_one_if_both_logs_have_lost_what_superseded_it(
    source: list[ReadBatch], theirs: str, again: tuple[tuple[int, int], ...]
) -> None:
    """LOSS. The target had the records of ordinals 0 to 3. Its cleaner removed one with the key "a" because of that of
    ordinal 3, and an election removed that one. Other clients may have written something since."""
    keys = "".join(chr(key) for record in source[0].records() for key in record.key or b"")[:3]
    log = [written(0, keys.replace("a", "-"), producer=(501, 0)), *([written(3, theirs)] if theirs else [])]
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 4),)))
    end = source[-1].header.last_offset + 1
    missing, below = Missing("lost", 3, 3, 4, has_room=False, leader_epoch=1), Missing("below", 0, 2, 0, has_room=True)
    asked = AskSuperseded(1, (missing,), 3 + len(theirs), below=(below,))
    answer = await lookup(FakeLog(source, end, end), FakeLog(log, 3 + len(theirs), 3 + len(theirs)), play.record).run(
        asked
    )
    assert answer.again == again
