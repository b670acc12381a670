"""Finds out what the target really holds: determines the source offsets of the lane's own batches from the contents of
the records.

These batches may come from different holders that read the source at different times. Between these times, the log
cleaner may have removed records from the source. Even so, the records of a batch are consecutive in the source, apart
from those that were removed from the source later. A record that occurs only once in the source shows where the whole
batch belongs. The source offsets of the other records follow from their order.

A record that the source no longer has, or that the target's log cleaner has removed, is assigned a source offset (it is
"placed") only if exactly one offset is possible. Nothing is guessed: records that cannot be placed are reported.
"""

import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import pairwise

from mirrord.ledger.facts.core import Reason, Verdict
from mirrord.model.intervals import Interval, contain, joined, ranges
from mirrord.model.runs import Runs
from mirrord.replication.lane.signals import LaneRecord
from mirrord.replication.lane.source.copied_pieces import mapped as standing_pieces
from mirrord.replication.lane.source.last_copied import judged_from
from mirrord.replication.lane.source.record_search import (
    NO_LEDGER,
    LedgerAnswers,
    Range,
    SourceBatch,
    SourceRecords,
    TargetBatch,
    Unplaced,
    search,
)
from mirrord.replication.lane.source.recorded_epochs import Epochs, is_of_another_epoch, is_truncated
from mirrord.replication.lane.target.relocation_result import Located
from mirrord.replication.lane.target.target_scan import but_not_void

_PASSED_OVER: tuple[Reason, ...] = ("control", "aborted", "compacted", "copied-from-target", "unexplained")
"""The reasons for which a lane does not copy records, apart from decisions and retention."""
_DECIDED: tuple[Reason, ...] = ("filtered", "rejected")
LOOK_AROUND = 1_000
"""Number of records that are searched before and after the mapped offsets. The records that two holders read from the
source are expected to differ by at most this number."""


def search_range(record: LaneRecord, first: int, last: int, *, is_filtered: bool = False) -> Range:
    """Return the range of source offsets that can contain the records of the ordinals [first, last] and all records
    that are still to be copied again.

    If the range begins with the first record that the lane has copied, it also includes the records before it that were
    not copied. The source may have lost them in an election, and may have others there. With a filter (`is_filtered`),
    these include the records that are excluded: the filter may have made another decision when a batch was sent whose
    outcome was not known.
    """
    runs = record.source_runs
    lowest = runs.at(0).ordinal
    around = list(runs.between(max(first - LOOK_AROUND, lowest), max(last, first)))
    planned = [run.offset for run in runs.beginning_in(first, sys.maxsize)]
    start = min([offset for _, offset, _ in around] + planned)
    if start == runs.at(0).offset:
        start = judged_from(record, start, (*_PASSED_OVER, *_DECIDED) if is_filtered else _PASSED_OVER)
    end = max([offset + length for _, offset, length in around] + planned)
    return Range(max(start, 0), end + max(last - first, 0) + LOOK_AROUND)


def covered_below(record: LaneRecord, first: int) -> list[Range]:
    """Return the source offsets to which the ordinals below `first` map, as ascending ranges that are separated by
    gaps."""
    runs = record.source_runs
    if first <= runs.at(0).ordinal:
        return []
    pieces = but_not_void(record.holes, runs.at(0).ordinal, first - 1)
    merged: list[Range] = []
    for start, length in sorted((at, length) for piece in pieces for _, at, length in standing_pieces(record, *piece)):
        if merged and merged[-1].end >= start:
            merged[-1] = Range(merged[-1].start, max(merged[-1].end, start + length))
        else:
            merged.append(Range(start, start + length))
    return merged


def last_below(record: LaneRecord, first: int) -> int:
    """Return the source offset of the ordinal before `first`, or the offset before the lane's first record."""
    runs = record.source_runs
    known = runs.offset_of(first - 1)
    if known is None:
        return runs.at(0).offset - 1
    return min([known, *(start - 1 for ordinal, start in record.truncations if first <= ordinal)])


