"""Turns a fetched chunk into batches that are ready to be sent: assigns ordinals, records runs and verdicts, and
chooses between the raw path and the second path.

This is the hot path. On the raw path, a batch takes one call to unpack its 61-byte header, a few integer comparisons,
one in-place patch that derives the new checksum from the old one (`mirrord.kafka.protocol.record_batch.patch`), and one
`Batch` object. Record bytes are neither read nor copied. Groups of messages in formats 0 and 1 take the second path.
"""

from bisect import bisect_right
from collections import deque
from heapq import heapify, heappop
from typing import NamedTuple

import msgspec

from mirrord.kafka.protocol.errors import Malformed
from mirrord.kafka.protocol.legacy_messages import group, is_old
from mirrord.kafka.protocol.record_batch import (
    CONTROL,
    HEADER,
    HEADER_LENGTH,
    TRANSACTIONAL,
    HeaderTuple,
    patch,
)
from mirrord.ledger.facts.core import Reason, SourceRun, Verdict
from mirrord.model.runs import Run
from mirrord.replication.lane.correlation import append, ask
from mirrord.replication.lane.intake_stops import Diverged, Early, Unfinished, Unreadable, Vanished
from mirrord.replication.lane.lane_report import resume_position
from mirrord.replication.lane.second_path import ALL, PolicyRefused, Postponed, RebuildRequest
from mirrord.replication.lane.signals import AskDivergence, Batch, Chunk, Effects, FetchFrom
from mirrord.replication.lane.source import batch_splitting, last_copied, offset_gaps, source_epochs
from mirrord.replication.lane.source.batch_splitting import why_rebuilt
from mirrord.replication.lane.source.loop_detection import BatchOrigin, Doubt
from mirrord.replication.lane.source.next_declared import declare
from mirrord.replication.lane.state import NO_VERDICTS, Lane
from mirrord.replication.lane.target import hole_repair, in_doubt, position_rewind, unconfirmed_limit

_MARKED = CONTROL | TRANSACTIONAL
_GONE: tuple[Reason, ...] = ("compacted", "unexplained")
SEQUENCE_MASK = 0x7FFFFFFF
"""Sequences are ordinals modulo 2^31: 2^31-1 is followed by 0 (Kafka's DefaultRecordBatch.incrementSequence)."""


def take(lane: Lane, chunk: Chunk) -> tuple[Effects, Unreadable | None]:
    """Turn a chunk's batches into batches that are ready to be sent, up to the first one that cannot be read now. Also
    return the reason why that batch cannot be read, or None if all batches can be read."""
    runs: list[Run] = []
    unreadable = None
    aborts = _Aborts([(first, producer) for producer, first in chunk.aborted], set())
    heapify(aborts.ahead)
    at, behind = -1, chunk.start
    try:
        while behind > at:
            at = _walk(lane, chunk, behind, runs, aborts)
            behind = _walk_old(lane, runs, chunk.buffer, at, chunk.end)
    except Unreadable as fault:
        unreadable = fault
        if isinstance(fault, Unfinished):
            fault.keep(chunk, *aborts)
    lane.seen.reach(lane.position)
    # A verdict is recorded with the run that follows it, so that one fact covers the gap and the records after it. If
    # the ledger already contains later runs that record decisions of a filter, these runs must not be superseded.
    is_decided = lane.has_policies and lane.declared >= 0
    open_ended = not lane.plan and not is_decided and lane.next_ordinal >= lane.late_writes.in_doubt_below
    if open_ended and lane.skipped and (_are_many(lane, runs) or _ends_in_marker(lane, chunk)):
        _begin_run(lane, runs, lane.position)
    return _intend(lane, runs), unreadable


def _are_many(lane: Lane, runs: list[Run]) -> bool:
    """Return whether enough offsets have been skipped since the last copied record to record the position at once."""
    return not runs and sum(each.end - each.start for each in lane.skipped) >= lane.limits.skipped_offsets_noted


