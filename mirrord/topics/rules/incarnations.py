"""Topics that were deleted and created again: where their new lanes begin, and under which names.

A source topic: what the new one holds was never seen. A target topic: what the former one held is copied again, as far
back as the source still has it.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from mirrord.config.schema import FlowConfig
from mirrord.config.units import Start
from mirrord.ledger.facts.first_seen import BEGUN
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.names import LaneKey, TopicId
from mirrord.topics.rules.copy_names import NAMING_ALONE, CopyNames


class FixedStart(NamedTuple):
    """A start offset, and the setting that it was resolved by."""

    start: Start
    offset: int


class Before(NamedTuple):
    """What the ledger says of a source partition before a lane of it begins."""

    source: bool = False
    """Another source topic of the name was copied."""
    copied_from: int | None = None
    """Another target topic of the name held the records from this source offset on."""
    began_at: int | None = None
    """A target topic of another name holds the records from this source offset on."""
    late: bool = False
    """The partition was added, or its topic created, after the flow's first look at it."""
    fixed: FixedStart | None = None
    """The start offset that was resolved at that look."""


class Incarnations:
    """What the ledger tells of former topics, for as long as nothing is added to it.

    Thousands of lanes ask when they begin together, so each looks at those of its own topics only.
    """

    def __init__(self, state: FlowState) -> None:
        self._forgotten = state.forgotten_topics
        self._starts = dict(state.starts)
        self._looked = state.selected is not None
        self._sources: dict[str, set[TopicId]] = {}
        self._copies: dict[tuple[str, TopicId, int], list[LaneState]] = {}
        self._began: dict[TopicId, dict[int, int]] = {}
        for lane in state.lanes.values():
            key = lane.key
            self._sources.setdefault(lane.source_topic, set()).add(key.source_topic_id)
            self._copies.setdefault((lane.target_topic, key.source_topic_id, key.partition), []).append(lane)
            if (first := lane.source_runs.first) is not None:
                begun = self._began.setdefault(key.source_topic_id, {})
                offset = 0 if lane.inherited is not None else first.offset
                begun[key.partition] = min(offset, begun.get(key.partition, offset))

    def before(self, key: LaneKey, source_topic: str, target_topic: str) -> Before:
        """All of it, for a lane that is about to begin."""
        again = self.is_again(source_topic, key.source_topic_id)
        known = (self.copied_from(key, target_topic), self.began_at(key), self.is_late(key), self.fixed_start(key))
        return Before(again, *known)

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

    def began_at(self, key: LaneKey) -> int | None:
        """The first offset of the source partition that was copied into any target topic; None: nothing was copied."""
        return self._began.get(key.source_topic_id, {}).get(key.partition)

    def is_late(self, key: LaneKey) -> bool:
        """Whether the source partition was added, or its topic created, after the flow's first look at it."""
        known = self._starts.get(key.source_topic_id)
        if known is not None:
            return key.partition >= len(known.offsets) or known.offsets[key.partition] == BEGUN
        return self._looked or key.source_topic_id in self._began

    def fixed_start(self, key: LaneKey) -> FixedStart | None:
        """The start offset that was resolved when the source partition was first seen; None: there is none."""
        known = self._starts.get(key.source_topic_id)
        if known is None or key.partition >= len(known.offsets) or known.offsets[key.partition] < 0:
            return None
        return FixedStart(known.start, known.offsets[key.partition])


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


def start_offsets(state: FlowState, start_at: Callable[[str], Start]) -> Callable[[str, TopicId, int], int | None]:
    """Tells the offset at which a partition without a lane begins; None while `start` is not resolved for it.

    A lane that begins at the first record counts as beginning at 0.
    """
    found = Incarnations(state)

    def offset(topic: str, topic_id: TopicId, partition: int) -> int | None:
        key, start = LaneKey(topic_id, partition, TopicId("")), start_at(topic)
        if start == "earliest" or found.is_late(key):
            return 0
        fixed = found.fixed_start(key)
        return fixed.offset if fixed is not None and fixed.start == start else None

    return offset


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
