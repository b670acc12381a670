"""Where a lane's batches really are in the source, found by the content of their records."""

import pytest

from mirrord.ledger.facts.core import HoleFound, Verdict
from mirrord.model.names import LaneId
from mirrord.model.runs import Run, Runs
from mirrord.replication.lane.source.record_search import LedgerAnswers, Range, SourceBatch, TargetBatch, Unplaced
from mirrord.replication.lane.target.batch_relocation import (
    covered_below,
    explained_until,
    locate,
    open_ordinals,
    replaced,
    search_range,
)
from mirrord.replication.lane.target.relocation_result import Located
from tests.fixtures.calls import calls_of
from tests.unit.replication.lane.test_answers import Record


def source(text: str, at: int = 0) -> list[SourceBatch]:
    """A source with one batch of one record a letter; `.` is a removed record, `#` a batch that is not copied."""
    return [
        SourceBatch(at, at + 1, {} if letter in ".#" else {at: letter}, "control" if letter == "#" else None)
        for at, letter in enumerate(text, at)
    ]


def found(target: str, text: str, *, first: int = 0, covered: int = 0) -> Located:
    """The target's batches, separated by spaces, as ordinals from `first` on; earlier ones cover the first offsets."""
    standing: list[TargetBatch] = []
    ordinal = first
    for batch in target.split():
        standing.append(TargetBatch(ordinal, batch))
        ordinal += len(batch)
    below = [Range(0, covered)] if covered else []
    return locate(standing, source(text), below, covered - 1, Range(0, len(text)))


def test_records_at_their_mapped_offsets_are_found() -> None:
    assert found("abc d", "abcd") == Located((Run(0, 0),), (), (), 4)


def test_a_removed_record_gets_the_only_free_offset() -> None:
    # The other view did not have offset 2: the ledger says that ordinal 2 is d.
    assert found("ab cd", "ab.d").runs == (Run(0, 0),)
    assert found("ab c d", "ab.d").runs == (Run(0, 0),)
    assert found("ab c", "ab.d") == Located((Run(0, 0),), (), (), 3)


def test_a_batch_of_the_other_view() -> None:
    assert found("ab de", "ab.de").runs == (Run(0, 0), Run(2, 3))


def test_records_that_one_view_skipped_are_missing() -> None:
    # The first holder wrote three, the next one counted the removed record as unwritten and continued one too far.
    located = found("abc ef", "ab.def", first=0)
    assert located.missing == ((3, 4),)
    assert located.runs == (Run(0, 0), Run(3, 4))
    assert located.next_offset == 6


def test_records_that_both_holders_wrote_are_doubled() -> None:
    located = found("d de", "ab.de", first=2, covered=2)
    assert located.doubled == ((3, 4),)
    assert located.runs == (Run(2, 3), Run(3, 3))
    assert (located.missing, located.next_offset) == ((), 5)


def test_records_below_the_range_count_as_well() -> None:
    assert found("bc", "abcd", first=2, covered=2).doubled == ((1, 2),)


def test_an_empty_target_lacks_all_later_records() -> None:
    assert found("", "abcd", covered=2) == Located((), (), (), 2)


def test_a_removed_record_is_not_placed_at_an_offset_that_is_not_copied() -> None:
    assert found("ab cd", "ab#.d").runs == (Run(0, 0), Run(2, 3))


def test_a_record_that_may_have_been_at_several_offsets_has_none() -> None:
    standing = [TargetBatch(0, "ab"), TargetBatch(2, "c")]
    located = locate(standing, source("ab..e"), [], -1, Range(0, 5), LedgerAnswers(is_whole=True))
    assert (located.runs, located.open) == ((Run(0, 0),), ((2, 3),))
    with pytest.raises(Unplaced):  # the source may have it further ahead
        locate(standing, source("ab..e"), [], -1, Range(0, 5))


def test_a_record_is_not_copied_again_because_the_ledger_is_wrong_about_it() -> None:
    """DOUBLE. The target sets the timestamps, and the source has deleted offsets 3 and 5. The copy of the record at
    offset 4 is not placed there, because the ledger maps its ordinal to a free offset."""
    standing = [TargetBatch(0, "ab"), TargetBatch(2, "cd"), TargetBatch(4, "e")]
    named = (0, 1, 2, 4, 5).__getitem__
    ledger = LedgerAnswers(named=named, is_timed=False, may_have_lost=True, is_whole=True)
    with pytest.raises(Unplaced):
        locate(standing, source("abc.e."), [], -1, Range(0, 6), ledger)