def _ends_in_marker(lane: Lane, chunk: Chunk) -> bool:
    """Return whether the chunk ends with a transaction marker after which there is nothing to read from the source yet.
    The next record most likely follows the marker directly. If a run that begins there is recorded now, the record can
    be sent without waiting for the ledger. If that record turns out to have a different offset, its own run supersedes
    this one. Between two records, the result is true only once, even if there are several markers."""
    end = chunk.last_stable if lane.read_committed and chunk.last_stable >= 0 else chunk.high_watermark
    last = lane.skipped[-1]
    is_end = last.reason == "control" and last.end == lane.position >= end and lane.declared < 0
    return is_end and (lane.open_run is None or lane.open_run.ordinal < lane.next_ordinal)


def want_more(lane: Lane) -> Effects:
    """Request the next chunk if there is room for it and no request is open."""
    if lane.fetching or lane.blocked is not None or lane.buffered_bytes >= lane.reach.bytes:
        return []
    if lane.origin.doubt is not None or lane.gap.offsets is not None or unconfirmed_limit.is_over(lane):
        return []
    if lane.plan and not lane.history.source_confirmed:
        return assure(lane)
    lane.fetching = True
    return [FetchFrom(ask(lane), lane.round, lane.position, lane.epoch)]


def assure(lane: Lane) -> Effects:
    """Ask whether the source still has all records that the lane has copied. While the lane is copying some of these
    records again, it fetches only those, and the fetches do not show whether the source has lost any records after
    them. A fetch without an epoch does not show either whether it has lost any records before them."""
    if lane.history.divergence_question in lane.questions:
        return []
    known = last_copied.besides_plan(lane)
    if known is None:
        lane.history.source_confirmed = True
        return want_more(lane)
    lane.history.divergence_question = ask(lane)
    return [AskDivergence(lane.history.divergence_question, *known)]


def leap(lane: Lane, to: int, reason: Reason, *, expired_below: int = 0, epoch: int = -1) -> Effects:
    """Continue at a later source offset, and record at once why the offsets before it are not copied. The source has
    deleted the records below the offset `expired_below`. `epoch` is that of the record before `to`, if it is known."""
    runs, gone = list[Run](), max(min(expired_below, to), lane.position)
    if lane.position < gone:
        _skip(lane, lane.position, gone, "expired")
    if gone < to:
        _skip(lane, gone, to, reason)
    source_epochs.leap(lane, to, epoch)
    _begin_run(lane, runs, to)
    return _intend(lane, runs)


def leave_out(lane: Lane) -> Effects:
    """If the position is in a range to skip, continue after the range without reading it, because the source may be
    unable to return it. If the range was to be copied again, record the new ordinals of the records after the range."""
    if not lane.plan:
        out = batch_splitting.left_out_here(lane)
        epoch = -1 if out is None else batch_splitting.epoch_before(lane, out.end)
        return [] if out is None else leap(lane, out.end, out.reason, epoch=epoch)
    runs, pieces, gone = batch_splitting.without_left_out(lane)
    if not gone:
        return []
    lane.plan = deque(runs[1:])
    lane.open_run, lane.position = runs[0], runs[0].offset
    lane.epoch = lane.seen.go_to(lane.position)
    details = (tuple(gone), source_epochs.epochs_again(lane, pieces), in_doubt.assign(lane, runs))
    rewound = position_rewind.rewound_by(lane, runs, resume_position(lane))
    effect = append(lane, (SourceRun(lane.id, lane.grant, tuple(runs), *details, rewound),))
    lane.intents.append((effect.tag, runs[0].ordinal))
    lane.unbound = NO_VERDICTS if lane.plan else (runs[0].ordinal, tuple(gone))
    lane.declared = -1
    return [effect]


class _Aborts(NamedTuple):
    """The aborted transactions of a chunk."""

    ahead: list[tuple[int, int]]
    """(first offset, producer id) of the transactions that begin after the current batch, as a heap."""
    begun: set[int]


