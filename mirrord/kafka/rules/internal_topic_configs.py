"""Checks the configs and the number of replicas of mirrord's own topics. With three or more brokers, each topic should
have three replicas."""

from collections.abc import Iterator, Mapping

import msgspec

from mirrord.config.schema import FlowConfig
from mirrord.kafka.rules.topic import Topic
from mirrord.model.findings import Finding
from mirrord.model.names import Alias

REPLICAS = 3
IN_SYNC = 2
MIN_IN_SYNC = "min.insync.replicas"
TWO_BROKERS = (
    "two brokers: the ledger's topics have two replicas and min.insync.replicas=1, so the flow runs while one broker "
    "is down. What is written in the meantime is on one disk only: if that disk is lost, the ledger loses its end. "
    "Every process then notices the loss and stops, and the flow needs `mirrord rebuild`"
)
TWO_BROKERS_DO = (
    "use a third broker; or set min.insync.replicas=2 on both topics, and the flow stops whenever one broker is down"
)


class Wrong(msgspec.Struct, frozen=True):
    """A config of a topic that must be changed, because the topic can lose data with the current value."""

    key: str
    value: str
    must_be: str


def wrong_settings(needed: Mapping[str, str], values: Mapping[str, str | None], replicas: int) -> list[Wrong]:
    """Return the configs of a topic that have a wrong value. `needed` contains the required values, and `values`
    contains the current values. `replicas` is the topic's number of replicas, or 0 if it is unknown.

    A config that mirrord may not read counts as correct.
    """
    found = [
        Wrong(key, value, wanted)
        for key, wanted in needed.items()
        if (value := values.get(key)) is not None and value != wanted
    ]
    in_sync = values.get(MIN_IN_SYNC)
    if replicas >= REPLICAS and in_sync is not None and in_sync.isdigit() and int(in_sync) < IN_SYNC:
        found.append(Wrong(MIN_IN_SYNC, in_sync, str(IN_SYNC)))
    return found


def few_replicas(topic: Topic, target: Alias, brokers: int) -> str:
    """Return one line for operators if a topic has too few replicas, or an empty string otherwise. A topic should have
    three replicas, or one for each broker if there are fewer than three brokers."""
    wanted = min(REPLICAS, brokers)
    if not topic.replicas or topic.replicas >= wanted:
        return ""
    return (
        f"the topic {topic.name} has {topic.replicas} of {wanted} replicas that the brokers of {target} allow: "
        "reassign it, so that its content survives the loss of a broker"
    )


def ledger_findings(
    flow: FlowConfig,
    needed: Mapping[str, Mapping[str, str]],
    topics: Mapping[str, Topic],
    values: Mapping[str, Mapping[str, str]],
    brokers: int,
) -> Iterator[Finding]:
    """Yield the findings of `mirrord check` about the configs and the replicas of the ledger's topics, and about a
    cluster with only two brokers.

    `needed` maps each topic to the configs that it must have. `values` are the current configs. A topic may not exist
    yet.
    """
    for name in sorted(needed.keys() & topics.keys()):
        where = f"{flow.target}: topic {name}"
        for wrong in wrong_settings(needed[name], values.get(name, {}), topics[name].replicas):
            yield Finding(
                severity="warning",
                flow=flow.name,
                where=where,
                what=f"it has {wrong.key}={wrong.value}, which loses facts",
                do=f"set {wrong.key}={wrong.must_be}; the daemon does it if it has ALTER_CONFIGS",
            )
        if line := few_replicas(topics[name], flow.target, brokers):
            yield Finding(severity="warning", flow=flow.name, where=where, what=line)
    if brokers == IN_SYNC:
        kept = [values.get(name, {}).get(MIN_IN_SYNC, "1") for name in needed]
        if any(value == "1" for value in kept):
            where = f"{flow.target}: the flow's ledger"
            yield Finding(severity="note", flow=flow.name, where=where, what=TWO_BROKERS, do=TWO_BROKERS_DO)