def test_a_record_that_has_no_room_in_the_source_has_no_offset_if_the_source_may_have_lost_records() -> None:
    standing, ledger = (
        [TargetBatch(0, "ab"), TargetBatch(2, "x"), TargetBatch(3, "de")],
        LedgerAnswers(may_have_lost=True, is_whole=True),
    )
    located = locate(standing, source("abde"), [], -1, Range(0, 4), ledger)
    assert (located.runs, located.open) == ((Run(0, 0), Run(3, 2)), ((2, 3),))


@pytest.mark.parametrize(
    ("target", "text", "why"),
    [
        ("ab x de", "abde", "the records of ordinals 2 to 2"),
        ("aa", "aaa", "more than once"),
        ("ba", "ab", "a different order"),
        ("ac", "abc", "a different order"),
    ],
)
def test_records_that_cannot_be_placed_are_reported(target: str, text: str, why: str) -> None:
    with pytest.raises(Unplaced, match=why):
        found(target, text)


def test_the_epochs_of_the_source_are_recorded() -> None:
    batches = [
        SourceBatch(0, 2, {0: "a", 1: "b"}, epoch=3),
        SourceBatch(4, 5, {}, "control", 5),
        SourceBatch(5, 6, {5: "c"}, epoch=5),
    ]
    located = locate([TargetBatch(0, "ab"), TargetBatch(2, "c")], batches, [], -1, Range(0, 6))
    assert located.epochs == ((0, 3), (2, 5), (6, -1))  # no batch shows the epoch of what may have been removed there


def test_the_same_record_twice_in_the_source_is_placed_by_its_neighbours() -> None:
    assert found("bxc xd", "abxcxd", covered=1, first=1).runs == (Run(1, 1),)


def test_ordinals_under_which_other_records_may_have_been_sent_stay_open() -> None:
    standing = [TargetBatch(0, "ab"), TargetBatch(2, "x"), TargetBatch(3, "de")]
    assert locate(standing, source("ab.de"), [], -1, Range(0, 5)).open == ()
    located = locate(standing, source("ab.de"), [], -1, Range(0, 5), LedgerAnswers(lambda ordinal: ordinal >= 2))
    assert (located.runs, located.open) == ((Run(0, 0),), ((2, 3),))
    assert (located.missing, located.next_offset) == ((), 5)


@pytest.mark.parametrize("cleaned", [False, True])
def test_records_beside_those_of_open_ordinals_keep_their_mapped_offsets(*, cleaned: bool) -> None:
    """LIE. The source has deleted all records. Several may have been sent under ordinal 2. Those of ordinals 0, 1 and 3
    were reported as lost, although the target has them at the offsets in the ledger."""
    standing = [TargetBatch(0, "ab"), TargetBatch(2, (None if cleaned else "x", "d"))]
    ledger = LedgerAnswers(lambda ordinal: ordinal == 2, (0, 1, 7, 3).__getitem__)
    located = locate(standing, source("e", 4), [], -1, Range(0, 5), ledger)
    assert (located.runs, located.open) == ((Run(0, 0),), ((2, 3),))
    # The ledger is wrong about ordinal 3.
    ledger = LedgerAnswers(lambda ordinal: ordinal == 2, (0, 1, 7, 1).__getitem__)
    located = locate(standing, source("e", 4), [], -1, Range(0, 5), ledger)
    assert (located.runs, located.open) == ((), ((0, 4),))


def test_records_that_neither_log_holds_stay_open() -> None:
    """The target's cleaner has removed ordinal 1, and the source deleted offsets 0 to 2."""
    standing, left = [TargetBatch(0, ("a", None, "c"))], source("de", 3)
    located = locate(standing, left, [], -1, Range(3, 5), LedgerAnswers(lambda _: True, lambda ordinal: ordinal))
    assert (located.runs, located.open, located.missing, located.next_offset) == ((), ((0, 3),), (), 3)
    with pytest.raises(Unplaced, match="the target no longer holds all records of ordinals 0 to 2"):
        locate(standing, left, [], -1, Range(3, 5))
    located = locate(standing, source("c", 2), [], -1, Range(2, 3), LedgerAnswers(lambda _: True))
    assert (located.runs, located.open) == ((Run(2, 2),), ((0, 2),))
    located = locate(standing, source("bc", 1), [], -1, Range(1, 3), LedgerAnswers(lambda _: True))
    assert (located.runs, located.open) == ((Run(1, 1),), ((0, 1),))