def _walk(  # noqa: C901, PLR0912 -- the hot path: a call per batch would cost more than it would clarify
    lane: Lane, chunk: Chunk, at: int, runs: list[Run], aborts: _Aborts
) -> int:
    """Process the complete batches before the first old-format message. Return the buffer position after them."""
    buffer, end, unpack = chunk.buffer, chunk.end, HEADER.unpack_from
    (aborted_ahead, aborted), traced = aborts, lane.origins is not None
    stop, whole_until, largest, strange = batch_splitting.bounds(lane)
    looks = bool(lane.plan) or lane.history.recorded_epoch < 0
    while end - at >= HEADER_LENGTH:
        header = unpack(buffer, at)
        base, length, epoch, magic, _, attributes, last_delta, _, newest_ms, producer, _, _, count = header
        batch_end = at + 12 + length
        if magic != 2 or length < HEADER_LENGTH - 12 or last_delta < 0 or count < 0:
            return _old_at(lane, buffer, at, end)
        if batch_end > end:
            break  # the broker truncates the last batch in a response; the next response contains all of it
        next_offset = base + last_delta + 1
        position, left_out = lane.position, None
        if next_offset <= position:
            at = batch_end
            continue
        if looks or epoch != lane.epoch:
            _look_at_epoch(lane, runs, epoch, base, next_offset)
        while aborted_ahead and aborted_ahead[0][0] <= base:
            aborted.add(heappop(aborted_ahead)[1])
        if base > position:
            if not _passes(lane, position, base):
                break
            position = base
        if attributes & _MARKED or count == 0 or (producer >= 0 and traced):
            left_out = _left_out(lane, header, aborted)
            if lane.origin.doubt is not None:
                lane.position = position
                break
        if left_out is not None:
            _skip(lane, position, next_offset, left_out)
        elif (
            base == position
            and count == last_delta + 1
            and not attributes & strange
            and lane.next_ordinal + count <= stop
            and next_offset <= whole_until
            and batch_end - at <= largest
        ):
            first, run = lane.next_ordinal, lane.open_run
            if run is None or lane.declared >= 0 or base - first != run.offset - run.ordinal:
                _follow(lane, runs, base, count)
            patch(buffer, at, header, lane.producer_id, lane.producer_epoch, first & SEQUENCE_MASK)
            lane.ready.append(Batch(first, count, base, next_offset, buffer, at, batch_end, newest_ms, chunk.frame))
            lane.ready_bytes += batch_end - at
            lane.next_ordinal = first + count
            lane.raw_batches += 1
        else:
            why = "policy" if lane.has_policies else why_rebuilt(base, position, count, last_delta, attributes, strange)
            whole_until = _in_pieces(lane, runs, buffer, at, batch_end, position, next_offset, why)
        lane.position, at = next_offset, batch_end
        if lane.plan and lane.next_ordinal >= lane.plan[0].ordinal:
            jump(lane)
            return end
    return at


def _left_out(lane: Lane, header: HeaderTuple, aborted: set[int]) -> Reason | None:
    """Return why the lane skips the whole batch, or None if the lane does not skip it. If it is not yet known whether
    another flow wrote the batch to the source partition as a copy, set `lane.origin.doubt` and return None."""
    attributes, producer, count = header[5], header[9], header[12]
    if attributes & CONTROL:
        # The first marker of a producer with an aborted transaction in progress ends that transaction.
        aborted.discard(producer)
        return "control"
    if attributes & TRANSACTIONAL and producer in aborted and lane.read_committed:
        return "aborted"
    if lane.origins is not None:
        origin = lane.origins.judge(header)
        if origin is BatchOrigin.COPY:
            return "copied-from-target"
        if origin is BatchOrigin.UNKNOWN:
            lane.origin.doubt = Doubt(producer, header[0])
            return None
    lane.gap.compacts = lane.gap.compacts or count == 0
    return "compacted" if count == 0 else None


