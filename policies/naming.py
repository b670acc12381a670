"""Maps a source topic to its name on the target, and back.

`prefix` names topics as Kafka's DefaultReplicationPolicy does, and `identity` names them as IdentityReplicationPolicy
does (org.apache.kafka.connect.mirror). Tools for MirrorMaker 2 therefore understand the names. A string that contains
`{topic}` is a template for names.
"""

from collections.abc import Callable
from typing import Protocol

from mirrord.config.value_parsers import choice
from mirrord.model.errors import ConfigError
from mirrord.model.names import Alias

SEPARATOR = "."
HEARTBEATS = "heartbeats"
PLACE = "{topic}"
"""The text in a template that is replaced by the topic's name."""


class Naming(Protocol):
    """Maps the topic names of one flow in both directions. `source_topic` is the exact inverse of `target_topic`."""

    def target_topic(self, source_topic: str) -> str:
        """Return the name of this source topic's target topic."""
        ...

    def source_topic(self, target_topic: str) -> str | None:
        """Return the name of this target topic's source topic. Return None if the flow cannot have created the target
        topic."""
        ...

    def target_prefix(self, prefix: str) -> str | None:
        """Return the prefix of the target topics of all source topics whose names begin with `prefix`. Return None if
        there is no prefix that only these target topics have.

        Heartbeats topics are ignored, because they are named differently.
        """
        ...

    def hops(self, topic: str) -> tuple[Alias, ...]:
        """Return the aliases of the clusters that the topic has passed through according to its name, most recent
        cluster first. Clusters that are not part of the name are omitted.
        """
        ...


class PrefixNaming:
    """Adds the source's alias as a prefix. For example, the target topic of `orders` from cluster `eu` is `eu.orders`.
    A name shows which clusters the topic has passed through. Flows can therefore form a ring without copying a topic
    back to a cluster that it came from."""

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
        """Return all parts of the name except the last part. As in MirrorMaker 2, a local topic `a.b` is treated as a
        topic that came from a cluster `a`."""
        return tuple(topic.split(self._separator)[:-1])


class IdentityNaming:
    """Gives target topics the names of their source topics. This is useful for migrations, and for consumers whose
    configuration must not change.

    Only heartbeats topics get the source's alias as a prefix, as in IdentityReplicationPolicy, because each cluster has
    its own heartbeats topic.
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
    """Adds fixed text before or after a topic's name, for example with the template `dr-{topic}`. Such a name does not
    show which clusters the topic has passed through."""

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
    """Return whether this is the name of a MirrorMaker 2 heartbeats topic, either a local one or a copy from another
    cluster."""
    return topic == HEARTBEATS or topic.endswith(separator + HEARTBEATS)


NAMINGS: dict[str, Callable[[Alias, str], Naming]] = {"prefix": PrefixNaming, "identity": IdentityNaming}


def naming(name: str, source: Alias, separator: str = SEPARATOR) -> Naming:
    """Return the naming for a flow that copies from `source`. `name` is the name of a built-in naming, or a template.

    Raises ConfigError if `name` is neither a built-in naming nor a template.
    """
    if PLACE in name:
        return TemplateNaming(name, source, separator)
    try:
        return NAMINGS[choice(*NAMINGS)(name)](source, separator)
    except ValueError as rule:
        raise ConfigError(f'naming: found "{name}"; allowed: {rule}') from None
