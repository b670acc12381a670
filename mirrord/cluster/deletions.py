"""Which copies go when their source topic is gone.

Only what mirrord created itself, only when the flow asks for it, and not before a time of grace that the ledger has
told is over.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

import msgspec

from mirrord.cluster.topics import Topic
from mirrord.model.facts import TopicDeletionPlanned, TopicDeletionWithdrawn
from mirrord.model.names import TopicId


class Copy(msgspec.Struct, frozen=True, order=True):
    """A target topic that mirrord created, by the ledger."""

    topic: str
    topic_id: TopicId
    source_topic: str
    delete_at_ms: int | None = None
    """When it goes, on the wall clock; None: it stays."""


class DeletionsPlan(msgspec.Struct, frozen=True):
    """What is to be told, and what is to be done."""

    facts: tuple[TopicDeletionPlanned | TopicDeletionWithdrawn, ...] = ()
    due: tuple[Copy, ...] = ()
    """Told, and their time is over."""
    waiting: tuple[Copy, ...] = ()
    """Told, and their time is not over."""


def without_source(
    copies: Iterable[Copy],
    source: Collection[str],
    target: Mapping[str, Topic],
    target_name: Callable[[str], str | None],
) -> list[Copy]:
    """Those whose source topic is not to be seen, and which are what and where the flow would put them now.

    `target_name` tells the target topic of a source topic that the flow copies, None for any other.
    """
    return sorted(
        copy
        for copy in copies
        if copy.source_topic not in source
        and copy.topic in target
        and target[copy.topic].topic_id == copy.topic_id
        and target_name(copy.source_topic) == copy.topic
    )


def plan_deletions(
    copies: Iterable[Copy], gone: Collection[Copy], now_ms: int, grace_ms: int, *, wanted: bool
) -> DeletionsPlan:
    """`gone` are those of `without_source` whose source topic does not exist, by the cluster's own word."""
    lost = {copy.topic_id for copy in gone}
    facts: list[TopicDeletionPlanned | TopicDeletionWithdrawn] = []
    due: list[Copy] = []
    waiting: list[Copy] = []
    for copy in sorted(copies):
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
