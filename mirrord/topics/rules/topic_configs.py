"""Determines the replication factor and the configs with which target topics are created, and which of their configs
must be altered later.

A config that was set on a topic itself is the topic's own config. The values of all other configs are set on the
brokers, or are Kafka's defaults. A source topic's own configs are also set on its target topic.
"""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from mirrord.config.schema import ReplicationFactor
from mirrord.kafka.protocol.configs import Setting
from mirrord.kafka.rules.topic import BROKER_DEFAULT, Topic
from mirrord.ledger.facts.core import ConfigChange
from mirrord.ledger.facts.last_seen import SeenConfig
from mirrord.topics.rules.retention import RETENTION_CONFIGS
from policies.properties import Properties


class SettingsPlan(msgspec.Struct, frozen=True):
    """The changes to make to the configs of one target topic."""

    changes: tuple[ConfigChange, ...] = ()
    unknown: tuple[str, ...] = ()
    """Names of the source topic's own configs that the target's brokers do not know."""


def replication_factor(rule: ReplicationFactor, source_replicas: int) -> int:
    """Return the replication factor for a target topic. `source_replicas` is the number of replicas of the source
    topic, or 0 if it is unknown."""
    if isinstance(rule, int):
        return rule
    return source_replicas if rule == "source" and source_replicas else BROKER_DEFAULT


def fewer_replicas(rule: ReplicationFactor, pairs: Iterable[tuple[Topic, Topic]], brokers: int) -> str:
    """Return one line for operators if target topics have fewer replicas than required because the target has too few
    brokers. Return an empty string if there are no such topics.

    `pairs` are the source topics with their target topics.
    """
    short = [
        (target.name, target.replicas, wanted)
        for source, target in pairs
        if brokers < (wanted := replication_factor(rule, source.replicas)) and 0 < target.replicas < wanted
    ]
    if not short:
        return ""
    name, replicas, wanted = short[0]
    more = f" (and {len(short) - 1} more topics)" if len(short) > 1 else ""
    return f"{name} has {_count(replicas)} instead of {wanted}{more}: the target has {_count(brokers, 'broker')}"


def own_settings(source: Mapping[str, Setting], rule: Properties, known: Collection[str] | None) -> dict[str, str]:
    """Return the configs with which to create a new target topic. `source` contains the effective configs of the source
    topic.

    `known` contains the names of the configs that the target's brokers know, or is None if these names are unknown.
    """
    return {
        name: setting.value
        for name, setting in source.items()
        if _travels(name, setting, rule)
        and (setting.own or rule.takes_default(name))
        and setting.value is not None
        and (known is None or name in known)
    }


def recorded_configs(source: Mapping[str, Setting], rule: Properties) -> tuple[SeenConfig, ...]:
    """Return those configs of a source topic that are recorded, sorted by name: those that its target topic should have
    as well, and those that decide what retention deletes on the source."""
    return tuple(
        SeenConfig(name, setting.value, setting.own)
        for name, setting in sorted(source.items())
        if name in RETENTION_CONFIGS or (_travels(name, setting, rule) and (setting.own or rule.takes_default(name)))
    )


def plan_settings(source: Mapping[str, Setting], target: Mapping[str, Setting], rule: Properties) -> SettingsPlan:
    """Plan which configs of the target topic to alter.

    Two kinds of configs are not changed: configs that `rule` excludes, and configs that only the target's brokers know.
    """
    changes: list[ConfigChange] = []
    unknown: list[str] = []
    for name, wanted in source.items():
        if not _travels(name, wanted, rule):
            continue
        there = target.get(name)
        if there is None:
            if wanted.own:
                unknown.append(name)
            continue
        if there.fixed or there.sensitive:
            continue
        before = there.value if there.own else None
        if wanted.own:
            if wanted.value != before:
                changes.append(ConfigChange(name, before, wanted.value))
        elif rule.takes_default(name):
            if wanted.value is not None and wanted.value != there.value:
                changes.append(ConfigChange(name, before, wanted.value))
        elif there.own:
            changes.append(ConfigChange(name, before, None))
    return SettingsPlan(tuple(sorted(changes, key=lambda change: change.name)), tuple(sorted(unknown)))


def source_settings(recorded: Iterable[SeenConfig], known: Iterable[str]) -> dict[str, Setting]:
    """Return those configs of a source topic that `plan_settings` needs, from the result of `recorded_configs` and
    the names of all configs that the source's brokers know."""
    return {name: Setting(None, own=False) for name in known} | {
        each.name: Setting(each.value, each.own) for each in recorded
    }


def _travels(name: str, setting: Setting, rule: Properties) -> bool:
    return not setting.fixed and not setting.sensitive and rule.passes(name)


def _count(number: int, what: str = "replica") -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