def test_records_that_neither_log_holds_keep_their_mapped_offsets() -> None:
    """HALT. Both cleaners have removed records. Only one record was sent under each of these ordinals."""
    standing = [TargetBatch(0, "a"), TargetBatch(1, ("x", None, None)), TargetBatch(4, "h")]
    offsets = (0, 2, 3, 5, 7)
    located = locate(standing, source("a......h"), [], -1, Range(0, 8), LedgerAnswers(named=offsets.__getitem__))
    assert located == Located((Run(0, 0), Run(1, 2), Run(3, 5), Run(4, 7)), (), (), 8)
    last = locate(standing[:2], source("a......h"), [], -1, Range(0, 8), LedgerAnswers(named=offsets.__getitem__))
    assert (last.runs, last.missing, last.next_offset) == ((Run(0, 0), Run(1, 2), Run(3, 5)), (), 6)


def test_records_that_only_the_target_holds_keep_their_mapped_offsets() -> None:
    """HALT. The cleaner of the source had removed offsets 1 and 4 before the lane read this part of the log."""
    standing = [TargetBatch(0, "a"), TargetBatch(1, "xyz"), TargetBatch(4, "h")]
    offsets = (0, 2, 3, 5, 7)
    located = locate(standing, source("a......h"), [], -1, Range(0, 8), LedgerAnswers(named=offsets.__getitem__))
    assert located == Located((Run(0, 0), Run(1, 2), Run(3, 5), Run(4, 7)), (), (), 8)


@pytest.mark.parametrize(
    ("offsets", "text"),
    [
        ((0, 2, 3, None, 7), "a......h"),
        ((0, 2, 2, 5, 7), "a......h"),
        ((0, 2, 3, 7, 7), "a......h"),
        ((0, 2, 3, 5, 7), "a..#...h"),
    ],
)
def test_mapped_offsets_of_cleaned_records_that_contradict_the_logs_stay_open(
    offsets: tuple[int | None, ...], text: str
) -> None:
    """HALT. The ledger is wrong about these records, or the source has lost them since."""
    standing = [TargetBatch(0, "a"), TargetBatch(1, ("x", None, None)), TargetBatch(4, "h")]
    located = locate(standing, source(text), [], -1, Range(0, 8), LedgerAnswers(named=offsets.__getitem__))
    assert (located.runs, located.open) == ((Run(0, 0), Run(4, 7)), ((1, 4),))
    assert (located.missing, located.next_offset) == ((), 8)


def test_cleaned_records_that_the_source_still_has_do_not_hide_others() -> None:
    """LIE. The source has deleted x and y, and the target's cleaner has removed the copy of c. The key of c is looked
    up in the target. The ledger's offsets of x and y were dropped, and these records were reported as lost, although
    the target has them."""
    standing = [TargetBatch(0, ("x", "y", None)), TargetBatch(3, "d")]
    located = locate(standing, source("cd", 2), [], -1, Range(0, 4), LedgerAnswers(named=(0, 1, 2, 3).__getitem__))
    assert (located.runs, located.open) == ((Run(0, 0),), ((2, 3),))
    assert (located.missing, located.next_offset) == (((2, 3),), 4)


@pytest.mark.parametrize(("offsets", "text"), [((0, 0, 3, 5, 7), "a......h"), ((0, None, 3, 5, 7), "a......h")])
def test_a_record_that_contradicts_the_ledger_is_reported(offsets: tuple[int | None, ...], text: str) -> None:
    """The target holds a record that the source does not have, and the source has another one at its mapped offset."""
    standing = [TargetBatch(0, "a"), TargetBatch(1, ("x", None, None)), TargetBatch(4, "h")]
    with pytest.raises(Unplaced, match=r"the target no longer holds all records of ordinals 1 to 3, and .*ordinal 1"):
        locate(standing, source(text), [], -1, Range(0, 8), LedgerAnswers(named=offsets.__getitem__))


