"""How a lane stands still: a fact for the ledger, a line for people, nothing skipped."""

from mirrord.flow.signals import Append, Effects, Gone, Halted, StopFetch
from mirrord.flow.state import Lane, Phase
from mirrord.model.facts import LaneHalted


def drop(lane: Lane) -> None:
    """Forget everything that was fetched or sent; the next round begins from the target log."""
    lane.ready.clear()
    lane.in_flight.clear()
    lane.ready_bytes = lane.in_flight_bytes = 0
    lane.fetching = False
    lane.confirming = False


def halt(lane: Lane, reason: str, line: str, start: int, end: int) -> Effects:
    """Halt this lane alone. [start, end) are the source offsets concerned; the line names the lane by itself."""
    lane.round += 1
    lane.phase = Phase.HALTED
    drop(lane)
    lane.halt_line = f"{lane.source_topic}-{lane.partition}: {line}"
    lane.tag += 1
    fact = LaneHalted(lane.id, lane.grant, reason, lane.halt_line, start, end)
    return [StopFetch(), Append(lane.tag, (fact,)), Halted(lane.halt_line)]


def leave(lane: Lane, why: str) -> Effects:
    """The lane belongs to somebody else: drop everything, write nothing."""
    lane.round += 1
    lane.phase = Phase.GONE
    drop(lane)
    return [StopFetch(), Gone(why)]