def _look_at_epoch(lane: Lane, runs: list[Run], epoch: int, base: int, end: int) -> None:
    """Handle a change of the source epoch, if the next batch, with the offsets [base, end), has a different one."""
    if lane.plan and base <= lane.position and source_epochs.is_another(lane, epoch):
        raise Diverged(f"records of epoch {epoch}", lane.position, lane.position + 1)
    if epoch != lane.epoch or (lane.history.recorded_epoch < 0 <= epoch and not lane.plan):
        _new_epoch(lane, runs, epoch, max(base, lane.position), end)


def _new_epoch(lane: Lane, runs: list[Run], epoch: int, offset: int, end: int) -> None:
    """Handle a batch at [offset, end) whose epoch is the first known one or differs from that of the last batch."""
    if source_epochs.is_news(lane, epoch, end - offset) and in_doubt.holds(lane, lane.next_ordinal):
        raise Early(f"records of epoch {epoch}", lane.position, offset)
    if epoch != lane.epoch:
        lane.seen.note(lane.position, epoch)
        lane.epoch = epoch
    if source_epochs.note_epoch(lane, epoch, end - offset):
        _begin_run(lane, runs, offset)


def _old_at(lane: Lane, buffer: bytearray, at: int, end: int) -> int:
    """Return `at` if the buffer contains an old-format message there. Otherwise raise Unreadable."""
    if is_old(buffer, at, end):
        return at
    base, length, _, magic, *_ = HEADER.unpack_from(buffer, at)
    start = max(base, lane.position)
    raise Unreadable(f"a record batch of format {magic} with length {length}", start, start + 1)


def _walk_old(lane: Lane, runs: list[Run], buffer: bytearray, at: int, end: int) -> int:
    """Process messages in formats 0 and 1, beginning at the buffer position `at`. Return the buffer position after
    them. If the lane jumps to a different source offset, return `end`, because the rest of the chunk is not used."""
    while is_old(buffer, at, end):
        # A group must not extend beyond the records that are being copied again.
        most = lane.plan[0].ordinal - lane.next_ordinal if lane.plan else SEQUENCE_MASK
        try:
            found = group(buffer, at, end, most)
        except Malformed as fault:
            raise Unreadable(str(fault), lane.position, lane.position + 1) from fault
        if found is None:
            break
        at = found.end
        position, next_offset = lane.position, found.last + 1
        if next_offset <= position:
            continue
        _in_pieces(lane, runs, buffer, found.start, found.end, position, next_offset, "old-format")
        if lane.epoch >= 0:
            lane.seen.note(lane.position, -1)
            lane.epoch = -1
        lane.position = next_offset
        if lane.plan and lane.next_ordinal >= lane.plan[0].ordinal:
            jump(lane)
            return end
    return at


def jump(lane: Lane) -> None:
    """Continue at the next run of the plan: move back to copy records again, or move past records that have already
    been copied."""
    run = lane.open_run = lane.plan.popleft()
    lane.seen.reach(lane.position)
    source_epochs.recall_copied(lane, run.offset)
    lane.position = run.offset
    lane.epoch = lane.seen.go_to(run.offset)
    if not lane.plan:
        source_epochs.end_plan(lane)
        lane.history.source_confirmed = False  # some time has passed since the source was asked
    lane.skipped.clear()


def _skip(lane: Lane, start: int, end: int, reason: Reason) -> None:
    # A former holder may have read records that a log cleaner has since removed, and may have given the next ordinal to
    # one of them.
    if reason in _GONE and in_doubt.holds(lane, lane.next_ordinal) and not _is_mapped(lane, end):
        raise Early("records that no longer exist", start, end)
    skipped = lane.skipped
    if skipped and skipped[-1].reason == reason and skipped[-1].end == start:
        skipped[-1] = Verdict(skipped[-1].start, end, reason)
    else:
        skipped.append(Verdict(start, end, reason))


def _passes(lane: Lane, start: int, end: int) -> bool:
    """Skip the offsets [start, end) if it is known why the source has no batch for them. Return whether the reason is
    known."""
    reason = offset_gaps.reason_of(lane, start, end)
    if reason is not None:
        _skip(lane, start, end, reason)
    return reason is not None


