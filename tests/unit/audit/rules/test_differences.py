"""Kinds of differences and what explains them, by examples; batches that prove a range, and those that do not."""

from collections.abc import Mapping, Sequence

import msgspec
import pytest

from mirrord.audit.rules.audit_range import AuditRange, MapPiece
from mirrord.audit.rules.batch_compare import SeenBatch, compare_batches
from mirrord.audit.rules.ledger_audit import compare_ledger
from mirrord.audit.rules.record_compare import compare_records
from mirrord.audit.rules.results import Compared, Difference, DifferenceKind, Explained, Seen, Surroundings
from mirrord.kafka.protocol.record_batch import CODEC_MASK, LOG_APPEND_TIME, Header
from mirrord.ledger.facts.core import Reason, Verdict
from tests.fixtures.ledger import lane_id

OWN = 4
# Source offsets 100 to 109 are on the target from 10 on.
TEN = AuditRange(
    lane=lane_id(0),
    producer_id=OWN,
    first=0,
    end=10,
    source_start=100,
    source_end=110,
    target_start=10,
    target_end=20,
    pieces=(MapPiece(0, 100, 10, 10),),
)


def seen(start: int, letters: str, *, own: bool = True, times: Mapping[int, int] | None = None) -> list[Seen]:
    """A record for each letter except dots, which are offsets without one; its key is the letter in lower case."""
    return [
        Seen(start + at, letter.encode(), (times or {}).get(start + at, 0), letter.lower().encode(), is_own=own)
        for at, letter in enumerate(letters)
        if letter != "."
    ]


def compare(
    source: str | Sequence[Seen],
    target: str | Sequence[Seen],
    wanted: AuditRange = TEN,
    around: Surroundings | None = None,
) -> Compared:
    return compare_records(
        wanted,
        seen(wanted.source_start, source) if isinstance(source, str) else source,
        seen(wanted.target_start, target) if isinstance(target, str) else target,
        around or Surroundings(),
    )


def test_a_true_copy() -> None:
    assert compare("ABCDEFGHIJ", "ABCDEFGHIJ") == Compared(10)


@pytest.mark.parametrize(
    ("target", "differences"),
    [
        ("ABxDEFGHIJ", [Difference("altered", 102, 12)]),
        ("AB.DEFGHIJ", [Difference("missing", 102, 12)]),
        ("AB..EFGH..", [Difference("missing", 102, 12, 2), Difference("missing", 108, 18, 2)]),
        ("ABDCEFGHIJ", [Difference("reordered", 103, 12), Difference("reordered", 102, 13)]),
        ("GBCDEFAHIJ", [Difference("reordered", 106, 10), Difference("reordered", 100, 16)]),
        ("xyCDEFGHIJ", [Difference("altered", 100, 10, 2)]),
    ],
)
def test_a_kind_and_its_offsets(target: str, differences: list[Difference]) -> None:
    assert list(compare("ABCDEFGHIJ", target).differences) == differences


def test_one_record_is_there_twice_and_the_others_after_it_one_further() -> None:
    longer = msgspec.structs.replace(TEN, target_end=21)
    assert compare("ABCDEFGHIJ", "ABCCDEFGHIJ", longer).differences == (
        Difference("displaced", 103, 14, 7),
        Difference("duplicated", 102, 13),
    )


@pytest.mark.parametrize(("own", "kind"), [(True, "extra"), (False, "foreign")])
def test_what_the_map_does_not_know(own: bool, kind: DifferenceKind) -> None:
    holed = msgspec.structs.replace(TEN, target_end=21, pieces=(MapPiece(0, 100, 10, 4), MapPiece(4, 104, 15, 6)))
    target = [*seen(10, "ABCD"), *seen(14, "X", own=own), *seen(15, "EFGHIJ")]
    found = compare("ABCDEFGHIJ", target, holed)
    assert found.differences == (Difference(kind, None, 14),)
    target[4] = msgspec.structs.replace(target[4], content=b"B")
    assert compare("ABCDEFGHIJ", target, holed).differences == (Difference("duplicated", 101, 14),)


