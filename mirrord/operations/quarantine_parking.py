"""Parks records before an operator command skips them, and later appends parked records to the target.

`mirrord quarantine` does this work itself, in addition to sending operator commands. No daemon is needed to append
parked records.
"""

import re

import msgspec

from mirrord.config.schema import Config, FlowConfig
from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.quarantine import Parked, lettered_from
from mirrord.ledger.standing_orders import Order, OrderAnswer, describe_origin
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.names import TopicPartition, dead_letter_topic, flow_of_ledger
from mirrord.operations.quarantine_entries import FoundEntry, find
from mirrord.operations.status_report import PATIENCE_S
from mirrord.replication.dead_letters.records import Returned, letters_words
from mirrord.replication.dead_letters.topic import DeadLetters, NotParked

WITHOUT = "--without-parking"


async def park(config: Config, order: Order, flow: str, at_ms: int) -> Order:
    """Write records to the dead-letter topic before a command skips them. Return the command with two additional
    values: the number of these records, and the offset of the first one in the dead-letter topic. Raises
    EnvironmentFault."""
    found = await find(config, msgspec.structs.replace(order, flow=flow))
    if found is None or found.entry.skipped is not None:
        reason = f"the ledger does not yet say at which record {order.name} is waiting; try again"
        raise EnvironmentFault(f"nothing was changed: {reason}")
    end = found.entry.end if order.until < 0 else order.until
    try:
        _check_policies(found)
        origin = Origin(order.by, order.reason, at_ms)
        behind = lettered_from(found.lane.quarantine)
        lying = await _dead_letters(config, found.flow).park(found.place, end, origin, behind)
    except NotParked as fault:
        raise EnvironmentFault(
            f"nothing was changed: source offsets [{found.entry.start}, {end}) cannot be parked: {fault}; {WITHOUT} "
            "skips them anyway"
        ) from fault
    return msgspec.structs.replace(order, letters=lying.letters, letters_at=lying.at)


def _dead_letters(config: Config, flow: FlowConfig) -> DeadLetters:
    return DeadLetters(flow, config.clusters[flow.source], config.clusters[flow.target])


async def bring_back(
    config: Config, order: Order, found: FoundEntry, into: str | None, *, dry_run: bool
) -> OrderAnswer:
    """Append parked records to their target topic, or to the topic `into` on the target cluster.

    Records that have already been appended are not appended again. With `dry_run`, nothing is appended, and the result
    says what would be appended. Raises EnvironmentFault. Raises ConfigError if the records cannot be appended.
    """
    lane, entry = found.lane, found.entry
    name = f"{lane.source_topic}-{lane.partition} of {found.flow.name}"
    if entry.skipped is None or entry.letters < 0:
        who = describe_origin(entry.skipped) if entry.skipped else ""
        raise ConfigError(
            f"{name}: source offsets [{entry.start}, {entry.end}) were skipped {who}, and they were not parked: "
            "there is nothing to bring back"
        )
    if not order.reason.strip():
        raise ConfigError(
            "--why: it is missing; say why the records are brought back: the reason is recorded and shown"
        )
    to = await _goal(config, found, into)
    letters = _dead_letters(config, found.flow)
    before = await letters.returned(found.place, entry.end, entry.letters_at)
    left = entry.letters - len(before)
    done: list[str] = []
    if left > 0 and dry_run:
        done = [f"{left} of {letters_words(entry.letters)} of {name} would be appended after everything in {to}"]
    elif left > 0:
        origin = Origin(order.by, order.reason, 0)
        after = await letters.bring_back(found.place, entry.end, to, origin, entry.letters_at)
        done = [f"{name}: {each}" for each in after if each not in before]
    notes = [f"{name}: {each} already" for each in before]
    notes += _missing(entry, found.flow, before, done) if not dry_run else []
    return OrderAnswer(flow=found.flow.name, done=tuple(done), notes=tuple(notes))


def _missing(entry: Parked, flow: FlowConfig, before: list[Returned], done: list[str]) -> list[str]:
    lacking = entry.letters - len(before) - len(done)
    if lacking <= 0:
        return []
    return [f"{lacking} of {letters_words(entry.letters)} are no longer in {dead_letter_topic(flow.name)}"]


def _check_policies(found: FoundEntry) -> None:
    """Raise NotParked if record policies apply to the topic.

    A policy might drop or change a record. Such a record must not be parked and later appended unchanged.
    """
    records = found.flow.records
    if records.is_on and any(re.fullmatch(pattern, found.lane.source_topic) for pattern in records.topics):
        raise NotParked(
            f"the policies of [flows.records] apply to {found.lane.source_topic}, and the records would be "
            "parked as the "
            "source holds them"
        )


async def _goal(config: Config, found: FoundEntry, into: str | None) -> TopicPartition:
    """Return the partition to which the records are appended. Raises ConfigError if appending them to this partition
    would cause harm."""
    lane, flow = found.lane, found.flow
    access = ClusterAccess(config, PATIENCE_S)
    admin = access.admin(flow.target)
    name = into or lane.target_topic
    try:
        there = (await admin.describe([name])).topics.get(name)
    finally:
        await admin.close()
    if there is None:
        raise ConfigError(f"{flow.target} has no topic {name}")
    if into is not None:
        return TopicPartition(into, lane.partition if lane.partition < there.partitions else 0)
    why = await _why_not(access, found, there)
    if why:
        raise ConfigError(f"{why}; --into TOPIC appends the records to a different topic of {flow.target}")
    return TopicPartition(name, lane.partition)


async def _why_not(access: ClusterAccess, found: FoundEntry, there: Topic) -> str:
    """Return why the records must not be appended to the target topic, or an empty string if they may be appended."""
    lane, flow = found.lane, found.flow
    if there.topic_id != lane.key.target_topic_id:
        return f"{lane.target_topic} was re-created, and is no longer the topic that lacks the records"
    upkeep = access.upkeep(flow.target)
    try:
        settings = (await upkeep.settings([lane.target_topic])).topics.get(lane.target_topic, {})
    finally:
        await upkeep.close()
    policy = settings.get("cleanup.policy")
    if policy is None or policy.value is None or "compact" in policy.value:
        compaction = "may be compacted" if policy is None or policy.value is None else "is compacted"
        return f"{lane.target_topic} {compaction}: an older record after newer ones of its key would replace them"
    if flow.naming == "identity":
        source = access.admin(flow.source)
        try:
            ledgers = sorted(filter(flow_of_ledger, (await source.describe()).topics))
        finally:
            await source.close()
        if ledgers:
            return (
                f"{ledgers[0]} exists on {flow.source}: a flow that copies back under the same names would mistake the "
                f"records for the target's own, and copy them to {flow.source}"
            )
    return ""
