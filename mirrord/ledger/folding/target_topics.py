"""Applies the facts about target topics to the state of a flow."""

import msgspec

from mirrord.ledger.facts.core import (
    ConfigsSynced,
    CopyForgotten,
    CopyNamed,
    PartitionsGrown,
    TopicCreated,
    TopicDeleted,
    TopicDeletionPlanned,
    TopicDeletionWithdrawn,
    TopicFact,
)
from mirrord.ledger.folding.failovers import has_ended
from mirrord.ledger.prune import forget_copy
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import TargetTopic
from mirrord.model.names import TopicId


def apply_to_topic(state: FlowState, fact: TopicFact, offset: int) -> bool:
    """Apply a fact. Return whether it takes effect. `offset` is that of its entry in the ledger."""
    match fact:
        case TopicCreated():
            return _create_topic(state, fact)
        case PartitionsGrown():
            return _grow_partitions(state, fact)
        case ConfigsSynced():
            return True
        case TopicDeletionPlanned():
            return _plan_deletion(state, fact.target_topic_id, fact.due_ms)
        case TopicDeletionWithdrawn():
            return _plan_deletion(state, fact.target_topic_id, None)
        case TopicDeleted():
            return state.topics.pop(fact.target_topic_id, None) is not None
        case CopyForgotten():
            return forget_copy(state, fact, offset)
        case CopyNamed():
            return _name_copy(state, fact)


def _name_copy(state: FlowState, fact: CopyNamed) -> bool:
    of_others = any(each.target_topic == fact.target_topic for each in state.named.values()) or any(
        lane.target_topic == fact.target_topic and lane.key.source_topic_id != fact.source_topic_id
        for lane in state.lanes.values()
    )
    if of_others or fact.source_topic_id in state.named:
        return False
    state.named[fact.source_topic_id] = fact
    return True


def _plan_deletion(state: FlowState, topic_id: TopicId, due_ms: int | None) -> bool:
    """Plan the deletion of a target topic, or withdraw the plan if `due_ms` is None. Only topics that mirrord created
    are ever deleted, and none after a failover. A planned time cannot be changed, only withdrawn."""
    known = state.topics.get(topic_id)
    if known is not None and due_ms is not None and has_ended(state.recoveries, known.source_topic):
        return False
    if known is None or not known.created or (known.delete_at_ms is None) == (due_ms is None):
        return False
    state.topics[topic_id] = msgspec.structs.replace(known, delete_at_ms=due_ms)
    return True


def _create_topic(state: FlowState, fact: TopicCreated) -> bool:
    if fact.target_topic_id in state.topics:
        return False
    state.topics[fact.target_topic_id] = TargetTopic(
        topic=fact.target_topic,
        topic_id=fact.target_topic_id,
        partitions=fact.partitions,
        created=True,
        source_topic=fact.source_topic,
        source_topic_id=fact.source_topic_id,
    )
    return True


def _grow_partitions(state: FlowState, fact: PartitionsGrown) -> bool:
    known = state.topics.get(fact.target_topic_id)
    if known is not None and fact.partitions <= known.partitions:
        return False
    topic = known or TargetTopic(fact.target_topic, fact.target_topic_id, fact.partitions, created=False)
    state.topics[fact.target_topic_id] = msgspec.structs.replace(topic, partitions=fact.partitions)
    return True
