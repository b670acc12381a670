"""Halts a lane: the reason is recorded in the ledger and reported to the operator in one line. No record is skipped."""

from mirrord.ledger.facts.core import LaneFact, LaneHalted
from mirrord.replication.lane.correlation import answers, append, ask, new_round, settles
from mirrord.replication.lane.notes import plan_bound
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import AppendFailed, Bound, Effects, Gone, Halted, Input, StopFetch, Wake, Woken
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target import in_doubt


def drop(lane: Lane) -> None:
    """Drop all batches that have been fetched or sent. The next round determines from the target log where to
    continue."""
    refused = [] if lane.failure is None else [lane.failure[1]]
    for batch in [*refused, *lane.in_flight, *lane.ready][:1]:
        lane.dropped = (batch.offset, batch.newest_ms)
    lane.ready.clear()
    lane.in_flight.clear()
    lane.ready_bytes = lane.in_flight_bytes = 0
    lane.fetching = False
    lane.history.unconfirmed_chunk = lane.history.left_position = lane.history.asked_before_seek = None
    lane.history.asked_before_reading = lane.history.epoch_search = None
    lane.history.skipped_epochs = ()
    lane.confirming = False


def halt(lane: Lane, reason: str, line: str, start: int, end: int) -> Effects:
    """Halt this lane; other lanes are not affected. `line` gives the reason to the operator. The partition's name is
    prepended to the line.

    The halt concerns the source offsets from `start` to `end` (exclusive).
    """
    lane.halt.line = f"{lane.source_topic}-{lane.partition}: {line}"
    return halt_with(lane, (LaneHalted(lane.id, lane.grant, reason, lane.halt.line, start, end),))


def halt_with(lane: Lane, facts: tuple[LaneFact, ...]) -> Effects:
    """Halt the lane and record these facts in the ledger."""
    return [*halt_unrecorded(lane), *record_halt(lane, facts), Halted(lane.halt.line)]


def halt_unrecorded(lane: Lane) -> Effects:
    """Halt the lane without recording the halt in the ledger yet."""
    new_round(lane)
    lane.transition = None  # after an exception, a requested transition may still be pending
    lane.phase = Phase.HALTED
    in_doubt.leave_at_halt(lane)
    drop(lane)
    lane.halt.facts = ()
    return [StopFetch()]


def record_halt(lane: Lane, facts: tuple[LaneFact, ...]) -> Effects:
    """Append the facts about a halt to the ledger. The append is retried until the facts take effect."""
    lane.halt.facts = facts
    effect = append(lane, facts)
    lane.facts_tag = effect.tag
    return [effect]


def retry_record(lane: Lane, now: float, signal: Input) -> Effects:
    """If the append of the facts about a halt has failed, retry it. The ledger must contain these facts, and duplicates
    of them do no harm."""
    match signal:
        case Bound() | AppendFailed() if not settles(lane, signal.tag):
            return []
        case Bound():
            if not all(signal.bound):
                return leave_lane(lane, "another replicator took the lane")
            # Facts that were appended before the halt are still needed when the lane resumes.
            lane.notes.discard(signal.tag)
            plan_bound(lane, signal.tag)
            for intent in [each for each in lane.intents if each[0] == signal.tag]:
                lane.intents.remove(intent)
            return []
        case AppendFailed() if signal.tag == lane.facts_tag:
            return [Wake(ask(lane), now + lane.limits.retry_s)]
        case AppendFailed():
            lane.halt.append_in_doubt = True
            return []
        case Woken() if answers(lane, signal.question) and lane.halt.facts:
            effect = append(lane, lane.halt.facts)
            lane.facts_tag = effect.tag
            return [effect]
        case _:
            return []


def leave_lane(lane: Lane, why: str) -> Effects:
    """Leave the lane because another replicator owns it: drop all batches, and write nothing more."""
    new_round(lane)
    lane.phase = Phase.GONE
    drop(lane)
    return [StopFetch(), Gone(why)]
