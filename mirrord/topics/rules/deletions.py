"""Which copies go when their source topic is gone.

Only what mirrord created itself, only when the flow asks for it, and not before a time of grace that the ledger has
told is over.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

import msgspec

from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.facts.core import TopicDeletionPlanned, TopicDeletionWithdrawn
from mirrord.model.names import TopicId
from mirrord.topics.rules.copy_names import CopyNames


class Copy(msgspec.Struct, frozen=True, order=True):
    """A target topic that mirrord created, by the ledger."""

    topic: str
    topic_id: TopicId
    source_topic: str
    delete_at_ms: int | None = None
    """When it goes, on the wall clock; None: it stays."""
    source_topic_id: TopicId | None = None


class DeletionsPlan(msgspec.Struct, frozen=True):
    """What is to be told, and what is to be done."""

    facts: tuple[TopicDeletionPlanned | TopicDeletionWithdrawn, ...] = ()
    due: tuple[Copy, ...] = ()
    """Told, and their time is over."""
    waiting: tuple[Copy, ...] = ()
    """Told, and their time is not over."""


class Gone(NamedTuple):
    """Copies that are what and where the flow has put them, and without the source topic that they are of."""

    unseen: list[Copy]
    """There is no topic of that name to be seen at the source."""
    replaced: list[Copy]
    """Another one has the name, and a copy of its own: one of two topics of a name proves that the other is gone."""


def without_source(
    copies: Iterable[Copy],
    source: Mapping[str, Topic],
    target: Mapping[str, Topic],
    target_name: Callable[[str], str | None],
    names: CopyNames,
) -> Gone:
    """`target_name` tells the naming's target topic of a source topic that the flow copies, None for any other."""
    gone = Gone([], [])
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
    copies: Iterable[Copy], gone: Collection[Copy], now_ms: int, grace_ms: int, *, wanted: bool
) -> DeletionsPlan:
    """`gone` are those of `without_source`; of the unseen ones only those of which the cluster says the same when it is
    asked by name."""
    lost = {copy.topic_id for copy in gone}
    facts: list[TopicDeletionPlanned | TopicDeletionWithdrawn] = []
    due: list[Copy] = []
    waiting: list[Copy] = []
    for copy in sorted(copies, key=lambda each: each.topic):
        going = wanted and copy.topic_id in lost
        if copy.delete_at_ms is None:
            if going:
                fact = TopicDeletionPlanned(copy.source_topic, copy.topic, copy.topic_id, now_ms + grace_ms)
                facts.append(fact)
        elif not going:
            reason = (
                f"{copy.source_topic} is not gone, or its copy is" if wanted else "deletions are not wanted any more"
            )
            facts.append(TopicDeletionWithdrawn(copy.topic, copy.topic_id, reason))
        else:
            (due if now_ms >= copy.delete_at_ms else waiting).append(copy)
    return DeletionsPlan(tuple(facts), tuple(due), tuple(waiting))