def explained_until(record: LaneRecord, first: int, standing: Sequence[TargetBatch]) -> int:
    """Return a source offset below which the ledger explains everything that the source no longer has, so the lane need
    not read these offsets again to record a verdict. If it did, the verdict would replace those that the ledger has.

    The offsets of lower ordinals whose records a rebuild could not determine (`HoleFound.is_open`) have the verdict
    "unexplained". If the target has no record of the ordinal `first` or a higher one, all offsets below that of this
    ordinal have a verdict or belong to lower ordinals.
    """
    runs = record.source_runs
    unknown = [(hole.first, min(hole.last, first - 1)) for hole in record.holes if hole.is_open and hole.first < first]
    ends = [offset + length for each in unknown for _, offset, length in runs.between(*each)]
    return max([*ends, (runs.offset_of(first) or 0) if not standing else 0], default=0)


def open_ordinals(record: LaneRecord, unread_from: int = -1) -> Callable[[int], bool]:
    """Return a function that checks one ordinal: it returns True if more than one record may have been sent under the
    ordinal. If the source no longer has the record of such an ordinal, it is unknown which record the ordinal belongs
    to. The ordinals include those from `unread_from` onward (see `AskRebuild`). The function also returns True if,
    according to the ledger, the source has lost the record of the ordinal in an election. The source may have other
    records at its offset, so the rebuilt map must not contain the lost one."""
    unread = unread_from if unread_from >= 0 else sys.maxsize
    runs, cuts = record.source_runs, record.truncations
    holes = joined((hole.first, hole.last + 1) for hole in record.holes if hole.first <= hole.last)
    regiven = record.regiven if record.regiven >= 0 else sys.maxsize
    until = record.regiven_until if record.regiven_until >= 0 else sys.maxsize

    def is_lost(ordinal: int) -> bool:
        offset = runs.offset_of(ordinal) if any(ordinal < beyond for beyond, _ in cuts) else None
        return offset is not None and is_truncated(record, ordinal, offset)

    return lambda ordinal: (
        regiven <= ordinal < until or ordinal >= unread or contain(holes, ordinal) or is_lost(ordinal)
    )


def replaced(
    epochs: Epochs, pieces: Sequence[tuple[int, int, int]], originals: Sequence[SourceBatch]
) -> Iterator[Interval]:
    """Yield the ordinals [start, end) whose records the source has lost in an election: at the offsets of these records
    it has batches of another leader epoch. The ledger need not say so yet.

    `pieces` are (ordinal, source offset, length), and `epochs` are the leader epochs of their records, according to the
    ledger.
    """
    for ordinal, offset, length in pieces:
        for each in originals[bisect_right(originals, offset, key=lambda batch: batch.end) :]:
            if each.start >= offset + length:
                break
            start, end = max(each.start, offset), min(each.end, offset + length)
            parts = {start, end, *(offset + at - ordinal for at, _ in epochs if start < offset + at - ordinal < end)}
            for begin, behind in pairwise(sorted(parts)):
                if is_of_another_epoch(epochs, ordinal + begin - offset, each.epoch):
                    yield ordinal + begin - offset, ordinal + behind - offset