def test_a_time_counts_unless_the_target_has_its_own() -> None:
    other = seen(10, "ABCDEFGHIJ", times={13: 5})
    assert compare("ABCDEFGHIJ", other).differences == (Difference("altered", 103, 13),)
    appended = [msgspec.structs.replace(each, has_append_time=True) for each in other]
    assert compare("ABCDEFGHIJ", appended) == Compared(10)


def test_what_retention_took_is_explained() -> None:
    found = compare("ABCDEFGHIJ", ".....FGHIJ", around=Surroundings(target_log_start=15))
    assert found == Compared(5, (), (Explained("target-retention", "source", 100, 105),))
    found = compare("...DEFGHIJ", "ABCDEFGHIJ", around=Surroundings(source_log_start=103))
    assert found == Compared(7, (), (Explained("source-retention", "target", 10, 13),))
    # Records above the log start are missing all the same.
    found = compare("ABCDEFGHIJ", "......GHIJ", around=Surroundings(target_log_start=15))
    assert found.differences == (Difference("missing", 105, 15),)


def test_compaction_takes_records_with_a_key() -> None:
    """Whether it may have removed this one is judged by key (tests/unit/audit/rules/test_key_compare.py)."""
    compacting = Surroundings(target_compacted=True)
    found = compare("ABCDEFGHIJ", "AB.DEFGHIJ", around=compacting)
    assert found == Compared(9, (), (Explained("target-compaction", "source", 102, 103),))
    keyless = [msgspec.structs.replace(each, key=None) for each in seen(100, "ABCDEFGHIJ")]
    assert compare(keyless, "AB.DEFGHIJ", around=compacting).differences == (Difference("missing", 102, 12),)
    tombstone = [msgspec.structs.replace(each, is_tombstone=each.offset == 102) for each in seen(100, "ABCDEFGHIJ")]
    assert compare(tombstone, "AB.DEFGHIJ", around=compacting).differences == ()
    found = compare("AB.DEFGHIJ", "ABCDEFGHIJ", around=Surroundings(source_compacted=True))
    assert found == Compared(9, (), (Explained("source-compaction", "target", 12, 13),))
    assert compare("AB.DEFGHIJ", "ABCDEFGHIJ").differences == (Difference("extra", None, 12),)


def test_a_verdict_explains_what_was_not_copied() -> None:
    holed = msgspec.structs.replace(
        TEN, pieces=(MapPiece(0, 100, 10, 4), MapPiece(4, 106, 14, 4)), end=8, target_end=18
    )
    assert compare("ABCDEFGHIJ", "ABCDGHIJ", holed).differences == (Difference("missing", 104, None, 2),)
    with_verdict = msgspec.structs.replace(holed, verdicts=(Verdict(104, 106, "filtered"),))
    assert compare("ABCDEFGHIJ", "ABCDGHIJ", with_verdict) == Compared(
        8, (), (Explained("filtered", "source", 104, 106),)
    )


@pytest.mark.parametrize("reason", ["control", "compacted", "aborted"])
def test_a_record_is_there_whatever_a_verdict_says(reason: Reason) -> None:
    """According to each of these verdicts there is no record that a reader sees."""
    holed = msgspec.structs.replace(
        TEN, pieces=(MapPiece(0, 100, 10, 4),), end=4, target_end=14, verdicts=(Verdict(104, 110, reason),)
    )
    assert compare("ABCDEFGHIJ", "ABCD", holed).differences == (Difference("missing", 104, None, 6),)
    assert compare_batches(holed, SOURCE, COPY[:1]) is None
    assert compare("ABCD......", "ABCD", holed) == Compared(4)
    assert compare_batches(holed, SOURCE[:1], COPY[:1]) == Compared(4)


