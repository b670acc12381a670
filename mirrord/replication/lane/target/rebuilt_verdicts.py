"""Determines the verdicts on source offsets that the rebuilt offset map no longer contains.

The former map assigned ordinals to these source offsets, or may have done so: its last run has no end. The rebuilt map
does not contain these offsets, and no record is copied again from them. The ledger therefore has to record why they are
not copied.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from mirrord.kafka.protocol.sequence import nearest
from mirrord.ledger.facts.core import LOSSES, Reason, Verdict
from mirrord.model.intervals import Interval, joined, uncovered, within
from mirrord.model.runs import Runs
from mirrord.replication.lane.signals import LaneRecord, OwnBatch
from mirrord.replication.lane.source.copied_pieces import mapped
from mirrord.replication.lane.target.batch_relocation import covered_below
from mirrord.replication.lane.target.relocation_result import Located


def verdicts(record: LaneRecord, first: int, own: Sequence[OwnBatch], located: Located) -> list[Verdict]:
    """Return verdicts on the source offsets that the former map contains at or above the ordinal `first` and that the
    rebuilt map does not contain.

    If an offset is in a source batch that is not copied, its verdict is the reason why the batch is not copied. At all
    other offsets, the source has no record. The verdict on such an offset is "expired" below the log start offset of
    the source. Above it, the verdict is "compacted" if the topic may have been compacted, and "unexplained" otherwise.

    If the target has records whose source offsets could not be determined, these records may be at any of the offsets
    without a record. The verdict on such an offset is then not "expired" but "unexplained", because the record may have
    been copied. "compacted" holds in either case: the source has a newer record with the same key, so nothing is lost.
    """
    taken = joined([*located.missing, *covered_below(record, first), *placed(first, own, located)])
    left_out = _by_reason(located.left_out)
    found: list[Verdict] = []
    for whole in _formerly_mapped(record, first, located.next_offset):
        for part in uncovered(whole, within(whole, taken)):
            known = [Verdict(*each, reason) for reason, ranges in left_out.items() for each in within(part, ranges)]
            found += known
            for start, end in uncovered(part, [(each.start, each.end) for each in known]):
                found += _without_batch(start, end, located)
    return sorted(found, key=lambda each: each.start)


def _without_batch(start: int, end: int, located: Located) -> Iterator[Verdict]:
    """Yield the verdicts on source offsets that no source batch contains."""
    begin = min(max(start, located.source_start), end)
    if start < begin:
        yield Verdict(start, begin, "unexplained" if located.open else "expired")
    if begin < end:
        yield Verdict(begin, end, "compacted" if located.source_compacts else "unexplained")


class Loss(NamedTuple):
    """The loss that the verdicts on a rebuilt map report."""

    reason: Reason
    start: int
    end: int
    line: str


def loss(given: Iterable[Verdict]) -> Loss | None:
    """Return the loss that these verdicts report, or None if they report none. The reason of the loss is "expired" if
    all of the verdicts on lost records have this reason, and "unexplained" otherwise."""
    lost = [each for each in given if each.reason in LOSSES]
    if not lost:
        return None
    start, end = min(each.start for each in lost), max(each.end for each in lost)
    line = (
        f"the rebuilt offset map shows a loss: {sum(each.end - each.start for each in lost)} source offsets in "
        f"[{start}, {end}) are not in the map, and the source no longer has them"
    )
    return Loss("expired" if all(each.reason == "expired" for each in lost) else "unexplained", start, end, line)


def has_gaps(record: LaneRecord, first: int, own: Sequence[OwnBatch], located: Located) -> bool:
    """Return whether `verdicts` returns any verdict with the reason "compacted". Such a verdict is correct only if the
    source topic is compacted."""
    return any(each.reason == "compacted" for each in verdicts(record, first, own, located))


def _formerly_mapped(record: LaneRecord, first: int, end: int) -> list[Interval]:
    """Return the source offsets below `end` that the ledger's map contains at or above the ordinal `first`."""
    lowest = record.source_runs.first
    if lowest is None:
        return []
    pieces = mapped(record, max(first, lowest.ordinal), sys.maxsize)
    return joined((offset, min(offset + length, end)) for _, offset, length in pieces if offset < end)


def placed(first: int, own: Sequence[OwnBatch], located: Located) -> Iterator[Interval]:
    """Yield the source offsets of the lane's own batches in the target."""
    runs = Runs([*located.runs])
    begins = [nearest(batch.base_sequence, first) for batch in own]
    ordinals = joined((at, at + batch.count) for at, batch in zip(begins, own, strict=True) if at + batch.count > first)
    for start, end in ordinals:
        whole = (max(start, first), end)
        for piece in uncovered(whole, within(whole, located.open)):
            yield from ((at, at + length) for _, at, length in runs.between(piece[0], piece[1] - 1))


def _by_reason(left_out: Sequence[Verdict]) -> dict[Reason, list[Interval]]:
    """Return the source offsets for each reason. Adjacent batches are combined, because each of them would otherwise
    have its own verdict."""
    found: dict[Reason, list[Interval]] = {}
    for each in left_out:
        found.setdefault(each.reason, []).append((each.start, each.end))
    return {reason: joined(ranges) for reason, ranges in found.items()}
