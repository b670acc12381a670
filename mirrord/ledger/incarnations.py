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


class Incarnations:
    """What the ledger tells of former topics, for as long as nothing is added to it.

    Thousands of lanes ask when they begin together, so each looks at those of its own topics only.
    """

    def __init__(self, state: FlowState) -> None:
        self._forgotten = state.forgotten_topics
        self._sources: dict[str, set[TopicId]] = {}
        self._copies: dict[tuple[str, TopicId, int], list[LaneState]] = {}
        for lane in state.lanes.values():
            key = lane.key
            self._sources.setdefault(lane.source_topic, set()).add(key.source_topic_id)
            self._copies.setdefault((lane.target_topic, key.source_topic_id, key.partition), []).append(lane)

    def is_again(self, source_topic: str, source_topic_id: TopicId) -> bool:
        """The flow has copied from a former topic of this name: whatever the new one holds was never seen."""
        ids = self._sources.get(source_topic, ())
        return source_topic in self._forgotten or any(each != source_topic_id for each in ids)

    def copied_from(self, key: LaneKey, target_topic: str) -> int | None:
        """The first source offset that stood in a former target topic of this name; None: there was none, or it was
        empty.

        What MirrorMaker 2 had left there went with it, so then nothing is too old.
        """
        firsts = [
            0 if lane.inherited is not None else first.offset
            for lane in self._copies.get((target_topic, key.source_topic_id, key.partition), ())
            if lane.key.target_topic_id != key.target_topic_id and (first := lane.source_runs.first) is not None
        ]
        return min(firsts, default=None)


class Lately:
    """The newest of them."""

    def __init__(self) -> None:
        self._read: tuple[FlowState, int] | None = None
        self._found: Incarnations | None = None

    def of(self, state: FlowState) -> Incarnations:
        """As the ledger tells now."""
        found, read = self._found, self._read
        if found is None or read is None or read[0] is not state or read[1] != state.next_offset:
            found = self._found = Incarnations(state)
            self._read = (state, state.next_offset)
        return found


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