def test_a_record_may_be_there_again_for_a_reader_who_sees_more() -> None:
    holed = msgspec.structs.replace(TEN, pieces=(MapPiece(0, 100, 10, 4),), end=4, target_end=14)
    seeing: dict[Reason, Surroundings] = {
        "aborted": Surroundings(source_committed=False),
        "compacted": Surroundings(source_compacted=True),
    }
    for reason, around in seeing.items():
        with_verdict = msgspec.structs.replace(holed, verdicts=(Verdict(104, 110, reason),))
        found = compare("ABCDEFGHIJ", "ABCD", with_verdict, around)
        assert found == Compared(4, (), (Explained(reason, "source", 104, 110),))


def test_what_the_source_lost_and_uses_again_is_explained() -> None:
    again = msgspec.structs.replace(
        TEN,
        pieces=(MapPiece(0, 100, 10, 6), MapPiece(6, 106, 16, 4, truncated=True), MapPiece(10, 106, 20, 4)),
        target_end=24,
    )
    found = compare("ABCDEFGHIJ", "ABCDEFwxyzGHIJ", again)
    assert found == Compared(10, (), (Explained("truncated", "target", 16, 20),))


def batch(base: int, count: int, crc: int = 7, producer: int = -1, attributes: int = 0) -> SeenBatch:
    return SeenBatch(Header(base, 100, 0, 2, 0, attributes, count - 1, 5, 9, producer, 0, 0, count), crc)


SOURCE = [batch(100, 4, 1), batch(104, 6, 2)]
COPY = [batch(10, 4, 1, OWN), batch(14, 6, 2, OWN)]


def test_equal_batches_prove_a_range() -> None:
    assert compare_batches(TEN, SOURCE, COPY) == Compared(10)
    # Also those that reach into other ranges.
    part = msgspec.structs.replace(TEN, source_start=102, target_start=12, pieces=(MapPiece(2, 102, 12, 8),))
    assert compare_batches(part, SOURCE, COPY) == Compared(8)


@pytest.mark.parametrize(
    "copy",
    [
        COPY[:1],
        [*COPY, batch(20, 1, 3, OWN)],
        [COPY[0], batch(14, 6, 3, OWN)],
        [COPY[0], batch(14, 6, 2, 99)],
        [COPY[0], batch(14, 5, 2, OWN), batch(19, 1, 2, OWN)],
        [COPY[0], batch(14, 6, 2, OWN, attributes=CODEC_MASK & 3)],
        [COPY[0], None],
        [batch(14, 4, 1, OWN), batch(10, 6, 2, OWN)],
    ],
)
def test_anything_else_leaves_it_open(copy: list[SeenBatch | None]) -> None:
    assert compare_batches(TEN, SOURCE, copy) is None


def test_a_batch_without_records_is_passed_over() -> None:
    emptied = msgspec.structs.replace(SOURCE[1], header=SOURCE[1].header._replace(record_count=0))
    half = msgspec.structs.replace(TEN, pieces=(MapPiece(0, 100, 10, 4),), end=4, target_end=14)
    assert compare_batches(half, [SOURCE[0], emptied], COPY[:1]) == Compared(4)
    assert compare_batches(TEN, [SOURCE[0], emptied], COPY[:1]) is None


def test_batches_of_which_offsets_are_missing_leave_it_open() -> None:
    assert compare_batches(TEN, SOURCE[:1], COPY[:1]) is None
    holed = msgspec.structs.replace(SOURCE[1], header=SOURCE[1].header._replace(record_count=5))
    assert compare_batches(TEN, [SOURCE[0], holed], COPY) is None
    appended = batch(104, 6, 2, attributes=LOG_APPEND_TIME)
    assert compare_batches(TEN, [SOURCE[0], appended], COPY) is None
    cut = msgspec.structs.replace(TEN, pieces=(MapPiece(0, 100, 10, 10, truncated=True),))
    assert compare_batches(cut, SOURCE, COPY) is None


