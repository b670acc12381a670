"""Which settings of a topic are kept like the source's, and what becomes of those that it has at their default.

The names are those of MirrorMaker 2's `use.defaults.from`; the excluded settings those of `config.properties.exclude`
(org.apache.kafka.connect.mirror.DefaultConfigPropertyFilter). Settings of tiered storage are never carried over.
"""

import re
from collections.abc import Callable, Iterable
from typing import Protocol

from mirrord.config.toml_reader import choice
from mirrord.model.errors import ConfigError

OF_STORAGE = re.compile(r"remote\.storage\.enable|remote\.log\..*|local\.retention\..*")
"""Settings of tiered storage (KIP-405). They belong to the storage of a cluster: one without tiered storage rejects
them, together with all that was asked for in the same request, also when a topic is created."""


class Properties(Protocol):
    """The rule of one flow."""

    def passes(self, name: str) -> bool:
        """Whether the setting is kept like the source's; what does not pass is never touched at the target."""
        ...

    def takes_default(self, name: str) -> bool:
        """Of a setting that the source topic has no value of its own for: whether the value that counts at the source
        is set at the target. Otherwise the target topic has none of its own either."""
        ...

    @property
    def faults(self) -> tuple[str, ...]:
        """What the rule could not decide, one line each."""
        ...


class _Excluding:
    """All settings but those whose whole name matches a pattern, and those of tiered storage."""

    faults: tuple[str, ...] = ()

    def __init__(self, exclude: Iterable[str]) -> None:
        self._exclude = [re.compile(pattern) for pattern in exclude]
        self._known: dict[str, bool] = {}

    def passes(self, name: str) -> bool:
        known = self._known.get(name)
        if known is None:
            excluded = any(pattern.fullmatch(name) for pattern in (OF_STORAGE, *self._exclude))
            known = self._known[name] = not excluded
        return known


class DefaultsOfTarget(_Excluding):
    """What the source leaves at its default, the target decides for itself."""

    def takes_default(self, name: str) -> bool:  # noqa: ARG002
        return False


class DefaultsOfSource(_Excluding):
    """What counts at the source counts at the target, too."""

    def takes_default(self, name: str) -> bool:  # noqa: ARG002
        return True


PROPERTIES: dict[str, Callable[[Iterable[str]], Properties]] = {"target": DefaultsOfTarget, "source": DefaultsOfSource}


def properties(defaults_from: str, exclude: Iterable[str]) -> Properties:
    """The rule of this name. Raises ConfigError when the name is unknown."""
    try:
        return PROPERTIES[choice(*PROPERTIES)(defaults_from)](exclude)
    except ValueError as rule:
        raise ConfigError(f'use_defaults_from: found "{defaults_from}"; allowed: {rule}') from None
