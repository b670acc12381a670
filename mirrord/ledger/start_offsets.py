"""Determines which partitions are copied from the configured `start` on. For each of these partitions, keeps the source
offset to which `start` refers (the partition's start offset).

`start` applies to the partitions that exist when a configuration first selects their topic. The topic is first selected
at the first discovery of the flow, or at the first discovery after the flow's selection of topics has changed. The
start offsets are resolved at that discovery and kept in the ledger. They do not change, even if a lane is not opened
until much later. Partitions and topics that are created later are copied from their first offset on.
"""

from collections.abc import Callable, Container, Iterable

import msgspec

from mirrord.config.value_parsers import StartPoint
from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.facts.core import ConfigChanged
from mirrord.ledger.facts.start_offsets import BEGUN, UNRESOLVED, TopicStarts
from mirrord.ledger.state import FlowState
from mirrord.model.names import LaneKey


def take_starts(state: FlowState, fact: ConfigChanged) -> None:
    """Fold the start offsets and the selection of topics that a fact contains. Start offsets of lanes that have begun
    to copy are ignored, because the first run of a lane shows where it began."""
    for starts in fact.starts:
        known = state.starts.get(starts.topic_id)
        begun = {at for at, offset in enumerate(known.offsets) if offset == BEGUN} if known is not None else set[int]()
        _keep(state, starts, begun)
    if fact.starts:
        note_all_begun(state)
    if fact.selected is not None:
        state.selected = fact.selected


def note_begun(state: FlowState, key: LaneKey) -> None:
    """Drop the start offset of a lane that has begun to copy. When the last start offset of a topic is dropped, the
    topic is removed from `FlowState.starts`."""
    known = state.starts.get(key.source_topic_id)
    if known is not None:
        _keep(state, known, {key.partition})


def note_all_begun(state: FlowState) -> None:
    """Drop the start offsets of all lanes that have runs, because these lanes have begun to copy. `note_begun` was not
    called for a lane that was restored from a snapshot record newer than the start offsets."""
    for lane in state.lanes.values() if state.starts else ():
        if lane.source_runs:
            note_begun(state, lane.key)


def _keep(state: FlowState, starts: TopicStarts, begun: Container[int]) -> None:
    offsets = tuple(BEGUN if at in begun else offset for at, offset in enumerate(starts.offsets))
    if all(offset == BEGUN for offset in offsets):
        state.starts.pop(starts.topic_id, None)
    else:
        state.starts[starts.topic_id] = msgspec.structs.replace(starts, offsets=offsets)


def first_selected(state: FlowState, topics: Iterable[Topic], selected_before: Callable[[str], bool]) -> list[Topic]:
    """Return those of the discovered topics that the flow now selects for the first time. `start` applies to these
    topics.

    `selected_before` returns whether the selection rules that the ledger records already selected a topic. If an older
    version of mirrord or `mirrord rebuild` opened the ledger, the first selection may not be recorded. In this case, no
    topic is returned, and all topics that are not yet being copied are copied from their first offset on.
    """
    if state.selected is None and not state.keeps_starts:
        return []
    ids = {lane.key.source_topic_id for lane in state.lanes.values()} | state.starts.keys()
    names = {lane.source_topic for lane in state.lanes.values()} | state.forgotten_topics.keys()
    return [
        topic
        for topic in topics
        if topic.topic_id not in ids
        and topic.name not in names
        and not (state.selected is not None and selected_before(topic.name))
    ]


def resolvable(state: FlowState, topics: Iterable[Topic], start_at: Callable[[str], StartPoint]) -> list[TopicStarts]:
    """Return the topics for which start offsets still have to be resolved under the current `start`. The start offsets
    that are already known are included.

    If an offset was resolved under a different value of `start` and its lane has not begun to copy, it is resolved
    again.
    """
    found: list[TopicStarts] = []
    for topic in topics if state.starts else ():
        known, start = state.starts.get(topic.topic_id), start_at(topic.name)
        if known is None or start == "earliest":
            continue
        if known.start != start:
            known = msgspec.structs.replace(
                known,
                start=start,
                offsets=tuple(BEGUN if offset == BEGUN else UNRESOLVED for offset in known.offsets),
            )
        if UNRESOLVED in known.offsets:
            found.append(known)
    return found