def test_a_batch_with_a_verdict_is_explained() -> None:
    holed = msgspec.structs.replace(TEN, pieces=(MapPiece(0, 100, 10, 4),), end=4, target_end=14)
    assert compare_batches(holed, SOURCE, COPY[:1]) is None
    with_verdict = msgspec.structs.replace(holed, verdicts=(Verdict(104, 110, "copied-from-target"),))
    explained = (Explained("copied-from-target", "source", 104, 110),)
    assert compare_batches(with_verdict, SOURCE, COPY[:1]) == Compared(4, (), explained)
    half = msgspec.structs.replace(holed, verdicts=(Verdict(104, 109, "copied-from-target"),))
    assert compare_batches(half, SOURCE, COPY[:1]) is None


def test_what_others_write_where_they_may_is_explained() -> None:
    holed = msgspec.structs.replace(TEN, target_end=22, pieces=(MapPiece(0, 100, 10, 4), MapPiece(4, 104, 16, 6)))
    copies = [batch(10, 4, 1, OWN), batch(14, 2, 9, 77), batch(16, 6, 2, OWN)]
    others = (Explained("other-writers", "target", 14, 16),)
    assert compare_batches(holed, SOURCE, copies) is None
    assert compare_batches(holed, SOURCE, copies, others_write=True) == Compared(10, (), others)
    target = [*seen(10, "ABCD"), *seen(14, "XY", own=False), *seen(16, "EFGHIJ")]
    around = Surroundings(others_write=True)
    assert compare("ABCDEFGHIJ", target, holed, around) == Compared(10, (), others)
    # In the place of a record they are not allowed.
    target[1] = msgspec.structs.replace(target[1], content=b"Z", is_own=False)
    assert compare("ABCDEFGHIJ", target, holed, around).differences == (Difference("altered", 101, 11),)


def test_what_was_brought_back_is_explained_at_every_level() -> None:
    """Source offset 104 was skipped, and is at target offset 17 since, followed by a marker."""
    pieces = (MapPiece(0, 100, 10, 4), MapPiece(4, 105, 14, 3), MapPiece(7, 108, 19, 2))
    left_out = (Verdict(104, 105, "rejected"),)
    holed = msgspec.structs.replace(TEN, target_end=21, end=9, pieces=pieces, verdicts=left_out)
    back = msgspec.structs.replace(holed, brought_back=(17,))
    rejected, returned = Explained("rejected", "source", 104, 105), Explained("brought-back", "target", 17, 18)
    target = [*seen(10, "ABCD"), *seen(14, "FGH"), *seen(17, "E", own=False), *seen(19, "IJ")]
    assert compare("ABCDEFGHIJ", target, holed).differences == (Difference("foreign", None, 17),)
    assert compare("ABCDEFGHIJ", target, back) == Compared(9, (), tuple(sorted((rejected, returned))))
    source = [batch(100, 4, 1), batch(104, 1, 2), batch(105, 3, 3), batch(108, 2, 4)]
    copies = [batch(10, 4, 1, OWN), batch(14, 3, 3, OWN), batch(17, 1, 2, 77), batch(19, 2, 4, OWN)]
    assert compare_batches(holed, source, copies) is None
    assert compare_batches(back, source, copies) == Compared(9, (), tuple(sorted((rejected, returned))))
    by_ledger = compare_ledger(back, 0, 21, verdicts_are_known=True)
    assert by_ledger == Compared(9, (), tuple(sorted((rejected, Explained("brought-back", "target", 17, 19)))))
    assert compare_ledger(holed, 0, 21, verdicts_are_known=True).differences == (Difference("foreign", None, 17, 2),)
    # In the place of a record of the map nothing was retried.
    taken = msgspec.structs.replace(holed, brought_back=(15,))
    assert compare("ABCDEFGHIJ", target, taken).differences == (Difference("foreign", None, 17),)
