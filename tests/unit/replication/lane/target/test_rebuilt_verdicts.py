"""Verdicts on the source offsets that a rebuilt map no longer contains."""

from msgspec.structs import replace

from mirrord.ledger.facts.core import HoleFound, SourceRun, Verdict
from mirrord.model.runs import Run
from mirrord.replication.lane.signals import OwnBatch
from mirrord.replication.lane.target.rebuilt_verdicts import has_gaps, verdicts
from mirrord.replication.lane.target.relocation_result import Located
from tests.fixtures.ledger import lane_id
from tests.unit.replication.lane.test_rebuilding import Play

LANE = lane_id(0)


def given(
    runs: tuple[Run, ...], first: int, own: tuple[OwnBatch, ...], located: Located, *holes: HoleFound
) -> list[tuple[int, int, str]]:
    """The verdicts, given the runs of the former map."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, runs), *holes)
    found = verdicts(play.record, first, own, located)
    assert has_gaps(play.record, first, own, located) == any(each.reason == "compacted" for each in found)
    return [(each.start, each.end, each.reason) for each in found]


def test_no_verdict_on_offsets_that_are_copied_or_follow() -> None:
    own = (OwnBatch(0, 4, 0, 0),)
    located = Located((Run(0, 0), Run(2, 4)), (), ((2, 4),), 6)
    assert given((Run(0, 0),), 0, own, located) == []


def test_offsets_before_the_first_copied_record() -> None:
    """The ledger had recorded neither a run nor a verdict when the holder ended. The batch begins with offset 3782."""
    own, located = (OwnBatch(0, 25, 0, 0),), Located((Run(0, 3782),), (), (), 3807)
    assert given((Run(0, 0),), 0, own, located) == [(0, 3782, "compacted")]
    left_out = (Verdict(0, 7, "aborted"), Verdict(7, 8, "control"))
    lost = replace(located, left_out=left_out, source_compacts=False)
    assert given((Run(0, 0),), 0, own, lost) == [
        (0, 7, "aborted"), (7, 8, "control"), (8, 3782, "unexplained"),
    ]  # fmt: skip


def test_adjacent_batches_with_the_same_reason_get_one_verdict() -> None:
    own, left_out = (OwnBatch(0, 1, 0, 0),), tuple(Verdict(at, at + 1, "aborted") for at in range(5))
    located = Located((Run(0, 5),), (), (), 6, left_out=left_out)
    assert given((Run(0, 0),), 0, own, located) == [(0, 5, "aborted")]


def test_what_the_source_has_deleted_is_expired() -> None:
    own, located = (OwnBatch(0, 3, 10, 0),), Located((Run(10, 16),), (), (), 19, source_start=14)
    assert given((Run(0, 0),), 10, own, located) == [(10, 14, "expired"), (14, 16, "compacted")]


def test_an_offset_of_a_lower_ordinal_is_copied() -> None:
    """Ordinals 4 and 5 were to copy offsets 2 and 3 again. Offset 2 was copied as ordinal 2 all the same."""
    runs = (Run(0, 0), Run(3, 4), Run(4, 2), Run(6, 5))
    located = Located((), (), (), 5, source_start=4)
    assert given(runs, 4, (), located) == [(3, 4, "expired")]


def test_no_offset_is_expired_if_the_content_of_some_ordinals_is_unknown() -> None:
    """The target has ordinals 10 and 11. Only the record of ordinal 10 could be found in the source."""
    own, left_out = (OwnBatch(0, 2, 10, 0),), (Verdict(12, 13, "control"),)
    located = Located((Run(10, 15),), (), (), 16, open=((11, 12),), left_out=left_out, source_start=12)
    lost = replace(located, source_compacts=False)
    assert given((Run(0, 0),), 10, own, lost) == [
        (10, 12, "unexplained"), (12, 13, "control"), (13, 15, "unexplained"),
    ]  # fmt: skip


def test_nothing_is_lost_where_the_cleaner_of_the_source_removed_records() -> None:
    """FALSE LOSS. The target has the record of ordinal 11, and the source does not have it any more. Whichever offset
    it had, the source has a newer record with its key."""
    own = (OwnBatch(0, 2, 10, 0),)
    located = Located((Run(10, 15),), (), (), 16, open=((11, 12),), source_start=12)
    assert given((Run(0, 0),), 10, own, located) == [(10, 12, "unexplained"), (12, 15, "compacted")]
    assert given((Run(0, 0),), 10, own, replace(located, source_start=10)) == [(10, 15, "compacted")]


def test_offsets_beyond_the_last_found_record_are_left_to_the_lane() -> None:
    assert given((Run(0, 0),), 5, (), Located((), (), (), 7, source_start=30)) == [(5, 7, "expired")]


def test_a_gap_that_the_former_map_explained_keeps_its_verdict() -> None:
    """The former map jumped over offsets 5 to 7, and the ledger has verdicts on them."""
    own = (OwnBatch(0, 4, 3, 0),)
    located = Located((Run(3, 3), Run(5, 8)), (), (), 10)
    assert given((Run(0, 0), Run(5, 8)), 3, own, located) == []
