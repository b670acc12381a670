"""The configs and ACLs of the source that are synced to the target, and the configs that decide what retention deletes
on the source. They are recorded when they change."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mirrord.ledger.facts.core import Progress
from mirrord.ledger.facts.last_seen import LastSeen, SeenConfig, SeenConfigs
from mirrord.ledger.last_seen.records import (
    BUCKETS,
    bucket_of,
    buckets,
    changed_contents,
    contents,
    refusal_record,
    summary_key,
)
from mirrord.ledger.state import FlowState
from mirrord.model.acls import AclRule

_CONFIGS, _ACLS = "seen-configs", "seen-acls"


class SeenSourceConfigs(NamedTuple):
    """The configs of the source topics."""

    at_ms: int = -1
    """Time at which they were last read, or -1 if they never were. They may have been read later, but at most
    `mirrord.ledger.last_seen.records.CHECKED_MS` milliseconds later."""
    topics: Mapping[str, tuple[SeenConfig, ...]] = {}
    """The recorded configs of each source topic that could be read."""
    known: frozenset[str] = frozenset()
    """The names of all topic configs that the source's brokers know."""


class SeenAcls(NamedTuple):
    """The ACLs of the source."""

    at_ms: int = -1
    """As in `SeenSourceConfigs`."""
    rules: frozenset[AclRule] = frozenset()
    """The ACLs on topics and, if those are synced, on groups."""
    refused: str = ""
    """Why they could not be read, or an empty string."""


def seen_configs(state: FlowState) -> SeenSourceConfigs:
    """Return the configs of the source topics according to the records of the state topic."""
    summary = contents(state, summary_key(_CONFIGS))
    if summary is None:
        return SeenSourceConfigs()
    every = (each for bucket in buckets(state, _CONFIGS) for each in bucket.configs)
    return SeenSourceConfigs(summary.at_ms, {each.topic: each.configs for each in every}, frozenset(summary.known))


def seen_acls(state: FlowState) -> SeenAcls:
    """Return the ACLs of the source according to the records of the state topic."""
    summary = contents(state, summary_key(_ACLS))
    if summary is None:
        return SeenAcls()
    rules = frozenset(rule for bucket in buckets(state, _ACLS) for rule in bucket.rules)
    return SeenAcls(summary.at_ms, rules, summary.refused)


def config_records(state: FlowState, seen: SeenSourceConfigs, lease_epoch: int, now_ms: int) -> list[Progress]:
    """Return the records to write if the source topics have these configs now. The summary is the last record."""
    divided: list[list[SeenConfigs]] = [[] for _ in range(BUCKETS)]
    for topic, configs in sorted(seen.topics.items()):
        divided[bucket_of(topic)].append(SeenConfigs(topic, tuple(configs)))
    divided_records = [LastSeen(now_ms, configs=tuple(each)) for each in divided]
    summary = LastSeen(now_ms, known=tuple(sorted(seen.known)))
    return changed_contents(state, _CONFIGS, divided_records, summary, lease_epoch)


def acl_records(
    state: FlowState, rules: Iterable[AclRule], refused: str, lease_epoch: int, now_ms: int
) -> list[Progress]:
    """Return the records to write if the source has these ACLs now. If they could not be read (`refused`), the recorded
    ones stay in force. The summary is the last record."""
    if refused:
        return refusal_record(state, _ACLS, refused, lease_epoch, now_ms)
    divided: list[list[AclRule]] = [[] for _ in range(BUCKETS)]
    for rule in sorted(rules):
        divided[bucket_of(rule.name)].append(rule)
    divided_records = [LastSeen(now_ms, rules=tuple(each)) for each in divided]
    return changed_contents(state, _ACLS, divided_records, LastSeen(now_ms), lease_epoch)