def locate(
    standing: Sequence[TargetBatch],
    originals: Sequence[SourceBatch],
    covered: Sequence[Range],
    before: int,
    searched: Range,
    ledger: LedgerAnswers = NO_LEDGER,
) -> Located:
    """Return the source offset of each ordinal. Also return the source offsets of records that are in the target twice,
    and of records that the target lacks.

    `standing` contains the lane's own batches in the order of the target log. `originals` contains all source batches
    in `searched`. `covered` contains the source offsets of lower ordinals, and `before` is the offset of the highest of
    these ordinals. Raises `Unplaced` if the offsets cannot be determined.
    """
    source = SourceRecords(originals, searched, standing, is_timed=ledger.is_timed)
    ordinals = [batch.first + at for batch in standing for at in range(len(batch.contents))]
    found = [search(source, batch, ledger) for batch in standing]
    offsets = _fill(source, standing, found, before, ledger)
    placed = [(ordinal, offset) for ordinal, offset in zip(ordinals, offsets, strict=True) if offset is not None]
    counts = Counter(offset for _, offset in placed)
    removed = {batch.first + at for batch in standing for at, content in enumerate(batch.contents) if content is None}
    there = Counter(offset for ordinal, offset in placed if ordinal not in removed)
    twice = {offset for offset, count in there.items() if count > 1 or contain(covered, offset)}
    left = ranges(ordinal for ordinal, offset in zip(ordinals, offsets, strict=True) if offset is None)
    # An undetermined record may be any source record up to `furthest`. Source records up to that offset that were never
    # copied therefore count as missing. A run may also contain offsets that the source does not have yet. The records
    # at those offsets were never read.
    open_offsets = (ledger.named(ordinal) or 0 for start, end in left for ordinal in range(start, end))
    furthest = min(max(ledger.explained - 1, max(open_offsets, default=-1)), searched.end - 1)
    top = max(max(counts, default=-1), covered[-1].end - 1 if covered else -1, searched.start - 1, furthest)
    following = bisect_right(source.offsets, top)
    is_removed = [ordinal in removed and not ledger.opens(ordinal) for ordinal in ordinals]
    last_cleaned = _last_cleaned(source, is_removed, offsets, before)
    top = max([top, last_cleaned, *source.offsets[following : following + ledger.removed]])
    lacking = [offset for offset in source.offsets if offset <= top and offset not in counts]
    missing = ranges(offset for offset in lacking if not contain(covered, offset))
    doubled = ranges(sorted(twice))
    runs = Runs()
    for ordinal, offset in placed:
        runs.add(ordinal, offset)
    left_out = tuple(Verdict(each.start, each.end, each.left_out) for each in originals if each.left_out is not None)
    cleaned = joined(_cleaned([ordinal in removed for ordinal in ordinals], offsets, before, top + 1))
    epochs = _epochs(originals)
    return Located(tuple(runs), doubled, missing, top + 1, epochs, left, left_out, cleaned=tuple(cleaned))


def _cleaned(removed: Sequence[bool], offsets: Sequence[int | None], before: int, end: int) -> Iterator[Interval]:
    """Yield the source offsets between the placed records around each gap that contains `removed` records. If no record
    follows the gap, they end before `end`."""
    edges = [(-1, before), *((at, offset) for at, offset in enumerate(offsets) if offset is not None)]
    for (left, after), (right, following) in pairwise([*edges, (len(offsets), end)]):
        if after + 1 < following and any(removed[left + 1 : right]):
            yield after + 1, following


def _last_cleaned(source: SourceRecords, removed: Sequence[bool], offsets: Sequence[int | None], before: int) -> int:
    """Return the highest source offset at which the last of the `removed` records may have been, or -1 if the record is
    not in a gap at the end. If the offsets in the ledger are too low, the records of this gap may be the next ones that
    the source has."""
    placed = [at for at, offset in enumerate(offsets) if offset is not None]
    left, after = (placed[-1], offsets[placed[-1]] or 0) if placed else (-1, before)
    if not any(removed[left + 1 :]):
        return -1
    at = bisect_right(source.offsets, after)
    following = source.offsets[at : at + len(offsets) - left - 1]
    return following[-1] if following else -1


def _epochs(originals: Sequence[SourceBatch]) -> tuple[tuple[int, int], ...]:
    """Return each leader epoch together with the source offset at which it begins. A removed record is assigned the
    epoch of the batch that follows it. If no batch follows, the epoch is unknown (-1)."""
    found: list[tuple[int, int]] = []
    start = 0
    for each in originals:
        if each.epoch != (found[-1][1] if found else -1):
            found.append((start, each.epoch))
        start = each.end
    return (*found, (start, -1)) if found and found[-1][1] >= 0 else tuple(found)


