"""Determines whether a flow meets its recovery point objective (`rpo`).

The objective limits how many seconds of records would be lost if the source were lost now. It is compared with the lag
of the lanes in seconds, which is not underestimated if the timestamps of the records are correct (see
`mirrord.supervision.rules.lag.lag_seconds`). A flow does not meet the objective if the lag of a lane is unknown, or
if a selected topic is not copied.
"""

from collections.abc import Iterable, Sequence

from mirrord.model.status import FlowPhase, LaneStatus, RpoStatus

NOT_LOOKED = "the source's topics are not known yet"


def rpo_status(
    rpo_ms: int | None, state: FlowPhase, lanes: Sequence[LaneStatus], faults: Iterable[str], *, looked: bool
) -> RpoStatus | None:
    """Return whether the flow meets its recovery point objective and, if it does not, the reason. Return None if the
    flow has no objective.

    `faults` are the selected topics that are not copied or are copied only in part. `looked` says whether discovery has
    already found all lanes that should exist.
    """
    if rpo_ms is None:
        return None
    rpo_s = rpo_ms / 1000
    if state == "standby":
        return RpoStatus(rpo_s=rpo_s, within=None)
    if why := _why(rpo_s, lanes, sorted(faults), looked=looked):
        return RpoStatus(rpo_s=rpo_s, within=False, why=why)
    return RpoStatus(rpo_s=rpo_s, within=True)


def _why(rpo_s: float, lanes: Sequence[LaneStatus], faults: Sequence[str], *, looked: bool) -> str:
    unknown = [f"{lane.topic}-{lane.partition}" for lane in lanes if lane.lag_s is None]
    late = [lane for lane in lanes if lane.lag_s is not None and lane.lag_s > rpo_s]
    if late:
        last = max(late, key=lambda lane: lane.lag_s or 0.0)
        others = f", and {len(late) - 1} more" if len(late) > 1 else ""
        return f"{last.topic}-{last.partition} is {last.lag_s:.0f} s behind{others}"
    if faults:
        return f"{_some(faults)} not copied, or only in part"
    if unknown:
        return f"it is not known how far {_some(unknown)} behind"
    return "" if looked else NOT_LOOKED


def _some(names: Sequence[str]) -> str:
    return f"{names[0]} is" if len(names) == 1 else f"{names[0]} and {len(names) - 1} more are"
