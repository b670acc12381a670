"""Decides which topic configs are synced from the source. Also decides what happens to configs that are not set on the
source topic.

The names of the rules are the values of MirrorMaker 2's `use.defaults.from`. The configs that are excluded by default
are those of MirrorMaker 2's `config.properties.exclude` (org.apache.kafka.connect.mirror.DefaultConfigPropertyFilter).
Tiered storage configs are never synced.
"""

import re
from collections.abc import Callable, Iterable
from typing import Protocol

from mirrord.config.value_parsers import choice
from mirrord.model.errors import ConfigError

OF_STORAGE = re.compile(r"remote\.storage\.enable|remote\.log\..*|local\.retention\..*")
"""Tiered storage configs (KIP-405). Their values depend on each cluster's storage. A cluster without tiered storage
rejects every request that contains such a config, even a request to create a topic."""


class Properties(Protocol):
    """The rule that decides which topic configs a flow syncs."""

    def passes(self, name: str) -> bool:
        """Return whether the config with this name is synced from the source. If it is not synced, mirrord never
        changes it on the target."""
        ...

    def takes_default(self, name: str) -> bool:
        """Return whether mirrord sets this config on the target topic even if it is not set on the source topic. The
        value is then the source topic's effective value. If the result is False, the target's default applies."""
        ...

    @property
    def faults(self) -> tuple[str, ...]:
        """One line about each config for which a user's policy has returned no valid result."""
        ...


class _Excluding:
    """Syncs all configs except two kinds: tiered storage configs, and configs whose entire name matches one of the
    patterns."""

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
    """If a config is not set on the source topic, it is not set on the target topic either, and the target's default
    applies."""

    def takes_default(self, name: str) -> bool:  # noqa: ARG002
        return False


class DefaultsOfSource(_Excluding):
    """All configs of the source topic are set on the target topic with their effective values, including defaults."""

    def takes_default(self, name: str) -> bool:  # noqa: ARG002
        return True


PROPERTIES: dict[str, Callable[[Iterable[str]], Properties]] = {"target": DefaultsOfTarget, "source": DefaultsOfSource}


def properties(defaults_from: str, exclude: Iterable[str]) -> Properties:
    """Return the rule for this value of `use_defaults_from`. `exclude` contains the patterns of excluded configs.
    Raises ConfigError if the value is unknown."""
    try:
        return PROPERTIES[choice(*PROPERTIES)(defaults_from)](exclude)
    except ValueError as rule:
        raise ConfigError(f'use_defaults_from: found "{defaults_from}"; allowed: {rule}') from None