def cleaned(target: str, text: str) -> Located:
    """The same as `found`, with an unknown first offset. `_` is a record that the target's cleaner removed."""
    standing, ordinal = list[TargetBatch](), 0
    for batch in target.split():
        standing.append(TargetBatch(ordinal, [None if each == "_" else each for each in batch]))
        ordinal += len(batch)
    return locate(standing, source(text), [], -1, Range(0, len(text)))


def test_a_cleaned_record_is_assigned_the_only_possible_offset() -> None:
    assert cleaned("__c _e", "abcde") == Located((Run(0, 0),), (), (), 5)
    assert cleaned("a_c", "abc").runs == (Run(0, 0),)
    assert cleaned("_xc", "a.c").runs == (Run(0, 0),)
    assert cleaned("bc _b", "abcd").runs == (Run(0, 1), Run(2, 0))


def test_a_cleaned_record_is_not_found_twice() -> None:
    assert cleaned("__c _e a", "abcde").doubled == ()
    assert cleaned("__c _e c", "abcde").doubled == ((2, 3),)


@pytest.mark.parametrize(
    ("target", "text", "ordinals"),
    [("_c", "a.c", (0, 1)), ("ab_", "abc", (2, 3)), ("_c", "#.c", (0, 1))],
)
def test_the_offset_of_a_cleaned_record_is_not_guessed(target: str, text: str, ordinals: tuple[int, int]) -> None:
    """Another record may have been there, or the source may have lost what followed the batch's last record."""
    assert cleaned(target, text).open == (ordinals,)


def test_a_cleaned_record_beside_a_free_offset_does_not_halt_the_lane() -> None:
    """HALT. The source had already lost offset 1 when the lane built this batch. The target's cleaner has removed the
    copy of b since. The next record of the source after a was not that of the batch, and the order seemed wrong."""
    standing = [TargetBatch(0, ("a", None, "c"))]
    located = locate(standing, source("a.bc"), [], -1, Range(0, 4), LedgerAnswers(named=(0, 2, 3).__getitem__))
    assert located == Located((Run(0, 0), Run(1, 2)), (), (), 4)
    assert cleaned("a__d", "a.bcd").runs == (Run(0, 0), Run(1, 2))
    with pytest.raises(Unplaced, match="a different order"):
        found("ac", "a.bc")
    with pytest.raises(Unplaced, match="a different order"):
        cleaned("a_c", "a.bbc")


def test_the_offsets_of_adjacent_cleaned_records_are_not_guessed() -> None:
    """FALSE MAP. One of the two removed records may have been at offset 2, so the other one was a or b."""
    assert cleaned("__c", "ab.c").open == ((0, 2),)
    assert cleaned("a__d", "a.b.d").open == ((1, 3),)


def test_the_offset_of_a_record_beside_a_cleaned_one_is_not_guessed() -> None:
    with pytest.raises(Unplaced, match="the target no longer holds all records"):
        cleaned("_xd", "a..d")


def test_records_that_the_source_does_not_have_yet_are_still_to_be_copied() -> None:
    """The map names offset 3 for ordinal 2, but the source was read only up to offset 3."""
    standing = [TargetBatch(0, "xby")]
    located = locate(
        standing, source(".b."), [], -1, Range(0, 3), LedgerAnswers(lambda _: True, lambda ordinal: ordinal + 1)
    )
    assert (located.open, located.next_offset) == (((0, 1), (2, 3)), 3)


def test_a_confirmed_record_keeps_its_offset() -> None:
    """Offsets 1 and 3 were removed, and ordinal 1 is one of them."""
    standing = [TargetBatch(0, "a"), TargetBatch(1, "x"), TargetBatch(2, "e")]
    assert locate(standing, source("a...e"), [], -1, Range(0, 5), LedgerAnswers(is_whole=True)).open == ((1, 2),)
    offsets, confirmed = (0, 3, 4), [(1, 2)]
    ledger = LedgerAnswers(named=offsets.__getitem__, confirmed=confirmed)
    assert locate(standing, source("a...e"), [], -1, Range(0, 5), ledger).runs == (Run(0, 0), Run(1, 3))
    # The source has lost this record, or has another one at its offset by now.
    ledger = LedgerAnswers(lambda ordinal: ordinal == 1, offsets.__getitem__, 0, confirmed)
    assert locate(standing, source("a...e"), [], -1, Range(0, 5), ledger).open == ((1, 2),)
    ledger = LedgerAnswers(named=offsets.__getitem__, confirmed=confirmed, is_whole=True)
    located = locate(standing, source("a..ye"), [], -1, Range(0, 5), ledger)
    assert (located.open, located.missing) == (((1, 2),), ((3, 4),))


