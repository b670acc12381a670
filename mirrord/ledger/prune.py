"""Dropping what no one can ask for any more."""

from itertools import pairwise

from mirrord.ledger.state import FlowState
from mirrord.model.names import LaneId
from mirrord.model.runs import Runs


def prune(state: FlowState, lane_id: LaneId, source_log_start: int, target_log_start: int) -> int:
    """Drop a lane's runs whose records lie below both clusters' log starts; how many runs were dropped.

    Only whole runs from the front go, packed ones by the piece, and the open run stays. The ledger keeps its facts
    until it is trimmed: pruning takes effect with the next snapshot.
    """
    lane = state.lanes.get(lane_id)
    if lane is None or not lane.source_runs or not lane.target_runs:
        return 0
    ordinal = min(
        _first_ordinal_from(lane.source_runs, source_log_start),
        _first_ordinal_from(lane.target_runs, target_log_start),
    )
    return lane.source_runs.forget_below(ordinal) + lane.target_runs.forget_below(ordinal)


def _first_ordinal_from(runs: Runs, log_start: int) -> int:
    """The first ordinal that may still be readable. Offsets need not ascend from run to run."""
    edges = [0, *(runs.position(turn) for turn in runs.turns), len(runs)]
    for first, end in pairwise(edges):
        at = runs.floor(log_start, first, end)
        if at < first:
            return runs.at(first).ordinal
        run = runs.at(at)
        ordinal = run.ordinal + log_start - run.offset
        if at + 1 == len(runs) or ordinal < runs.at(at + 1).ordinal:
            return ordinal
        if at + 1 < end:
            return runs.at(at + 1).ordinal
    raise ValueError("no runs")