def _fill(
    source: SourceRecords,
    standing: Sequence[TargetBatch],
    found: Sequence[Sequence[int | None]],
    before: int,
    ledger: LedgerAnswers,
) -> list[int | None]:
    """Assign offsets to the records that were removed from the source. If there are exactly as many free offsets as
    records, these are their offsets. There are more if the cleaner of the source had removed other records
    before the lane read this part of the log. If the target's cleaner has removed some of the records as well,
    nothing shows their order. In both cases, the records keep the offsets that the ledger has for them (see
    `_named_between`). The result contains None for ordinals under which more than one record may have been
    sent. If the logs contradict the offsets in the ledger, the result contains None for each of the ordinals,
    provided that the source may have had these records and no longer has them (`SourceRecords.is_nowhere`);
    otherwise, `Unplaced` is raised. If the source still has records at the offsets of removed ones, the result
    contains None only for these. What the source still has near these offsets counts as missing. In a compacted
    target, its keys are looked up: the cleaner has removed a record only if the target has a newer one with the
    same key."""
    ordinals = [batch.first + at for batch in standing for at in range(len(batch.contents))]
    contents = [each for batch in standing for each in batch.contents]
    removed = [each is None for each in contents]
    flat = [offset for batch in found for offset in batch]
    batches = [number for number, batch in enumerate(found) for _ in batch]
    edges = [(-1, before), *((at, offset) for at, offset in enumerate(flat) if offset is not None), (len(flat), -1)]
    offsets: list[int | None] = []
    for (left, after), (right, following) in pairwise(edges):
        gap = range(left + 1, right)
        is_open = any(ledger.opens(ordinals[at]) for at in gap)
        cleaned = {ordinals[at] for at in gap if removed[at]}
        named, why = _named_between(source, ordinals[left + 1 : right], cleaned, after, following, ledger)
        if cleaned:
            if named is None and _contradicts(source, [ordinals[at] for at in gap if not removed[at]], ledger):
                raise Unplaced(f"the target no longer holds all records of {_named(ordinals, gap)}, and {why}")
            offsets += named or [None] * len(gap)
        elif is_open:
            offsets += named or [None] * len(gap)
        elif gap:
            within = (
                left >= 0 and batches[left] == batches[right - 1],
                right < len(flat) and batches[right] == batches[left + 1],
            )
            # A filter may have excluded the records at free offsets.
            places = None if ledger.is_filtered else source.places(len(gap), after, following, within)
            if not (places or named or source.is_nowhere((contents[at] for at in gap), ledger, after, following)):
                raise Unplaced(
                    f"it is not known where the source has or had the records of {_named(ordinals, gap)}: {why}"
                )
            offsets += places or named or [None] * len(gap)
        if right < len(flat):
            offsets.append(following)
    return offsets


def _named(ordinals: Sequence[int], gap: range) -> str:
    return f"ordinals {ordinals[gap.start]} to {ordinals[gap.stop - 1]}"


def _contradicts(source: SourceRecords, ordinals: Sequence[int], ledger: LedgerAnswers) -> bool:
    """Return whether the source has a record or a batch that is not copied at the offset of one of these ordinals in
    the ledger, or the ledger has no offset for it. The target holds the records of these ordinals, and the source does
    not. More than one record may have been sent under an ordinal for which `LedgerAnswers.opens` is true."""
    for ordinal in ordinals:
        offset = ledger.named(ordinal)
        if not ledger.opens(ordinal) and (offset is None or source.has(offset) or contain(source.uncopied, offset)):
            return True
    return False


def _named_between(
    source: SourceRecords,
    ordinals: Sequence[int],
    cleaned: Collection[int],
    after: int,
    following: int,
    ledger: LedgerAnswers,
) -> tuple[list[int | None] | None, str]:
    """Return the source offsets to which the ledger maps these ordinals, whose records the source no longer has.
    `after` and `following` are the offsets of the records before and after them, and `following` is -1 if no record
    follows. The target's cleaner has removed the records of the ordinals `cleaned`. If the source has a record at the
    offset of such an ordinal, this may be the removed one or another one, and the result contains None for the ordinal.
    It also contains None for ordinals under which more than one record may have been sent (`LedgerAnswers.opens`).

    Return None and the reason if the offsets are not between those of the records around them, or if the source has
    another record or a batch that is not copied at one of them: the ledger is then wrong about these ordinals.
    """
    offsets: list[int | None] = []
    last = after
    end = following if following >= 0 else source.searched.end
    for ordinal in ordinals:
        if ledger.opens(ordinal):
            offsets.append(None)
            continue
        offset = ledger.named(ordinal)
        if offset is None:
            return None, f"the ledger has no source offset for ordinal {ordinal}"
        if not last < offset < end:
            return None, f"source offset {offset} of ordinal {ordinal} in the ledger is not between {last} and {end}"
        is_there = source.has(offset)
        if (is_there and ordinal not in cleaned) or contain(source.uncopied, offset):
            return None, f"the source has another record at offset {offset}, which the ledger has for ordinal {ordinal}"
        offsets.append(None if is_there else offset)
        last = offset
    return offsets, ""