def test_the_furthest_of_open_ordinals_need_not_be_the_last_one() -> None:
    """LIE. Ordinals 1 and 2 were a hole that was mended, so they map to lower offsets than ordinal 0. The lane
    continued at offset 5, and recorded that offset 5 was deleted before it was copied."""
    offsets = (5, 3, 4)
    ledger = LedgerAnswers(lambda _: True, offsets.__getitem__)
    located = locate([TargetBatch(0, "xyz")], [], [], -1, Range(3, 7), ledger)
    assert (located.open, located.next_offset) == (((0, 3),), 6)


def test_what_the_ledger_explains_is_not_read_again() -> None:
    """LIE. Ordinals 2 and 3 are unknown. Nothing is left of the records from ordinal 4 on. The lane went back to the
    offsets of ordinals 2 and 3, and recorded that they were deleted before they were copied."""
    runs = Runs((Run(0, 0), Run(2, 8), Run(4, 20)))
    record = Record(source_runs=runs, holes=(HoleFound(LaneId("a.0.b"), 1, 2, 3, 4, 4),))
    assert [explained_until(record, first, []) for first in (0, 1, 2, 3, 4, 6)] == [0, 1, 8, 9, 20, 22]
    assert [explained_until(record, first, [TargetBatch(first, "x")]) for first in (0, 2, 3, 4, 6)] == [0, 0, 9, 10, 10]
    ledger = LedgerAnswers(explained=20)
    assert [locate([], [], [Range(0, 2)], 9, Range(0, end), ledger).next_offset for end in (30, 15)] == [20, 15]


def test_which_ordinals_may_be_open() -> None:
    hole = HoleFound(LaneId("a.0.b"), 1, 5, 6, 7, 7)
    assert [at for at in range(10) if open_ordinals(Record(holes=(hole,)))(at)] == [5, 6]
    assert [at for at in range(10) if open_ordinals(Record(regiven=8))(at)] == [8, 9]
    assert [at for at in range(10) if open_ordinals(Record(regiven=6, regiven_until=8))(at)] == [6, 7]
    # The source has lost offsets 4 to 6, and ordinal 7 follows from offset 4 on.
    lost = Record(source_runs=Runs([Run(0, 0), Run(7, 4)]), truncations=((7, 4),))
    assert [at for at in range(10) if open_ordinals(lost)(at)] == [4, 5, 6]


def test_records_of_later_epochs_have_replaced_the_lost_ones() -> None:
    """NEEDLESS HALT. The source has records of epoch 2 at offsets 6 to 8, and of epoch 3 at offset 9."""
    originals = [SourceBatch(2, 6, {}, epoch=1), SourceBatch(6, 9, {}, epoch=2), SourceBatch(9, 10, {}, epoch=3)]
    pieces = [(0, 0, 4), (4, 5, 3), (7, 8, 2)]
    assert [*replaced(((0, 0), (3, 1)), pieces, originals)] == [(2, 3), (5, 7), (7, 8), (8, 9)]
    assert [*replaced(((0, 0), (2, 1), (6, 2), (8, -1)), pieces, originals)] == [(5, 6)]
    assert [*replaced((), pieces, originals)] == []


def test_records_of_earlier_epochs_have_replaced_the_lost_ones() -> None:
    """NEEDLESS HALT. A replica without the records of epoch 3 has become the leader. It has records of epoch 2 at their
    offsets, and batches of which the epoch is not known."""
    originals = [SourceBatch(2, 6, {}, epoch=1), SourceBatch(6, 9, {}, epoch=2), SourceBatch(9, 10, {})]
    assert [*replaced(((0, 1), (4, 3)), [(0, 2, 8)], originals)] == [(4, 7)]