def _is_mapped(lane: Lane, offset: int) -> bool:
    """Return whether the ledger maps the next ordinal to this source offset or a later one."""
    if lane.declared != lane.next_ordinal or lane.record is None:
        return False
    offset_there = lane.record.source_runs.offset_of(lane.next_ordinal)
    return offset_there is not None and offset_there >= offset


def _explain(lane: Lane, start: int, end: int, left_out: deque[Verdict]) -> None:
    """Skip the offsets [start, end), because none of their records is copied: a policy rejected them (`left_out`), or
    the log cleaner removed them."""
    while left_out and left_out[0].start < end:
        verdict = left_out.popleft()
        if start < verdict.start:
            _clean(lane, start, verdict.start)
        _skip(lane, verdict.start, verdict.end, verdict.reason)
        start = verdict.end
    if start < end:
        _clean(lane, start, end)


def _clean(lane: Lane, start: int, end: int) -> None:
    """Skip offsets that are missing from a batch. Brokers do not accept batches with gaps, so the log cleaner must have
    removed these records."""
    lane.gap.compacts = True
    _skip(lane, start, end, "compacted")


def _follow(lane: Lane, runs: list[Run], offset: int, count: int) -> None:
    """Map the next `count` ordinals to consecutive offsets from `offset` on: extend the open run or begin another."""
    run = lane.open_run
    first = lane.next_ordinal
    declared = lane.declared
    if declared >= 0 and first + count > declared:
        if declared == first and lane.record is not None and lane.record.source_runs.offset_of(first) == offset:
            # The ledger already contains this run from an earlier attempt, so there is nothing to record.
            lane.open_run = Run(first, offset)
            lane.skipped.clear()
            declare(lane, first)
            return
        _part(lane, runs, offset)
        return
    if run is None or offset - first != run.offset - run.ordinal:
        _part(lane, runs, offset)


def _part(lane: Lane, runs: list[Run], offset: int) -> None:
    """Begin a new run, because the next ordinal does not map to the offset that the open run implies."""
    if lane.next_ordinal < lane.late_writes.in_doubt_below:
        raise Early("records other than those that were sent", lane.position, offset)
    _begin_run(lane, runs, offset)


def _begin_run(lane: Lane, runs: list[Run], offset: int) -> None:
    if lane.plan:
        raise Vanished("records other than those that were to be copied again", lane.position, offset)
    source_epochs.begin_run(lane)
    run = lane.open_run = Run(lane.next_ordinal, offset)
    if runs and runs[-1].ordinal == run.ordinal:
        runs.pop()
    runs.append(run)
    # A run supersedes all runs that were declared at its ordinal or later.
    lane.declared = -1


def _in_pieces(  # noqa: PLR0913, PLR0917 -- the counterpart of the raw branch above, with the same data at hand
    lane: Lane,
    runs: list[Run],
    buffer: bytearray,
    start: int,
    end: int,
    position: int,
    next_offset: int,
    why: str,
) -> int:
    """Rebuild the records of a source batch, starting at `position`, as one or more batches that the target accepts.
    Return the source offset up to which the following batches can be copied unchanged."""
    while position < next_offset and not (lane.plan and lane.next_ordinal >= lane.plan[0].ordinal):
        piece = batch_splitting.next_piece(lane, position, next_offset)
        if piece.left_out is not None:
            _skip(lane, position, piece.end, piece.left_out)
            position = piece.end
        else:
            position = _rebuild(lane, runs, RebuildRequest(buffer, start, end, position, *_producer(lane)), piece, why)
        lane.position = position
    return batch_splitting.whole_until(lane, next_offset)


def _producer(lane: Lane) -> tuple[int, int, int]:
    return lane.producer_id, lane.producer_epoch, lane.next_ordinal & SEQUENCE_MASK


