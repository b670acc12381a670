"""Which topic configs are synced from the source, and how configs at their default are handled.

The names are those of MirrorMaker 2's `use.defaults.from`. The excluded configs are those of
`config.properties.exclude` (org.apache.kafka.connect.mirror.DefaultConfigPropertyFilter). Configs of tiered storage are
never synced.
"""

import re
from collections.abc import Callable, Iterable
from typing import Protocol

from mirrord.config.value_parsers import choice
from mirrord.model.errors import ConfigError

OF_STORAGE = re.compile(r"remote\.storage\.enable|remote\.log\..*|local\.retention\..*")
"""Configs of tiered storage (KIP-405). They belong to the storage of a cluster. A cluster without tiered storage
rejects them together with everything else in the same request, even when a topic is created."""


class Properties(Protocol):
    """The config rule of one flow."""

    def passes(self, name: str) -> bool:
        """Return whether the config is synced from the source. A config that does not pass is never changed at the
        target."""
        ...

    def takes_default(self, name: str) -> bool:
        """For a config that is not set on the source topic, return whether its effective value at the source is set at
        the target. Otherwise the config is not set on the target topic either."""
        ...

    @property
    def faults(self) -> tuple[str, ...]:
        """Return the configs that the rule could not decide on, one line each."""
        ...


class _Excluding:
    """Syncs all configs except those whose whole name matches a pattern, and those of tiered storage."""

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
    """Leaves configs that are at their default at the source to the defaults of the target."""

    def takes_default(self, name: str) -> bool:  # noqa: ARG002
        return False


class DefaultsOfSource(_Excluding):
    """Sets the effective values of the source at the target, including defaults."""

    def takes_default(self, name: str) -> bool:  # noqa: ARG002
        return True


PROPERTIES: dict[str, Callable[[Iterable[str]], Properties]] = {"target": DefaultsOfTarget, "source": DefaultsOfSource}


def properties(defaults_from: str, exclude: Iterable[str]) -> Properties:
    """Return the rule of this name. Raises ConfigError if the name is unknown."""
    try:
        return PROPERTIES[choice(*PROPERTIES)(defaults_from)](exclude)
    except ValueError as rule:
        raise ConfigError(f'use_defaults_from: found "{defaults_from}"; allowed: {rule}') from None