def test_where_to_search() -> None:
    runs = Runs((Run(0, 100), Run(10, 150), Run(20, 105), Run(22, 160)))
    record = Record(source_runs=runs, holes=(HoleFound(LaneId("a.0.b"), 1, 5, 6, 20, 22),))
    assert search_range(record, 15, 19) == Range(100, 1164)
    assert covered_below(record, 15) == [Range(100, 105), Range(107, 110), Range(150, 155)]
    assert covered_below(record, 0) == []


def test_the_search_includes_what_was_not_copied_before_the_first_record() -> None:
    """LOSS. The source has lost the marker at offset 102, and the records after it. It has another record at offset
    102. The search did not find that one, because it began at offset 103."""
    verdicts = [Verdict(90, 95, "skipped"), Verdict(95, 100, "compacted"), Verdict(100, 103, "control")]
    record = Record(source_runs=Runs([Run(0, 103)]), newest_verdicts=tuple(verdicts))
    assert search_range(record, 0, 1).start == 95
    assert search_range(record, 1500, 1501).start == 603


def test_the_search_includes_what_a_filter_excludes_before_the_first_record() -> None:
    """WRONG MAP. The outcome of the first batch was not known, and the filter excluded its records the second time. The
    batch was appended, but the search began after its records."""
    verdicts = [Verdict(100, 102, "filtered"), Verdict(102, 103, "control")]
    record = Record(source_runs=Runs([Run(0, 103)]), newest_verdicts=tuple(verdicts))
    assert search_range(record, 0, 1, is_filtered=True).start == 100
    assert search_range(record, 0, 1).start == 102


def test_the_work_grows_with_the_number_of_records_that_the_source_has_removed() -> None:
    """The source has removed the middle record of each batch, and each batch is followed by a marker."""

    def work(count: int) -> int:
        standing = [TargetBatch(3 * at, (("a", at), ("b", at), ("c", at))) for at in range(count)]
        originals: list[SourceBatch] = []
        for at in range(count):
            originals.append(SourceBatch(4 * at, 4 * at + 3, {4 * at: ("a", at), 4 * at + 2: ("c", at)}))
            originals.append(SourceBatch(4 * at + 3, 4 * at + 4, {}, "control"))
        holes = tuple(HoleFound(LaneId("a.0.b"), 1, 9 * count + at, 9 * count + at, 0, 1) for at in range(count))

        def play() -> None:
            opens = open_ordinals(Record(holes=holes))
            assert locate(standing, originals, [], -1, Range(0, 4 * count), LedgerAnswers(opens)).runs[1] == Run(3, 4)

        return calls_of(play)

    assert work(800) < 2.5 * work(400)


@pytest.mark.parametrize("text", ["a.##.b", "a#..#b", "a..b##", "#a..b", "a##..b"])
def test_removed_records_are_placed_around_batches_that_are_not_copied(text: str) -> None:
    located = locate([TargetBatch(0, "axyb")], source(text), [], -1, Range(0, len(text)))
    offsets = [
        offset
        for run, end in zip(located.runs, [*located.runs[1:], None], strict=True)
        for offset in range(run.offset, run.offset + (4 if end is None else end.ordinal) - run.ordinal)
    ]
    assert offsets == [at for at, each in enumerate(text) if each != "#"]


@pytest.mark.parametrize("is_filtered", [False, True])
def test_equal_records_keep_their_mapped_offsets(*, is_filtered: bool) -> None:
    """HALT. The source has two equal records, and each is in a batch of its own."""
    standing = [TargetBatch(0, "x"), TargetBatch(1, "x"), TargetBatch(2, "b")]
    ledger = LedgerAnswers(named=(0, 1, 2).__getitem__, is_filtered=is_filtered)
    assert locate(standing, source("xxb"), [], -1, Range(0, 3), ledger) == Located((Run(0, 0),), (), (), 3)
    for opens, named in ((lambda ordinal: ordinal == 1, (0, 1, 2)), (lambda _: False, (0, 2, 2))):
        with pytest.raises(Unplaced, match="the source holds the record of ordinal 1 more than once"):
            locate(
                standing,
                source("xxb"),
                [],
                -1,
                Range(0, 3),
                LedgerAnswers(opens, named.__getitem__, is_filtered=is_filtered),
            )


