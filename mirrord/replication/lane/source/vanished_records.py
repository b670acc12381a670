"""Handles the removal of source records that were to be copied again.

A lane without policies then rebuilds its offset map from both logs (see `difference.vanished`). If the records go
through policies, this is not possible, because a policy may have changed the records on the target. It is not necessary
either. A lane with policies does not write before all batches that were sent earlier have arrived or can no longer
arrive (see `resuming.decide`), so the target has no records under the ordinals of the removed records and under later
ones. The lane records a verdict on the removed records, and assigns these ordinals to the records that are still to be
copied again.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from mirrord.kafka.protocol.record_batch import HEADER, HEADER_LENGTH
from mirrord.ledger.facts.core import SourceRun
from mirrord.model.intervals import Interval, joined, uncovered
from mirrord.model.runs import Run
from mirrord.replication.lane import difference, in_flight, intake
from mirrord.replication.lane.intake_stops import Vanished
from mirrord.replication.lane.second_path import ALL, PolicyRefused, Postponed, RebuildRequest
from mirrord.replication.lane.signals import Append, Chunk, Effects, Lost
from mirrord.replication.lane.source.left_out_ranges import LeftOut
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target import in_doubt
from mirrord.replication.lane.transitions import Quiesce

_MOST_NAMED = 3
"""Maximum number of ranges of source offsets that a report of a loss names."""


def leave_out(lane: Lane, now: float, chunk: Chunk, found: Vanished) -> Effects:
    """Leave the removed records out of the records that are to be copied again. `found.end` is the offset of the first
    record that the source has after them."""
    run = lane.open_run
    if not lane.has_policies or run is None:
        return difference.vanished(lane, now)
    if in_doubt.holds(lane, lane.next_ordinal):
        lane.go(Quiesce())
        return []
    gone = _passed(lane, run.offset + lane.next_ordinal - run.ordinal, found.end)
    if not gone:
        return difference.vanished(lane, now)
    # If a record has been removed from the middle of a source batch, the lane has read the records before it, but has
    # not built a batch from them.
    last = next((each[-1] for each in (lane.ready, lane.in_flight) if each), None)
    lane.next_ordinal = lane.acked if last is None else last.first + last.count
    return _without(lane, run, [*gone, *_removed(lane, chunk, found.end)])


def leave_out_deleted(lane: Lane, log_start: int) -> Effects:
    """Leave out the records that retention has deleted from the source before they were copied again, and report the
    loss. The caller ensures that no batch with their ordinals may still be appended."""
    run = lane.open_run
    if run is None:
        return []
    gone = _passed(lane, run.offset + lane.next_ordinal - run.ordinal, lane.position)
    deleted = uncovered((0, log_start), [(each.start, each.end) for each in gone])
    effects = _without(lane, run, [*gone, *(LeftOut(*each, "expired") for each in deleted)])
    facts = [fact for each in effects if isinstance(each, Append) for fact in each.facts if isinstance(fact, SourceRun)]
    lost = joined((each.start, each.end) for fact in facts for each in fact.verdicts if each.reason == "expired")
    return [*_lost(lane, lost), *effects]


def uncopied(lane: Lane, log_start: int) -> list[Interval]:
    """Return the source offsets below `log_start` that were to be copied, although the source has deleted them. Those
    that are skipped because of a decision are omitted."""
    runs = [Run(lane.next_ordinal, lane.position), *lane.plan]
    planned = [(run.offset, run.offset + behind.ordinal - run.ordinal) for run, behind in pairwise(runs)]
    decided = joined((each.start, each.end) for each in lane.left_out)
    wholes = joined((start, min(end, log_start)) for start, end in (*planned, (runs[-1].offset, log_start)))
    return [part for whole in wholes for part in uncovered(whole, decided)]


def describe_loss(lost: Sequence[Interval]) -> str:
    """Return a text that names source offsets that were deleted before they were copied. The offsets between them were
    copied, or have other verdicts."""
    many = sum(end - start for start, end in lost)
    named = " and ".join(f"[{start}, {end})" for start, end in lost)
    which = (
        f"source offsets {named}" if len(lost) <= _MOST_NAMED else f"{many} of the source offsets below {lost[-1][1]}"
    )
    return f"{which} were deleted before they were copied"


def _lost(lane: Lane, lost: Sequence[Interval]) -> Effects:
    """Report the loss of these source offsets."""
    return [Lost(f"{lane.source_topic}-{lane.partition}: {describe_loss(lost)}")] if lost else []


def _without(lane: Lane, run: Run, gone: list[LeftOut]) -> Effects:
    """Remove the source offsets in `gone` from the plan, and continue it at the next ordinal. `run` is the run of this
    ordinal."""
    lane.skipped.clear()
    lane.position = run.offset + lane.next_ordinal - run.ordinal
    left_out = lane.left_out
    lane.left_out = sorted((*left_out, *gone), key=lambda each: (each.start, each.end))
    effects = intake.leave_out(lane)
    lane.left_out = left_out
    if not lane.plan:
        lane.history.source_confirmed = False  # some time has passed since the source was asked
    if lane.seeks and not lane.plan:
        # A command to seek ahead may be due now, and the next record may not arrive for a long time.
        lane.go(Quiesce())
        return effects
    return effects + in_flight.send(lane) + intake.want_more(lane)


def _passed(lane: Lane, start: int, end: int) -> list[LeftOut]:
    """Return the offsets [start, end), which the lane has just skipped, with the reasons. If the lane has not noted a
    reason, the records are missing at the end of a batch. Brokers do not accept batches with gaps, so the log cleaner
    must have removed them."""
    known = [each for each in lane.skipped if each.start < end and start < each.end]
    removed = [*uncovered((start, end), [(each.start, each.end) for each in known])]
    lane.gap.compacts = lane.gap.compacts or bool(removed)
    return [
        *(LeftOut(max(each.start, start), min(each.end, end), each.reason) for each in known),
        *(LeftOut(*part, "compacted") for part in removed),
    ]


def _removed(lane: Lane, chunk: Chunk, position: int) -> Iterator[LeftOut]:
    """Yield the offsets from `position` onward whose records the log cleaner has removed, up to the end of the chunk.

    The log cleaner may have removed many records. Each change of the plan is a ledger entry with all of its runs, so
    one change removes all of these records of a chunk from the plan.
    """
    at, buffer = chunk.start, chunk.buffer
    while lane.gap.compacts and chunk.end - at >= HEADER_LENGTH:
        base, length, _, magic, _, _, last_delta, *_, count = HEADER.unpack_from(buffer, at)
        end, next_offset = at + 12 + length, base + last_delta + 1
        if magic != 2 or end > chunk.end or last_delta < 0:
            return
        if position < base:
            yield LeftOut(position, base, "compacted")
        if position < next_offset and count <= last_delta:
            wanted = RebuildRequest(buffer, at, end, max(position, base), -1, -1, 0, decided=ALL)
            try:
                rebuilt = lane.rebuild(wanted)
            except (PolicyRefused, Postponed, ValueError):
                return  # the lane finds out there if it has to copy these records again
            there = [(offset, offset + many) for offset, many in rebuilt.pieces] if rebuilt is not None else []
            for part in uncovered((wanted.from_offset, next_offset), there):
                yield LeftOut(*part, "compacted")
        at, position = end, max(position, next_offset)
