"""Splits batches that the target does not accept unchanged: decides which records go into the same new batch, and which
records are skipped.

A batch that is too large is rebuilt as batches of half its size. A batch with a record that the target refuses is
rebuilt as batches with half as many records, until that record is alone in a batch. Each record keeps its ordinal, and
therefore its sequence, so a crash between two of the new batches does no harm.
"""

from bisect import bisect_left, bisect_right
from itertools import accumulate, pairwise
from typing import NamedTuple

import msgspec

from mirrord.kafka.protocol.record_batch import RAW_ATTRIBUTES
from mirrord.ledger.facts.core import Reason, Verdict
from mirrord.model.runs import Run
from mirrord.replication.lane.second_path import RebuildRequest, RebuiltBatch
from mirrord.replication.lane.source.left_out_ranges import LeftOut
from mirrord.replication.lane.source.recorded_epochs import epoch_at
from mirrord.replication.lane.state import Lane

FAR = 1 << 62


class BatchPiece(NamedTuple):
    """The next records of a batch: at most `most` records with source offsets below `end`. If `left_out` is set, the
    range up to `end` is skipped."""

    end: int
    most: int
    left_out: Reason | None = None


def bounds(lane: Lane) -> tuple[int, int, int, int]:
    """Return the limits for batches that can be copied unchanged: an ordinal, a source offset, a size in bytes, and the
    attributes that such a batch must not have.

    A run that is copied again ends where the next run in `lane.plan` begins, even if that is in the middle of a batch.
    """
    stop = lane.plan[0].ordinal if lane.plan else FAR
    if lane.has_policies:
        stop = -1  # no batch is copied unchanged
    return stop, whole_until(lane, lane.position), lane.refusal.largest, rebuild_attributes(lane)


def rebuild_attributes(lane: Lane) -> int:
    """Return the attribute bits that cause a batch to be rebuilt.

    A codec may share a bit with another codec that the target refuses. In that case, batches with the first codec are
    also rebuilt, but they keep their codec.
    """
    found = ~RAW_ATTRIBUTES
    for codec in lane.refusal.refused_codecs:
        found |= codec
    return found


def why_rebuilt(base: int, position: int, count: int, last_delta: int, attributes: int, strange: int) -> str:
    """Return why a batch is not copied unchanged, as a word for the status. The arguments are those of the batch, the
    lane's position, and the attributes that such a batch must not have."""
    if base < position:
        return "inside-batch"
    if count != last_delta + 1:
        return "holes"
    if attributes & ~RAW_ATTRIBUTES:
        return "attributes"
    return "codec" if attributes & strange else "split"


def whole_until(lane: Lane, position: int) -> int:
    """Return the source offset up to which batches from `position` on can be copied unchanged. The records after that
    offset have to be split or skipped."""
    first = FAR
    if lane.refusal.split is not None and position < lane.refusal.split.end:
        first = max(lane.refusal.split.start, position)
    for out in lane.left_out:
        if position < out.end:
            return min(first, max(out.start, position))
    return first


def next_piece(lane: Lane, position: int, next_offset: int) -> BatchPiece:
    """Return the next records to copy or skip, starting at `position`, in a batch that ends before `next_offset`. The
    leader epoch of the batch is `lane.epoch`."""
    limit = next_offset
    for out in lane.left_out:
        if not out.is_about(lane.epoch):
            continue
        if out.start <= position < out.end:
            return BatchPiece(min(out.end, next_offset), 0, out.reason)
        if position < out.start:
            limit = min(limit, out.start)
            break
    cut = lane.refusal.split
    if cut is None or position >= cut.end:
        return BatchPiece(limit, FAR)
    if position < cut.start:
        return BatchPiece(min(limit, cut.start), FAR)
    return BatchPiece(min(limit, cut.end), cut.most)


def left_out_here(lane: Lane) -> LeftOut | None:
    """Return the range to skip that contains the lane's position, or None if there is none.

    If the source has lost the records that a decision is about, the lane reads the ones in their place. The ledger may
    already have the epoch of the next one. If not, the epoch before the position counts, because the epochs of a log
    ascend."""
    here = (each for each in lane.left_out if each.start <= lane.position < each.end)
    known = epoch_at(lane.history.expected_epochs, lane.next_ordinal)
    return next((each for each in here if each.is_about(known) and not 0 <= each.latest < lane.epoch), None)


