"""Handles deletions of topics that are copied in both directions between two clusters, under the same names.

On each of the two clusters, such a topic contains the records of both clusters. If it is deleted on one cluster, the
deletion is not propagated, because that would also delete records that were written on the other cluster.

The deleted topic is not re-created, either. The flow to that cluster would copy only the records that were written
on the other cluster, so the new topic would be incomplete.
"""

from collections.abc import Collection, Iterable, Mapping

from mirrord.kafka.rules.topic import Topic
from mirrord.model.names import Alias, TopicId

_DELETED = (
    "{topic} was deleted on {target} and still exists on {source}, with the records of both clusters: it is neither "
    "deleted there nor re-created, because it is copied both ways; delete it on {source} as well, or create it on "
    "{target} by hand; it then gets only what was written on {source}"
)
_HALF = (
    "{topic} was deleted on {target} and re-created: what had been written there before is only on {source}; "
    "`mirrord divergence` lists it"
)


def not_again(
    source: Iterable[Topic],
    former: Mapping[tuple[TopicId, str], Collection[TopicId]],
    copied_here: Collection[TopicId],
    aliases: tuple[Alias, Alias],
) -> dict[str, str]:
    """Return a reason for each source topic whose target topic, if missing, must not be re-created.

    These are the source topics that this flow has already copied, and those into which the opposite flow has copied. In
    both cases, the target cluster has had a topic with the same name. `former` contains the ids of all target topics
    that this flow has ever copied into. `copied_here` are the ids of source topics into which the opposite flow has
    copied. `aliases` are the aliases of the source and the target.
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
    """Return a line for each source topic whose target topic was deleted and re-created. The line says which records
    are missing from the new target topic."""
    found: dict[str, str] = {}
    for topic in source:
        there = target.get(topic.name)
        ids = set(former.get((topic.topic_id, topic.name), ()))
        if there is not None and ids - {there.topic_id}:
            found[topic.name] = _HALF.format(topic=topic.name, source=aliases[0], target=aliases[1])
    return found


def both_ways_deletions(flow_back: str, topics: Collection[str]) -> str:
    """Return one line for operators that says why these target topics are not deleted although their source topics no
    longer exist."""
    names = ", ".join(sorted(topics))
    why = f"because the flow {flow_back} copies them back"
    return f"not deleted, although their source topics no longer exist, {why}: {names}"
