"""How target topics are created, and which of their settings differ from what the flow wants.

A setting is the topic's own when it was set on the topic itself, as everywhere in Kafka's tools; all else is the
cluster's. What the source topic has of its own, the target topic gets as its own.
"""

from collections.abc import Collection, Iterable, Mapping

import msgspec

from mirrord.config.schema import ReplicationFactor
from mirrord.kafka.protocol.configs import Setting
from mirrord.kafka.rules.topic import BROKER_DEFAULT, Topic
from mirrord.ledger.facts.core import ConfigChange
from policies.properties import Properties


class SettingsPlan(msgspec.Struct, frozen=True):
    """From what the target topic has to what it should have."""

    changes: tuple[ConfigChange, ...] = ()
    unknown: tuple[str, ...] = ()
    """Settings that the source topic has of its own and the target's brokers do not know."""


def replication_factor(rule: ReplicationFactor, source_replicas: int) -> int:
    """Of the copy of a topic with so many replicas; 0 stands for "not known"."""
    if isinstance(rule, int):
        return rule
    return source_replicas if rule == "source" and source_replicas else BROKER_DEFAULT


def fewer_replicas(rule: ReplicationFactor, pairs: Iterable[tuple[Topic, Topic]], brokers: int) -> str:
    """One line when target topics have fewer replicas than the rule asks for because the target has too few brokers.

    `pairs` are source topics and their copies.
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
    """What a new target topic is created with.

    `known` are the settings that the target's brokers know, or None where nobody could tell.
    """
    return {
        name: setting.value
        for name, setting in source.items()
        if _travels(name, setting, rule)
        and (setting.own or rule.takes_default(name))
        and setting.value is not None
        and (known is None or name in known)
    }


def plan_settings(source: Mapping[str, Setting], target: Mapping[str, Setting], rule: Properties) -> SettingsPlan:
    """What to alter at the target topic.

    What does not pass the rule is left as it is, and so is what only the target's brokers know.
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


def _travels(name: str, setting: Setting, rule: Properties) -> bool:
    return not setting.fixed and not setting.sensitive and rule.passes(name)


def _count(number: int, what: str = "replica") -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
