"""How a source topic is named at the target, and back.

The names are those of Kafka's own replication policies, so that tools which know MirrorMaker 2 understand them:
`prefix` is DefaultReplicationPolicy, `identity` is IdentityReplicationPolicy (org.apache.kafka.connect.mirror).
"""

from collections.abc import Callable
from typing import Protocol

from mirrord.model.config_reader import choice
from mirrord.model.errors import ConfigError
from mirrord.model.names import Alias

SEPARATOR = "."


class Naming(Protocol):
    """One flow's names. `source_topic` undoes `target_topic` exactly."""

    def target_topic(self, source_topic: str) -> str:
        """The name at the target."""
        ...

    def source_topic(self, target_topic: str) -> str | None:
        """The name at the source, or None for a topic that this flow cannot have written."""
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

    def hops(self, topic: str) -> tuple[Alias, ...]:
        """Every piece before the last. As in MirrorMaker 2 a local topic `a.b` counts as one that came from `a`."""
        return tuple(topic.split(self._separator)[:-1])


class IdentityNaming:
    """Names stay as they are, for migrations and for consumers that must not notice."""

    def target_topic(self, source_topic: str) -> str:
        return source_topic

    def source_topic(self, target_topic: str) -> str | None:
        return target_topic

    def hops(self, topic: str) -> tuple[Alias, ...]:  # noqa: ARG002 - the answer is the same for every name
        return ()


NAMINGS: dict[str, Callable[[Alias], Naming]] = {
    "prefix": PrefixNaming,
    "identity": lambda source: IdentityNaming(),  # noqa: ARG005 - names do not depend on where they come from
}


def naming(name: str, source: Alias) -> Naming:
    """The naming of this name for a flow that copies from `source`. Raises ConfigError when the name is unknown."""
    try:
        return NAMINGS[choice(*NAMINGS)(name)](source)
    except ValueError as rule:
        raise ConfigError(f'naming: found "{name}"; allowed: {rule}') from None
