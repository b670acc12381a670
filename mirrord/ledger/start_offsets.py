"""Start offsets: which partitions begin at the configured `start`, and at which offset that is.

`start` applies to the partitions that exist when a configuration first selects their topic: at the first look of the
flow, or at the first look after its selection has changed. Their offsets are resolved at that look and kept in the
ledger, so it does not matter when their lanes can open. A partition that is added later and a topic that is created
later begin at their first offset.
"""

from collections.abc import Callable, Container, Iterable

import msgspec

from mirrord.config.units import Start
from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.facts.core import ConfigChanged
from mirrord.ledger.facts.first_seen import BEGUN, UNRESOLVED, TopicStarts
from mirrord.ledger.state import FlowState
from mirrord.model.names import LaneKey


def take_starts(state: FlowState, fact: ConfigChanged) -> None:
    """Fold the start offsets and the selection of a fact. Where a lane has begun, its first run counts."""
    for told in fact.starts:
        known = state.starts.get(told.topic_id)
        begun = {at for at, offset in enumerate(known.offsets) if offset == BEGUN} if known is not None else set[int]()
        _keep(state, told, begun)
    if fact.starts:
        note_all_begun(state)
    if fact.selected is not None:
        state.selected = fact.selected


def note_begun(state: FlowState, key: LaneKey) -> None:
    """Drop the start offset of a lane that has begun, and the topic with its last one."""
    known = state.starts.get(key.source_topic_id)
    if known is not None:
        _keep(state, known, {key.partition})


def note_all_begun(state: FlowState) -> None:
    """The same for all lanes: a lane that was restored may be newer than the start offsets."""
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
    """The topics to which `start` applies from this look on.

    `selected_before` tells whether the selection of the ledger includes a topic. If an older program opened the ledger,
    nothing tells which topics existed at the first look, so all without a copy count as created later.
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


def resolvable(state: FlowState, topics: Iterable[Topic], start_at: Callable[[str], Start]) -> list[TopicStarts]:
    """What the ledger holds of these topics where offsets are still to be asked for, under the present `start`.

    An offset that was resolved by another setting counts no longer: nothing was copied from there.
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