def _rebuild(lane: Lane, runs: list[Run], wanted: RebuildRequest, piece: batch_splitting.BatchPiece, why: str) -> int:
    """Rebuild one batch on the second path, and return the source offset after it."""
    position, end = wanted.from_offset, piece.end
    most = min(lane.plan[0].ordinal - lane.next_ordinal if lane.plan else SEQUENCE_MASK, piece.most)
    decided = ALL if lane.plan else lane.decided
    try:
        rebuilt = batch_splitting.rebuild(
            lane, msgspec.structs.replace(wanted, most=most, until_offset=end, decided=decided)
        )
    except Postponed as later:
        lane.position = position  # offsets that were skipped before the batch are not skipped again
        raise Unfinished(later.work, wanted.start, position, end) from None
    except PolicyRefused as error:
        if error.offset > position:  # the records before the refused one are copied first
            return _rebuild(lane, runs, wanted, piece._replace(end=error.offset), why)
        line = f"a record for which a policy has no answer ({error})"
        raise Unreadable(line, error.offset, error.offset + 1) from error
    except ValueError as error:
        raise Unreadable(f"a batch whose records cannot be read ({error})", position, end) from error
    left_out = deque(rebuilt.left_out if rebuilt is not None else ())
    if rebuilt is None or not rebuilt.pieces:
        _explain(lane, position, end, left_out)
        return end
    cursor = position
    first = lane.next_ordinal
    for offset, length in rebuilt.pieces:
        _explain(lane, cursor, offset, left_out)
        _follow(lane, runs, offset, length)
        lane.next_ordinal += length
        cursor = offset + length
    data, count = rebuilt.data, lane.next_ordinal - first
    # If the rebuilt batch was cut short, more records of the source batch may follow.
    behind = cursor if count >= most or rebuilt.is_cut else end
    if not lane.plan:
        _explain(lane, cursor, behind, left_out)
    begin = rebuilt.pieces[0][0]
    lane.ready.append(Batch(first, count, begin, behind, data, 0, len(data), rebuilt.newest_ms, None))
    lane.ready_bytes += len(data)
    lane.rebuilt_batches[why] = lane.rebuilt_batches.get(why, 0) + 1
    return behind


def _intend(lane: Lane, runs: list[Run]) -> Effects:
    """Append new runs to the ledger. Records in a new run are produced only after the run has taken effect."""
    if not runs:
        return []
    # Verdicts after the beginning of the last new run belong to the next run.
    last = runs[-1].offset
    at = bisect_right([verdict.start for verdict in lane.skipped], last - 1)
    ahead, behind = lane.skipped[:at], lane.skipped[at:]
    if ahead and ahead[-1].end > last:
        # A new epoch also begins a run, even if its first record is skipped. A resume decides on that record again.
        across = ahead.pop()
        ahead.append(Verdict(across.start, last, across.reason))
        behind.insert(0, Verdict(last, across.end, across.reason))
    first = runs[0].ordinal
    verdicts, lane.skipped = (*_unbound(lane, first), *ahead), behind
    lane.unbound = (first, verdicts)
    in_doubt.note_deleted(lane, first, verdicts)
    epochs, regiven = source_epochs.take_new(lane, first), in_doubt.assign(lane, runs)
    rewound = position_rewind.rewound_by_next(lane, runs, resume_position(lane), epochs)
    fact = SourceRun(lane.id, lane.grant, tuple(runs), verdicts, epochs, regiven, rewound)
    effect = append(lane, hole_repair.with_end_of_plan(lane, fact))
    lane.intents.append((effect.tag, first))
    return [effect]


def _unbound(lane: Lane, ordinal: int) -> tuple[Verdict, ...]:
    """Return the verdicts on offsets directly before `ordinal` that have been appended but have not taken effect yet.

    The next entry repeats these verdicts. If it did not, and the first entry were lost, nothing would show that they
    are missing.
    """
    return lane.unbound[1] if lane.intents and lane.intents[-1][1] == ordinal == lane.unbound[0] else ()
