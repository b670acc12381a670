"""Removes parts of the state that no reader can still need."""

from itertools import pairwise

from mirrord.ledger import displaced
from mirrord.ledger.facts.core import LOSSES, CopyForgotten
from mirrord.ledger.state import FlowState, LaneState
from mirrord.ledger.state_topic_records import FlowSnapshot, LaneSnapshot, first_ordinal, written_under
from mirrord.model.names import LaneId, LaneKey
from mirrord.model.runs import Runs

FORGOTTEN_KEPT = 1000
"""Maximum number of source topics whose names are remembered after `CopyForgotten`. All names must fit in one
record."""
REST_ENTRIES = 1000
"""A lane is not expected to change soon if it is not mentioned in this many entries of the ledger."""


def forget_copy(state: FlowState, fact: CopyForgotten, offset: int) -> bool:
    """Remove the lanes between a source topic and a target topic that no longer exist. Return whether the state
    contained anything about these topics. `offset` is the ledger offset of the fact.

    If a holder has exited while it was writing snapshots, a lane may be restored from a newer snapshot than the flow.
    A lane that was opened after this fact is therefore kept, and the topic's name is noted whether or not lanes are
    removed."""
    ids = (fact.source_topic_id, fact.target_topic_id)
    lanes = [name for name, lane in state.lanes.items() if lane.key.topics == ids and lane.opened_at <= offset]
    for lane_id in lanes:
        for reason, count in state.lanes.pop(lane_id).verdicts.counts.items():
            if count and reason in LOSSES:
                state.forgotten_losses[reason] = state.forgotten_losses.get(reason, 0) + count
        state.progress.pop(lane_id, None)
    state.lanes_changed += bool(lanes)
    state.forgotten_lanes.update(dict.fromkeys(lanes, offset))
    state.forgotten_topics.pop(fact.source_topic, None)
    state.forgotten_topics[fact.source_topic] = None
    if len(state.forgotten_topics) > FORGOTTEN_KEPT:
        del state.forgotten_topics[next(iter(state.forgotten_topics))]
    is_named = False
    if not any(lane.key.source_topic_id == fact.source_topic_id for lane in state.lanes.values()):
        is_named = state.named.pop(fact.source_topic_id, None) is not None
    return state.topics.pop(fact.target_topic_id, None) is not None or bool(lanes) or is_named


def prune(state: FlowState, lane_id: LaneId, source_log_start: int, target_log_start: int) -> int:
    """Drop a lane's runs whose records are below the log start offsets of both source and target. Return the number of
    dropped runs.

    The oldest runs are dropped first. A run is never split, and packed runs are dropped only when their whole piece can
    be dropped. The last run is always kept. Holes, displaced ordinals and truncations are dropped when all records to
    which they refer have been deleted. The facts stay in the ledger until it is trimmed. Other processes drop the same
    runs when they read the next snapshot (`prune_like`).
    """
    lane = state.lanes.get(lane_id)
    if lane is None or not lane.source_runs or not lane.target_runs:
        return 0
    ordinal = min(
        _first_ordinal_from(lane.source_runs, source_log_start),
        _first_ordinal_from(lane.target_runs, target_log_start),
    )
    dropped = lane.source_runs.forget_below(ordinal) + lane.target_runs.forget_below(ordinal)
    _forget_below_floor(lane, ordinal)
    return dropped


def prune_like(state: FlowState, snapshot: LaneSnapshot) -> None:
    """Drop those runs of a lane that the lease holder has dropped with `prune`. Its latest snapshot of the lane shows
    which runs it still has.

    All runs below the first run in this snapshot are dropped. A snapshot that an earlier holder wrote is ignored.
    Raises LedgerCorrupt if the runs in the snapshot cannot be read.
    """
    lane = state.lanes.get(snapshot.lane)
    if lane is None or written_under(snapshot) < state.tenure:
        return
    source, target = first_ordinal(snapshot.source_runs), first_ordinal(snapshot.target_runs)
    lane.source_runs.forget_below(source)
    lane.target_runs.forget_below(target)
    _forget_below_floor(lane, min(source, target))


def drop_removed(state: FlowState, snapshot: FlowSnapshot) -> None:
    """Remove lanes from the list of forgotten lanes (`FlowState.forgotten_lanes`) if their records are no longer in the
    state topic.

    The fact `CopyForgotten` marks a lane as forgotten. If a later snapshot of the flow no longer lists the lane, it was
    written after the lane's records were removed. Only a process that trims the ledger removes these records itself.
    Without this function, all other processes would keep the lanes in the list permanently.
    """
    listed = set(snapshot.forgotten_copies)
    for lane, offset in list(state.forgotten_lanes.items()):
        if offset < snapshot.cut and LaneKey.parse(lane).topics not in listed:
            del state.forgotten_lanes[lane]


class Resting:
    """Reduces the memory for lanes that have not changed for a while, such as the lanes of deleted topics.

    A lane can change again at any time. It then takes more memory until it has not changed for a while again.
    """

    def __init__(self) -> None:
        self._looked = -1

    def look(self, state: FlowState) -> None:
        """Look for such lanes, if `REST_ENTRIES` entries have been folded since the last time. Must be called
        regularly."""
        if self._looked >= 0 and state.next_offset - self._looked < REST_ENTRIES:
            return
        self._looked = state.next_offset
        for lane in state.lanes.values():
            if state.next_offset - lane.changed_at > REST_ENTRIES:
                lane.rest()


def floor(lane: LaneState) -> int:
    """Return the first ordinal for which both the source offset and the target offset are known."""
    firsts = (lane.source_runs.first, lane.target_runs.first)
    return max((first.ordinal for first in firsts if first is not None), default=0)


def _forget_below_floor(lane: LaneState, pruned: int) -> None:
    """Forget the holes, displaced ordinals, truncations and epochs that concern only ordinals below the first mapped
    ordinal (`floor`). Both logs have deleted all records whose ordinals are lower than `pruned`."""
    lowest = floor(lane)
    lane.holes = tuple(hole for hole in lane.holes if hole.until > lowest)
    # Displaced ordinals in the fact of the first target run are below the floor even if nothing was pruned.
    lane.displaced = displaced.kept_from(lane.displaced, min(lowest, pruned))
    lane.truncations = tuple(cut for cut in lane.truncations if cut[0] > lowest)
    kept = [at for at, (ordinal, _) in enumerate(lane.epochs) if ordinal <= lowest]
    lane.epochs = lane.epochs[kept[-1] :] if kept else lane.epochs


def _first_ordinal_from(runs: Runs, log_start: int) -> int:
    """Return the first ordinal whose record may still be in a log that begins at `log_start`.

    A run may begin at a lower offset than the previous run. Each range of runs in which offsets only increase is
    therefore searched separately.
    """
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
