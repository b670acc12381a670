"""Topics of one name on two clusters that are copied both ways, when one of the two is deleted.

Both hold the records of both clusters. A deletion is not carried over, because it would delete what was written at the
other side. The topic is not created again either, because the flow back has only what was written there.
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
    """Source topics that both clusters have had under this name, and why a missing one is not created again.

    `former` are the ids of target topics that were copied into, `copied_here` those of source topics that the flow back
    has copied into; `aliases` name source and target.
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
    """Source topics whose target topic is another one than before, and what that means."""
    found: dict[str, str] = {}
    for topic in source:
        there = target.get(topic.name)
        ids = set(former.get((topic.topic_id, topic.name), ()))
        if there is not None and ids - {there.topic_id}:
            found[topic.name] = _HALF.format(topic=topic.name, source=aliases[0], target=aliases[1])
    return found


def both_ways_deletions(flow_back: str, topics: Collection[str]) -> str:
    """Why copies without a source topic are not deleted, for the status."""
    names = ", ".join(sorted(topics))
    return f"not deleted, though their source topics are gone, because the flow {flow_back} copies them back: {names}"
