"""Which of the records that a compacted target lacks must not be copied again, because it has newer ones of their
keys."""

from collections.abc import Sequence

import pytest

from mirrord.ledger.facts.core import HoleFound, SourceRun
from mirrord.model.intervals import Interval
from mirrord.model.runs import Run
from mirrord.replication.host.newer_copies import NewerCopies, newer_copies
from mirrord.replication.lane.signals import AskRebuild
from mirrord.replication.lane.target.relocation_result import Located
from tests.fixtures.fake_pipe import as_any
from tests.fixtures.superseded_logs import PARTITION, FakeLog, ReadBatch, written
from tests.unit.replication.lane.test_rebuilding import LANE, Play

PRODUCER = 501


async def found(
    source: Sequence[ReadBatch],
    target: Sequence[ReadBatch],
    located: Located,
    *,
    first: int = 0,
    start: int = 0,
    log_start: int = 0,
    copied: tuple[Interval, ...] = (),
    holes: tuple[HoleFound, ...] = (),
) -> NewerCopies:
    """The ledger maps each ordinal below `first` to the source offset 100 higher."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 100),)), *holes)
    originals, copies = FakeLog(list(source), 200, 200), FakeLog(list(target), 200, 200, begin=log_start)
    wanted = AskRebuild(1, PRODUCER, first, start, 200, log_start=log_start)
    sides = ((as_any(each), PARTITION) for each in (originals, copies))
    return await newer_copies(*sides, record=play.record, wanted=wanted, located=located, copied=copied)


def own(offset: int, keys: str, ordinal: int) -> ReadBatch:
    return written(offset, keys, producer=(PRODUCER, ordinal))


async def test_a_record_without_a_newer_copy_is_copied() -> None:
    """HALT. The target has a copy with this key whose record the source has lost to its cleaner, and an older one."""
    located = Located((Run(0, 3), Run(2, 9)), (), ((5, 7),), 10, open=((1, 2),))
    target = [own(0, "b", 0), own(1, "a", 1), own(2, "z", 2)]
    assert await found([written(5, "ab")], target, located) == NewerCopies()


async def test_a_record_with_a_newer_copy_is_left_out() -> None:
    located = Located((Run(0, 8),), (), ((5, 7),), 9)
    assert await found([written(5, "ab")], [own(0, "b", 0)], located) == NewerCopies(((6, 7),))
    # Whatever another client has written: the copy is newer.
    target = [own(0, "b", 0), written(1, "b")]
    assert await found([written(5, "ab")], target, located) == NewerCopies(((6, 7),))


async def test_a_copy_whose_record_is_gone_is_older() -> None:
    """LOSS. The ledger maps it to a later offset, and nothing confirms that."""
    located = Located((Run(0, 8),), (), ((5, 7),), 9, gone=((0, 1),))
    assert await found([written(5, "ab")], [own(0, "b", 0)], located) == NewerCopies()


async def test_it_is_not_known_whether_the_record_of_another_client_is_newer() -> None:
    located = Located((), (), ((5, 8),), 9)
    assert await found([written(5, "aba")], [written(3, "a")], located) == NewerCopies((), ((5, 6), (7, 8)))
    assert await found([written(5, "aba")], [written(3, "c")], located) == NewerCopies()


@pytest.mark.parametrize(("missing", "superseded"), [((102, 103), ((102, 103),)), ((104, 105), ())])
async def test_records_that_were_copied_again_later_may_be_anywhere(
    missing: tuple[int, int], superseded: tuple[tuple[int, int], ...]
) -> None:
    """Ordinals 0 to 3 have the offsets 100 to 103. The search begins with ordinal 4."""
    located = Located((), (), (missing,), 110)
    answer = await found([written(missing[0], "a")], [own(3, "a", 3)], located, first=4, start=9, log_start=2)
    assert answer == NewerCopies(superseded)


async def test_records_without_a_key_are_copied() -> None:
    assert await found([written(5, "-")], [written(3, "a")], Located((), (), ((5, 6),), 9)) == NewerCopies()


async def test_a_copied_record_may_be_newer_although_the_cleaner_has_removed_it() -> None:
    """STALE VALUE. The target's cleaner has removed the tombstones of a and b at the offsets 7 and 8. It cannot have
    removed one that the lane has not copied."""
    located = Located((), (), ((5, 6), (9, 10)), 10)
    source = [written(4, "a"), written(5, "a"), written(6, "b"), written(7, "abb")]
    assert await found(source, [], located, copied=((4, 5), (7, 9))) == NewerCopies(((5, 6),))
    assert await found(source, [], located, copied=((4, 5), (8, 9))) == NewerCopies()


async def test_the_ledgers_offset_of_an_unknown_record_does_not_count() -> None:
    """LOSS. Ordinal 3 has the offset 103 in the ledger, but a former rebuild could not determine its record."""
    unknown = (HoleFound(LANE, 1, 3, 3, 4, 4),)
    located = Located((), (), ((102, 103),), 110)
    source, target = [written(102, "a")], [own(3, "a", 3)]
    assert await found(source, target, located, first=4, start=9, log_start=2, holes=unknown) == NewerCopies()