def epoch_before(lane: Lane, end: int) -> int:
    """Return the leader epoch of the source record before the offset `end`, if the target has refused this record. The
    result is -1 if it has not, or if the epoch is not known."""
    parked = lane.record.quarantine if lane.record is not None else ()
    return next((each.epoch for each in parked if each.end == end and each.skipped is not None), -1)


class Rest(NamedTuple):
    """The records that still have to be copied again, excluding those that are skipped."""

    runs: list[Run]
    pieces: list[tuple[int, int, int]]
    """Triples (ordinal, former ordinal, length) for the records of `runs`."""
    gone: list[Verdict]
    """The ranges of source offsets that are skipped."""


def without_left_out(lane: Lane) -> Rest:
    """Return the records from the lane's position onward that still have to be copied again. Ranges that the lane skips
    are excluded."""
    begin = Run(lane.next_ordinal, lane.position)
    runs: list[Run] = []
    pieces: list[tuple[int, int, int]] = []
    gone: list[Verdict] = []
    ordinal = begin.ordinal
    reach = [*accumulate((out.end for out in lane.left_out), max)]
    for run, following in pairwise((begin, *lane.plan)):
        offset, end = run.offset, run.offset + following.ordinal - run.ordinal
        first = bisect_right(reach, offset)
        behind = bisect_left(lane.left_out, end, lo=first, key=_start)
        for out in [*lane.left_out[first:behind], LeftOut(end, end, "rejected")]:
            if out.start < end and offset < out.end:
                if not out.is_about(_planned_epoch(lane, run, max(out.start, offset))):
                    continue
                gone.append(Verdict(max(out.start, offset), min(out.end, end), out.reason))
            kept = max(min(out.start, end) - offset, 0)
            if kept:
                runs.append(Run(ordinal, offset))
                pieces.append((ordinal, run.ordinal + offset - run.offset, kept))
                ordinal += kept
            offset = max(offset, min(out.end, end))
    offset = lane.plan[-1].offset
    for out in lane.left_out:
        if out.start <= offset < out.end and out.latest < 0:
            gone.append(Verdict(offset, out.end, out.reason))
            offset = out.end
    return Rest([*runs, Run(ordinal, offset)], [*pieces, (ordinal, lane.plan[-1].ordinal, 1)], gone)


def _start(out: LeftOut) -> int:
    return out.start


def _planned_epoch(lane: Lane, run: Run, offset: int) -> int:
    """Return the leader epoch of the record at this offset, which is to be copied again as part of the run, or -1 if it
    is not known."""
    epochs = lane.record.epochs if lane.record is not None else ()
    return epoch_at(epochs, run.ordinal + offset - run.offset)


def rebuild(lane: Lane, wanted: RebuildRequest) -> RebuiltBatch | None:
    """Rebuild a batch on the second path, with no more records than fit into the size that the target is known to
    accept.

    Raises ValueError if the source batch cannot be read.
    """
    if lane.refusal.refused_codecs:
        wanted = msgspec.structs.replace(wanted, refused_codecs=lane.refusal.refused_codecs)
    rebuilt = lane.rebuild(wanted)
    if rebuilt is None:
        return None
    is_cut = False
    while len(rebuilt.data) > lane.refusal.largest and (count := sum(length for _, length in rebuilt.pieces)) > 1:
        fits = count * lane.refusal.largest // len(rebuilt.data)
        # If the records had the same size, as many as `fits` would be right. Each attempt reads the whole source batch,
        # so after a wrong estimate, at most half as many are tried.
        most = count // 2 if is_cut else count - 1
        is_cut = True
        fewer = lane.rebuild(msgspec.structs.replace(wanted, most=max(1, min(fits, most))))
        if fewer is None:
            break
        rebuilt = fewer
    return msgspec.structs.replace(rebuilt, is_cut=is_cut) if is_cut else rebuilt
