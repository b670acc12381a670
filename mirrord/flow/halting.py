"""How a lane stands still: a fact for the ledger, a line for people, nothing skipped."""

from mirrord.flow.asking import answers, append, ask, new_round, settles
from mirrord.flow.signals import AppendFailed, Effects, Gone, Halted, Input, StopFetch, Wake, Woken
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
    new_round(lane)
    lane.phase = Phase.HALTED
    drop(lane)
    lane.halt_line = f"{lane.source_topic}-{lane.partition}: {line}"
    lane.halt_fact = LaneHalted(lane.id, lane.grant, reason, lane.halt_line, start, end)
    effect = append(lane, (lane.halt_fact,))
    lane.facts_tag = effect.tag
    return [StopFetch(), effect, Halted(lane.halt_line)]


def tell_again(lane: Lane, now: float, signal: Input) -> Effects:
    """Whoever reads the ledger has to learn of a halt: an append that failed is tried again, for it may stand twice."""
    match signal:
        case AppendFailed() if settles(lane, signal.tag) and signal.tag == lane.facts_tag:
            return [Wake(ask(lane), now + lane.limits.retry_s)]
        case Woken() if answers(lane, signal.question) and lane.halt_fact is not None:
            effect = append(lane, (lane.halt_fact,))
            lane.facts_tag = effect.tag
            return [effect]
        case _:
            return []


def leave(lane: Lane, why: str) -> Effects:
    """The lane belongs to somebody else: drop everything, write nothing."""
    new_round(lane)
    lane.phase = Phase.GONE
    drop(lane)
    return [StopFetch(), Gone(why)]
