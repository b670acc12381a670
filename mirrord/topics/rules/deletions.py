"""Decides which target topics are deleted after their source topics have been deleted.

A target topic is deleted only if mirrord has created the topic, `propagate_deletes` is true for the flow, and the grace
period has ended. The ledger contains the time at which the grace period ends. `mirrord.topics.deletion_sync` checks
two more conditions: the topic has no records of other clients, and it is not copied in both directions under the same
name.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.facts.core import TopicDeletionPlanned, TopicDeletionWithdrawn
from mirrord.model.names import TopicId
from mirrord.topics.rules.recreated_topic_names import CopyNames


class TopicCopy(msgspec.Struct, frozen=True, order=True):
    """A target topic that mirrord has created according to the ledger, and the source topic that it is a copy of."""

    topic: str
    topic_id: TopicId
    source_topic: str
    delete_at_ms: int | None = None
    """Wall-clock time at which the target topic will be deleted. None if no deletion is planned."""
    source_topic_id: TopicId | None = None


class DeletionsPlan(msgspec.Struct, frozen=True):
    """The facts to write to the ledger, and the target topics to delete now or later."""

    facts: tuple[TopicDeletionPlanned | TopicDeletionWithdrawn, ...] = ()
    due: tuple[TopicCopy, ...] = ()
    """Target topics to delete now: their deletion is planned in the ledger, and the grace period has ended."""
    waiting: tuple[TopicCopy, ...] = ()
    """Target topics to delete later: their deletion is planned in the ledger, and the grace period has not ended."""


class CopiesWithoutSource(NamedTuple):
    """Target topics that still exist and still belong to the flow, but whose source topics are missing."""

    unseen: list[TopicCopy]
    """Target topics whose source topic is not in the source's list of topics."""
    replaced: list[TopicCopy]
    """Target topics whose source topic was deleted and re-created. The new source topic is copied into a different
    target topic (`on_recreated = "fresh"`)."""


def without_source(
    copies: Iterable[TopicCopy],
    source: Mapping[str, Topic],
    target: Mapping[str, Topic],
    target_name: Callable[[str], str | None],
    names: CopyNames,
) -> CopiesWithoutSource:
    """Find the target topics whose source topics are missing.

    `source` and `target` are the existing topics of the two clusters. `target_name` returns the target topic of a
    source topic, according to the flow's naming, or None if the flow does not copy the topic.
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
    """Plan the deletion of target topics, and withdraw planned deletions that are no longer justified.

    `gone` are the target topics whose source topics no longer exist. The caller takes them from the result of
    `without_source`. The source's list of topics may be incomplete, so the caller must first ask the source by name
    about each source topic of `unseen`. `wanted` is false if the flow must not delete topics.
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
            reason = (
                f"{copy.source_topic} exists, or its copy no longer does"
                if wanted
                else "deletions are no longer wanted"
            )
            facts.append(TopicDeletionWithdrawn(copy.topic, copy.topic_id, reason))
        else:
            (due if now_ms >= copy.delete_at_ms else waiting).append(copy)
    return DeletionsPlan(tuple(facts), tuple(due), tuple(waiting))
