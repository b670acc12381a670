"""How a source topic is named at the target, and back.

The names are those of Kafka's own replication policies, so that tools which know MirrorMaker 2 understand them:
`prefix` is DefaultReplicationPolicy, `identity` is IdentityReplicationPolicy (org.apache.kafka.connect.mirror). Any
other name is a template.
"""

from collections.abc import Callable
from typing import Protocol

from mirrord.config.toml_reader import choice
from mirrord.model.errors import ConfigError
from mirrord.model.names import Alias

SEPARATOR = "."
HEARTBEATS = "heartbeats"
PLACE = "{topic}"
"""Where a template takes the name."""


class Naming(Protocol):
    """One flow's names. `source_topic` undoes `target_topic` exactly."""

    def target_topic(self, source_topic: str) -> str:
        """The name at the target."""
        ...

    def source_topic(self, target_topic: str) -> str | None:
        """The name at the source, or None for a topic that this flow cannot have written."""
        ...

    def target_prefix(self, prefix: str) -> str | None:
        """How the names of all copies begin whose names at the source begin so; None when no prefix fits them alone.

        Heartbeats topics, which have names of their own, are left out of account."""
        ...

    def hops(self, topic: str) -> tuple[Alias, ...]:
        """The clusters whose aliases this name carries, the latest first; what a name cannot tell is not there."""
        ...


class PrefixNaming:
    """`orders` of cluster `eu` becomes `eu.orders`: names say where records come from, so flows may form rings."""

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
        """Every piece before the last. As in MirrorMaker 2 a local topic `a.b` counts as one that came from `a`."""
        return tuple(topic.split(self._separator)[:-1])


class IdentityNaming:
    """Names stay as they are, for migrations and for consumers that must not notice.

    Heartbeats topics alone get the prefix, as in IdentityReplicationPolicy: each cluster has one of its own.
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
    """`dr-{topic}`: a fixed text before or behind the name. It does not tell where records come from."""

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
    """Whether this is MirrorMaker 2's heartbeats topic, of this cluster or copied from others."""
    return topic == HEARTBEATS or topic.endswith(separator + HEARTBEATS)


NAMINGS: dict[str, Callable[[Alias, str], Naming]] = {"prefix": PrefixNaming, "identity": IdentityNaming}


def naming(name: str, source: Alias, separator: str = SEPARATOR) -> Naming:
    """The naming of this name, or of this template, for a flow that copies from `source`.

    Raises ConfigError when the name is unknown.
    """
    if PLACE in name:
        return TemplateNaming(name, source, separator)
    try:
        return NAMINGS[choice(*NAMINGS)(name)](source, separator)
    except ValueError as rule:
        raise ConfigError(f'naming: found "{name}"; allowed: {rule}') from None
