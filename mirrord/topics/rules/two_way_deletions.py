"""Handle the deletion of a topic on one of two clusters that copy it both ways under the same name.

Both topics hold the records of both clusters. The deletion is not propagated, because it would delete records that were
written on the other side. The topic is not created again either, because the flow back has only the records that were
written there.
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
    """Return the source topics that both clusters have had under this name.

    Each comes with the reason why a missing target topic is not created again. `former` are the ids of target topics
    that were copied into; `copied_here` are the ids of source topics that the flow back has copied into. `aliases` name
    source and target.
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
    """Return the source topics whose target topic has been recreated, each with the consequence."""
    found: dict[str, str] = {}
    for topic in source:
        there = target.get(topic.name)
        ids = set(former.get((topic.topic_id, topic.name), ()))
        if there is not None and ids - {there.topic_id}:
            found[topic.name] = _HALF.format(topic=topic.name, source=aliases[0], target=aliases[1])
    return found


def both_ways_deletions(flow_back: str, topics: Collection[str]) -> str:
    """Return, for the status, why copies without a source topic are not deleted."""
    names = ", ".join(sorted(topics))
    return f"not deleted, though their source topics are gone, because the flow {flow_back} copies them back: {names}"