@pytest.mark.parametrize("is_filtered", [False, True])
@pytest.mark.parametrize(
    ("target", "text", "offsets", "is_timed"),
    [
        ("x", "..bx", (0,), False),  # LOSS: the record at offset 3 counted as copied
        ("x b x", "..bx", (1, 2, 3), True),  # LIE: offset 3 counted as doubled, and offset 1 as lost
        ("axbx", "a.bx", (0, 1, 2, 3), True),  # HALT: "a different order"
        ("a x b", "a.bxx", (0, 1, 2), True),  # HALT: "more than once"
        ("b x", "b.xx", (0, 1), False),
        ("bxx", "bxx.x", (0, 1, 2), True),
    ],
)
def test_equal_records_of_which_the_source_has_removed_some(
    target: str, text: str, offsets: tuple[int, ...], *, is_timed: bool, is_filtered: bool
) -> None:
    """The ledger knows which of several equal records was sent under an ordinal. The source may still have only another
    one of them. Records are equal if the target topic sets the timestamps, and the key and the value are repeated."""
    ledger = LedgerAnswers(named=offsets.__getitem__, is_filtered=is_filtered, is_timed=is_timed)
    standing, ordinal = list[TargetBatch](), 0
    for batch in target.split():
        standing.append(TargetBatch(ordinal, batch))
        ordinal += len(batch)
    located = locate(standing, source(text), [], -1, Range(0, len(text)), ledger)
    assert [Runs(located.runs).offset_of(at) for at in range(len(offsets))] == [*offsets]
    assert (located.doubled, located.missing, located.open) == ((), (), ())
    assert located.next_offset == offsets[-1] + 1


def test_a_record_whose_offset_in_the_ledger_is_wrong_is_found_by_its_content() -> None:
    """The ledger is wrong about records that occur only once, or about ordinals under which several were sent."""
    standing = [TargetBatch(0, "a"), TargetBatch(1, "x")]
    ledger = LedgerAnswers(named=(0, 1).__getitem__)
    assert locate(standing, source("a..x"), [], -1, Range(0, 4), ledger).runs == (Run(0, 0), Run(1, 3))
    ledger = LedgerAnswers(lambda at: at == 1, (0, 1).__getitem__, is_timed=False)
    assert locate(standing, source("a..x"), [], -1, Range(0, 4), ledger).runs == (Run(0, 0), Run(1, 3))


def test_cleaned_records_of_a_lane_with_a_filter_do_not_halt_it() -> None:
    """HALT. The target's cleaner has removed ordinals 0 and 2. The source still has the record of ordinal 0, and the
    filter has excluded b and e."""
    standing = [TargetBatch(0, (None, "c", None))]
    ledger = LedgerAnswers(named=(0, 2, 3).__getitem__, is_filtered=True)
    located = locate(standing, source("abc.e"), [], -1, Range(0, 5), ledger)
    assert (located.runs, located.open) == ((Run(1, 2),), ((0, 1),))
    assert (located.missing, located.next_offset) == (((0, 2),), 4), "their keys and the filter decide"


def test_cleaned_records_at_the_end_may_be_the_next_ones_of_the_source() -> None:
    """STALE VALUE. The ledger has too low offsets for the removed records at the end of a batch. They were b and c, but
    the lane went on with b, and did not look up whether another client has written newer values."""
    standing = [TargetBatch(0, ("a", None, None))]
    ledger = LedgerAnswers(named=(0, 1, 2).__getitem__)
    located = locate(standing, source("xyabcd"), [], -1, Range(0, 6), ledger)
    assert (located.open, located.missing, located.next_offset) == (((1, 3),), ((0, 2), (3, 5)), 5)
    located = locate(standing, source("xyab"), [], -1, Range(0, 4), ledger)
    assert (located.missing, located.next_offset) == (((0, 2), (3, 4)), 4)


def test_the_places_of_cleaned_records_are_between_their_neighbors() -> None:
    standing = [TargetBatch(0, (None, "b")), TargetBatch(2, ("c", None)), TargetBatch(4, "e"), TargetBatch(5, (None,))]
    ledger = LedgerAnswers(named=(0, 1, 2, 3, 4, 5).__getitem__)
    located = locate(standing, source("abcdefg"), [], -1, Range(0, 7), ledger)
    assert (located.open, located.missing) == (((3, 4), (5, 6)), ((3, 4), (5, 6)))
    assert (located.cleaned, located.next_offset) == (((3, 4), (5, 6)), 6)
