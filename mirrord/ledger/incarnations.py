"""Topics that were deleted and created again: new lanes, and what of the former topic was left behind.

A source topic: what the new one holds was never seen. A target topic: what the former one held is copied again, as far
back as the source still has it.
"""

from collections.abc import Container, Mapping

from mirrord.cluster.copy_names import NAMING_ALONE, CopyNames
from mirrord.cluster.topics import Topic
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.config import FlowConfig
from mirrord.model.facts import Verdict, VerdictGiven
from mirrord.model.names import LaneId, LaneKey, TopicId


def is_again(state: FlowState, source_topic: str, source_topic_id: TopicId) -> bool:
    """The flow has copied from a former topic of this name: whatever the new one holds was never seen."""
    return source_topic in state.forgotten_topics or any(
        lane.source_topic == source_topic and lane.key.source_topic_id != source_topic_id
        for lane in state.lanes.values()
    )


def copy_names(state: FlowState, flow: FlowConfig) -> CopyNames:
    """What the ledger tells of the names of the flow's copies."""
    fresh = flow.on_recreated == "fresh"
    if not fresh and not state.named:
        return NAMING_ALONE
    copied: dict[str, dict[TopicId, None]] = {}
    for lane in sorted(state.lanes.values(), key=lambda lane: lane.age):
        copied.setdefault(lane.source_topic, {})[lane.key.source_topic_id] = None
    ids = {topic: tuple(found) for topic, found in copied.items()}
    held = frozenset(lane.target_topic for lane in state.lanes.values())
    return CopyNames(dict(state.named), ids, held, fresh, flow.separator)


def former_copies(state: FlowState) -> Mapping[tuple[TopicId, str], frozenset[TopicId]]:
    """Under which ids there were target topics, for each source topic and the name of its target topic."""
    found: dict[tuple[TopicId, str], frozenset[TopicId]] = {}
    for lane in state.lanes.values():
        where = (lane.key.source_topic_id, lane.target_topic)
        found[where] = found.get(where, frozenset()) | {lane.key.target_topic_id}
    return found


def copied_from(state: FlowState, key: LaneKey, target_topic: str) -> int | None:
    """The first source offset that stood in a former target topic of this name; None: there was none, or it was empty.

    What MirrorMaker 2 had left there went with it, so then nothing is too old.
    """
    firsts = [
        0 if lane.inherited is not None else first.offset
        for lane in state.lanes.values()
        if lane.target_topic == target_topic  # first: it is asked for every lane, and tells nearly all others apart
        and (lane.key.source_topic_id, lane.partition) == (key.source_topic_id, key.partition)
        and lane.key.target_topic_id != key.target_topic_id
        and (first := lane.source_runs.first) is not None
    ]
    return min(firsts, default=None)


def left_behind(state: FlowState, source: Mapping[str, Topic], hosted: Container[LaneId]) -> list[VerdictGiven]:
    """Verdicts on what former topics held and was not copied, as far as their ends were seen.

    `source` holds the topics that are there now. A lane that is still hosted may be copying the rest.
    """
    told: list[VerdictGiven] = []
    for lane_id, lane in state.lanes.items():
        now = source.get(lane.source_topic)
        if now is None or now.topic_id == lane.key.source_topic_id or lane_id in hosted or lane.grant == 0:
            continue
        progress = state.progress.get(lane_id)
        if progress is None or progress.source_end <= progress.source_offset or _is_told(lane):
            continue
        verdict = Verdict(progress.source_offset, progress.source_end, "recreated")
        line = f"{lane.source_topic} was deleted and created again; the former one ended there when it was seen last"
        told.append(VerdictGiven(lane_id, lane.grant, (verdict,), line))
    return told


def _is_told(lane: LaneState) -> bool:
    return bool(lane.verdicts.counts.get("recreated"))
