"""Maps a source topic to its name at the target, and back.

The names are those of Kafka's own replication policies, so that tools for MirrorMaker 2 understand them: `prefix` is
DefaultReplicationPolicy, `identity` is IdentityReplicationPolicy (org.apache.kafka.connect.mirror). Any other name is a
template.
"""

from collections.abc import Callable
from typing import Protocol

from mirrord.config.value_parsers import choice
from mirrord.model.errors import ConfigError
from mirrord.model.names import Alias

SEPARATOR = "."
HEARTBEATS = "heartbeats"
PLACE = "{topic}"
"""The place in a template where the topic name is inserted."""


class Naming(Protocol):
    """The topic names of one flow. `source_topic` inverts `target_topic` exactly."""

    def target_topic(self, source_topic: str) -> str:
        """Return the name at the target."""
        ...

    def source_topic(self, target_topic: str) -> str | None:
        """Return the name at the source, or None for a topic that this flow cannot have written."""
        ...

    def target_prefix(self, prefix: str) -> str | None:
        """Return the prefix of the copies of all topics that begin with this prefix at the source. Return None if no
        prefix matches exactly those copies.

        Heartbeats topics, which have their own names, are not considered.
        """
        ...

    def hops(self, topic: str) -> tuple[Alias, ...]:
        """Return the clusters whose aliases this name carries, the latest first. Clusters that the name does not show
        are omitted."""
        ...


class PrefixNaming:
    """Names `orders` of cluster `eu` as `eu.orders`. Names show where records come from, so flows may form rings."""

    def __init__(self, source: Alias, separator: str = SEPARATOR) -> None:
        self._prefix = source + separator
        self._separator = separator

    def target_topic(self, source_topic: str) -> str:
        return self._prefix + source_topic

    def source_topic(self, target_topic: str) -> str | None:
        if not target_topic.startswith(self._prefix) or target_topic == self._prefix:
            return None
        return target_topic.removeprefix(self._prefix)

    def target_prefix(self, prefix: str) -> str | None:
        return self._prefix + prefix

    def hops(self, topic: str) -> tuple[Alias, ...]:
        """Return every part before the last. As in MirrorMaker 2, a local topic `a.b` counts as one that
        came from `a`."""
        return tuple(topic.split(self._separator)[:-1])


class IdentityNaming:
    """Keeps names unchanged, for migrations and for consumers that must not notice the change.

    Only heartbeats topics get the prefix, as in IdentityReplicationPolicy, because each cluster has its own heartbeats.
    """

    def __init__(self, source: Alias, separator: str = SEPARATOR) -> None:
        self._prefix = PrefixNaming(source, separator)
        self._separator = separator

    def target_topic(self, source_topic: str) -> str:
        if is_heartbeats(source_topic, self._separator):
            return self._prefix.target_topic(source_topic)
        return source_topic

    def source_topic(self, target_topic: str) -> str | None:
        if is_heartbeats(target_topic, self._separator):
            return self._prefix.source_topic(target_topic)
        return target_topic

    def target_prefix(self, prefix: str) -> str | None:
        return prefix

    def hops(self, topic: str) -> tuple[Alias, ...]:
        return self._prefix.hops(topic) if is_heartbeats(topic, self._separator) else ()


class TemplateNaming:
    """Adds fixed text before or after the name, as in `dr-{topic}`. Names do not show where records come from."""

    def __init__(self, template: str, source: Alias, separator: str = SEPARATOR) -> None:
        self._before, _, self._behind = template.partition(PLACE)
        self._heartbeats = IdentityNaming(source, separator)
        self._separator = separator

    def target_topic(self, source_topic: str) -> str:
        if is_heartbeats(source_topic, self._separator):
            return self._heartbeats.target_topic(source_topic)
        return f"{self._before}{source_topic}{self._behind}"

    def source_topic(self, target_topic: str) -> str | None:
        if is_heartbeats(target_topic, self._separator):
            return self._heartbeats.source_topic(target_topic)
        inner = target_topic[len(self._before) : len(target_topic) - len(self._behind)]
        return inner if inner and self.target_topic(inner) == target_topic else None

    def target_prefix(self, prefix: str) -> str | None:
        return None if self._behind else self._before + prefix

    def hops(self, topic: str) -> tuple[Alias, ...]:
        return self._heartbeats.hops(topic)


def is_heartbeats(topic: str, separator: str = SEPARATOR) -> bool:
    """Return whether this is MirrorMaker 2's heartbeats topic, of this cluster or copied from others."""
    return topic == HEARTBEATS or topic.endswith(separator + HEARTBEATS)


NAMINGS: dict[str, Callable[[Alias, str], Naming]] = {"prefix": PrefixNaming, "identity": IdentityNaming}


def naming(name: str, source: Alias, separator: str = SEPARATOR) -> Naming:
    """Return the naming of this name or template, for a flow that copies from `source`.

    Raises ConfigError if the name is unknown.
    """
    if PLACE in name:
        return TemplateNaming(name, source, separator)
    try:
        return NAMINGS[choice(*NAMINGS)(name)](source, separator)
    except ValueError as rule:
        raise ConfigError(f'naming: found "{name}"; allowed: {rule}') from None
