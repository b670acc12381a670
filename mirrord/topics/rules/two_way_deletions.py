"""Handles the deletion of a topic on one of two clusters between which it is copied in both directions under the same
name.

The topic contains the records of both clusters, on each of them. So a deletion is not propagated, because that would
delete records that were written on the other cluster. The topic is not created again either: the flow to that cluster
would copy only the records that were written on the other cluster, so the new topic would be incomplete.
"""

from collections.abc import Collection, Iterable, Mapping

from mirrord.kafka.rules.topic import Topic
from mirrord.model.names import Alias, TopicId

_DELETED = (
    "{topic} was deleted at {target} and is still at {source}, with the records of both clusters: it is neither "
    "deleted there nor created again, because it is copied both ways; delete it at {source} as well, or create it at "
    "{target} by hand, which then gets only what was written at {source}"
)
_HALF = (
    "{topic} was deleted at {target} and created again: what had been written there before is at {source} alone; "
    "`mirrord divergence` lists it"
)


def not_again(
    source: Iterable[Topic],
    former: Mapping[tuple[TopicId, str], Collection[TopicId]],
    copied_here: Collection[TopicId],
    aliases: tuple[Alias, Alias],
) -> dict[str, str]:
    """Return the source topics whose missing target topic must not be created again, each with the reason.

    These are the topics that have existed under this name on both clusters. `former` holds the ids of all target topics
    that were ever copied into. `copied_here` are the ids of source topics into which the flow in the opposite direction
    has copied. `aliases` are those of source and target.
    """
    return {
        topic.name: _DELETED.format(topic=topic.name, source=aliases[0], target=aliases[1])
        for topic in source
        if former.get((topic.topic_id, topic.name)) or topic.topic_id in copied_here
    }


def halves(
    source: Iterable[Topic],
    target: Mapping[str, Topic],
    former: Mapping[tuple[TopicId, str], Collection[TopicId]],
    aliases: tuple[Alias, Alias],
) -> dict[str, str]:
    """Return the source topics whose target topic was deleted and created again, each with a line that says what is
    missing there."""
    found: dict[str, str] = {}
    for topic in source:
        there = target.get(topic.name)
        ids = set(former.get((topic.topic_id, topic.name), ()))
        if there is not None and ids - {there.topic_id}:
            found[topic.name] = _HALF.format(topic=topic.name, source=aliases[0], target=aliases[1])
    return found


def both_ways_deletions(flow_back: str, topics: Collection[str]) -> str:
    """Return a line for the status that says why target topics without a source topic are not deleted."""
    names = ", ".join(sorted(topics))
    return f"not deleted, though their source topics are gone, because the flow {flow_back} copies them back: {names}"
