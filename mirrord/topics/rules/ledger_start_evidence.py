"""Determines what the ledger says about a source partition before the partition's lane begins. `partition_start` uses
this evidence to decide where the lane begins.

For example, this module determines whether a topic was deleted and re-created. If a source topic was re-created, no
record of the new topic has been copied yet. If a target topic was re-created, the records of the former target topic
are copied again, provided that the source still has them.
"""

from collections.abc import Callable

from mirrord.config.value_parsers import StartPoint
from mirrord.ledger.facts.start_offsets import BEGUN
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.names import LaneKey, TopicId
from mirrord.topics.rules.partition_start import FixedStart, LedgerEvidence, partition_start


class Incarnations:
    """Answers questions about former topics and about where lanes start, based on one state of the ledger. The answers
    are valid until the next entry is added to the ledger.

    Thousands of lanes may begin at the same time. Therefore, the lanes in the ledger are grouped by topic once, so that
    no question requires examining all of them.
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

    def before(self, key: LaneKey, source_topic: str, target_topic: str) -> LedgerEvidence:
        """Return the evidence in the ledger that decides where the new lane with this key starts."""
        again = self.is_again(source_topic, key.source_topic_id)
        known = (self.copied_from(key, target_topic), self.began_at(key), self.is_late(key), self.fixed_start(key))
        return LedgerEvidence(again, *known)

    def is_again(self, source_topic: str, source_topic_id: TopicId) -> bool:
        """Return whether the flow has copied a former source topic with this name. If so, the topic with this id was
        re-created, and none of its records has been copied yet."""
        ids = self._sources.get(source_topic, ())
        return source_topic in self._forgotten or any(each != source_topic_id for each in ids)

    def copied_from(self, key: LaneKey, target_topic: str) -> int | None:
        """Return the source offset of the first record that was copied into a former target topic with this name.
        Return None if there was no former topic, or if no record was copied into it.

        If the former target topic also contained records that MirrorMaker 2 had copied, these records were deleted with
        it. In that case, the result is 0, so that all records that the source still has are copied again.
        """
        firsts = [
            0 if lane.inherited is not None else first.offset
            for lane in self._copies.get((target_topic, key.source_topic_id, key.partition), ())
            if lane.key.target_topic_id != key.target_topic_id and (first := lane.source_runs.first) is not None
        ]
        return min(firsts, default=None)

    def began_at(self, key: LaneKey) -> int | None:
        """Return the source offset of the first record that was copied from the partition into any target topic. Return
        None if no record was copied.
        """
        return self._began.get(key.source_topic_id, {}).get(key.partition)

    def is_late(self, key: LaneKey) -> bool:
        """Return whether the partition was created after the flow first selected its topics. The configured `start`
        does not apply to such a partition."""
        known = self._starts.get(key.source_topic_id)
        if known is not None:
            return key.partition >= len(known.offsets) or known.offsets[key.partition] == BEGUN
        return self._looked or key.source_topic_id in self._began

    def fixed_start(self, key: LaneKey) -> FixedStart | None:
        """Return the start offset that the ledger contains for the source partition. The configured `start` was
        resolved to this offset when the topic was first selected. Return None if the ledger contains no such offset.
        """
        known = self._starts.get(key.source_topic_id)
        if known is None or key.partition >= len(known.offsets) or known.offsets[key.partition] < 0:
            return None
        return FixedStart(known.start, known.offsets[key.partition])


class Lately:
    """Keeps the `Incarnations` object of the ledger state that was requested last, until this state changes or a
    different one is requested."""

    def __init__(self) -> None:
        self._read: tuple[FlowState, int] | None = None
        self._found: Incarnations | None = None

    def of(self, state: FlowState) -> Incarnations:
        """Return the `Incarnations` for this state of the ledger: what the state says about former topics, and about
        where lanes start."""
        found, read = self._found, self._read
        if found is None or read is None or read[0] is not state or read[1] != state.next_offset:
            found = self._found = Incarnations(state)
            self._read = (state, state.next_offset)
        return found

    def forget(self) -> None:
        """Release the kept object. It takes memory for every lane in the ledger, and is only needed while lanes
        begin."""
        self._read = self._found = None


def start_offsets(state: FlowState, start_at: Callable[[str], StartPoint]) -> Callable[[str, TopicId, int], int | None]:
    """Return a function that determines the offset at which the lane of a source partition will begin. The function is
    for partitions that have no lane yet.

    The function returns 0 if the lane will begin at the first record. It returns None if the configured `start`, such
    as "latest", has not yet been resolved to an offset in the partition.
    """
    found = Incarnations(state)

    def offset(topic: str, topic_id: TopicId, partition: int) -> int | None:
        key = LaneKey(topic_id, partition, TopicId(""))
        evidence = LedgerEvidence(late=found.is_late(key), fixed=found.fixed_start(key))
        decided = partition_start(start_at(topic), evidence)
        return 0 if decided.ask == "earliest" else decided.at_most

    return offset
