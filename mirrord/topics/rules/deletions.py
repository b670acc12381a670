"""Decide which target topics are deleted after their source topic is gone.

A target topic is deleted only if mirrord created it, only if the flow asks for deletions, and only after the grace
period recorded in the ledger has ended.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.facts.core import TopicDeletionPlanned, TopicDeletionWithdrawn
from mirrord.model.names import TopicId
from mirrord.topics.rules.recreated_topic_names import CopyNames


class TopicCopy(msgspec.Struct, frozen=True, order=True):
    """A target topic that mirrord created, according to the ledger."""

    topic: str
    topic_id: TopicId
    source_topic: str
    delete_at_ms: int | None = None
    """Wall-clock time at which it will be deleted, or None if it is kept."""
    source_topic_id: TopicId | None = None


class DeletionsPlan(msgspec.Struct, frozen=True):
    """The facts to append and the deletions to carry out."""

    facts: tuple[TopicDeletionPlanned | TopicDeletionWithdrawn, ...] = ()
    due: tuple[TopicCopy, ...] = ()
    """Copies whose deletion is in the ledger and whose grace period has ended."""
    waiting: tuple[TopicCopy, ...] = ()
    """Copies whose deletion is in the ledger and whose grace period has not ended."""


class CopiesWithoutSource(NamedTuple):
    """Copies that are still where the flow put them, but whose source topic is gone."""

    unseen: list[TopicCopy]
    """Copies for which the source shows no topic of that name."""
    replaced: list[TopicCopy]
    """Copies whose source name now belongs to another topic that has its own copy.

    The existence of the other topic proves that the former one is gone.
    """


def without_source(
    copies: Iterable[TopicCopy],
    source: Mapping[str, Topic],
    target: Mapping[str, Topic],
    target_name: Callable[[str], str | None],
    names: CopyNames,
) -> CopiesWithoutSource:
    """Find the copies whose source topic is gone.

    `target_name` returns the target topic that the naming gives a source topic of the flow, and None for any other
    topic.
    """
    gone = CopiesWithoutSource([], [])
    for copy in sorted(copies, key=lambda each: each.topic):
        if copy.topic not in target or target[copy.topic].topic_id != copy.topic_id:
            continue
        now, place = source.get(copy.source_topic), target_name(copy.source_topic)
        if place is None or (names.of(copy.source_topic_id) or place) != copy.topic:
            continue
        if now is None:
            gone.unseen.append(copy)
        elif names.replaces(now.topic_id, now.name, copy.source_topic_id):
            gone.replaced.append(copy)
    return gone


def plan_deletions(
    copies: Iterable[TopicCopy], gone: Collection[TopicCopy], now_ms: int, grace_ms: int, *, wanted: bool
) -> DeletionsPlan:
    """Plan the deletions.

    `gone` are the copies found by `without_source`. Of the unseen ones it holds only those that the cluster also
    reports as missing when it is asked for them by name.
    """
    lost = {copy.topic_id for copy in gone}
    facts: list[TopicDeletionPlanned | TopicDeletionWithdrawn] = []
    due: list[TopicCopy] = []
    waiting: list[TopicCopy] = []
    for copy in sorted(copies, key=lambda each: each.topic):
        going = wanted and copy.topic_id in lost
        if copy.delete_at_ms is None:
            if going:
                fact = TopicDeletionPlanned(copy.source_topic, copy.topic, copy.topic_id, now_ms + grace_ms)
                facts.append(fact)
        elif not going:
            reason = f"{copy.source_topic} is not gone, or its copy is" if wanted else "deletions are no longer wanted"
            facts.append(TopicDeletionWithdrawn(copy.topic, copy.topic_id, reason))
        else:
            (due if now_ms >= copy.delete_at_ms else waiting).append(copy)
    return DeletionsPlan(tuple(facts), tuple(due), tuple(waiting))
