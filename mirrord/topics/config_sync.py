"""Syncs the configs of a flow's target topics with those of the source topics. Configs that differ are altered, and the
changes are recorded in the ledger.

If a config cannot be altered, the failure is reported for the topic, and the change is retried. Other topics are not
affected.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec
import structlog

from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.admin_requests import NotOffered
from mirrord.kafka.client.config_and_acl_admin import SeenSettings, Settings, UpkeepAdmin
from mirrord.ledger.facts.core import AnyFact, ConfigChange, ConfigsSynced
from mirrord.ledger.facts.last_seen import SeenConfig
from mirrord.ledger.last_seen.configs_and_acls import SeenSourceConfigs
from mirrord.model.names import TopicId, ledger_topic
from mirrord.topics.rules.retention import Retention, retention_of
from mirrord.topics.rules.topic_configs import SettingsPlan, own_settings, plan_settings, recorded_configs
from mirrord.topics.rules.topic_plan import PlannedLane
from policies.flow_policies import properties_of
from policies.properties import Properties

log = structlog.get_logger()


class WritesFacts(Protocol):
    """Writes facts to the flow's ledger."""

    async def write(self, facts: Iterable[AnyFact] = ()) -> bool:
        """Write these facts to the ledger. Return False if they could not be written yet."""
        ...


class ConfigSyncPair(msgspec.Struct, frozen=True, order=True):
    """A source topic and its target topic, whose configs are compared."""

    source: str
    target: str
    target_id: TopicId


def pairs_of(lanes: Sequence[PlannedLane]) -> list[ConfigSyncPair]:
    """Return the source topics of these lanes, each with its target topic, in sorted order."""
    return sorted({ConfigSyncPair(lane.source_topic, lane.target_topic, lane.key.target_topic_id) for lane in lanes})


class Topics(msgspec.Struct, frozen=True):
    """Lines for operators about topics that need attention. The keys of each mapping are names of source topics."""

    faults: Mapping[str, str] = {}
    remarks: Mapping[str, str] = {}
    drift: Mapping[str, tuple[str, ...]] = {}
    """For each topic, one line about each config of the target topic that should be altered but could not be."""


class SettingsSync:
    """Syncs the topic configs of one flow."""

    def __init__(self, flow: FlowConfig, source: UpkeepAdmin, target: UpkeepAdmin) -> None:
        self._flow = flow
        self._source = source
        self._target = target
        self._rule: Properties = properties_of(flow)
        self._in_step: dict[ConfigSyncPair, tuple[Settings, Settings]] = {}
        """The topic pairs that had no differences when they were last compared, with the configs of both topics at that
        time."""
        self._was: dict[ConfigSyncPair, Settings] = {}
        """For each topic pair, the source topic's configs that the last call to `round` read. If the two topics differ
        now, these earlier configs show whether the source topic or the target topic was altered."""
        self._seen: Mapping[str, Settings] = {}
        """The source topics' configs that the last call to `round` read, by topic name."""
        self._recorded: dict[str, tuple[Settings, tuple[SeenConfig, ...]]] = {}
        """The results of `recorded_configs`, each with the settings that led to it."""
        self._remarks: dict[str, str] = {}
        self._logged: dict[str, str] = {}
        self.retention: Mapping[str, Retention] = {}
        """The retention limits of each source topic whose configs are known."""
        self.topics = Topics()

    @property
    def rule_faults(self) -> tuple[str, ...]:
        """One line about each config for which a user's policy returned no valid result."""
        return self._rule.faults

    def seen(self) -> SeenSourceConfigs:
        """Return the source topics' configs that are recorded, as the last call to `round` has read them."""
        for topic in self._recorded.keys() - self._seen.keys():
            del self._recorded[topic]
        for topic, settings in self._seen.items():
            # Without a change, the settings are the same object.
            if topic not in self._recorded or self._recorded[topic][0] is not settings:
                self._recorded[topic] = settings, recorded_configs(settings, self._rule)
        topics = {topic: recorded for topic, (_, recorded) in self._recorded.items()}
        return SeenSourceConfigs(topics=topics, known=frozenset(next(iter(self._seen.values()), ())))

    async def for_new(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        """For each of these source topics, return the configs with which to create its target topic.

        If mirrord lacks permission to read a topic's configs, the topic is omitted. The next call to `round` reports
        the missing permission. Raises EnvironmentFault if a cluster does not answer.
        """
        if not self._flow.sync.configs:
            return {}
        own = ledger_topic(self._flow.name)
        try:
            seen = await self._source.settings(topics)
            known = (await self._target.settings([own])).topics.get(own)
        except NotOffered:
            return {}
        return {topic: own_settings(settings, self._rule, known) for topic, settings in seen.topics.items()}

    async def round(self, lanes: Sequence[PlannedLane], recorder: WritesFacts) -> None:
        """Compare all topic pairs once, and alter the configs that differ. Raises EnvironmentFault if a cluster does
        not answer."""
        if not self._flow.sync.configs:
            return
        pairs = pairs_of(lanes)
        source = await self._source.settings([pair.source for pair in pairs], watch=True)
        self.retention = {
            topic: self.retention[topic] if self._seen.get(topic) is here else retention_of(_values(here))
            for topic, here in source.topics.items()
        }
        self._seen = source.topics
        target = await self._target.settings([pair.target for pair in pairs], watch=True)
        faults = _unseen(pairs, source, target)
        plans = self._plans(pairs, source, target)
        drift: dict[str, tuple[str, ...]] = {}
        if plans:
            done, refused = await self._alter(plans)
            for pair, changes in done.items():
                self._log_change(pair, changes, source.topics[pair.source])
            await recorder.write(
                ConfigsSynced(pair.source, pair.target, pair.target_id, changes) for pair, changes in done.items()
            )
            for pair, reason in refused.items():
                left = [change for change in plans[pair].changes if change not in done.get(pair, ())]
                faults[pair.source] = _refusal(pair.target, reason)
                drift[pair.source] = tuple(_difference(left))
        self._was = {pair: source.topics[pair.source] for pair in pairs if pair.source in source.topics}
        self._log_faults(faults)
        self.topics = Topics(faults, dict(self._remarks), drift)

    async def _alter(
        self, plans: Mapping[ConfigSyncPair, SettingsPlan]
    ) -> tuple[dict[ConfigSyncPair, tuple[ConfigChange, ...]], dict[ConfigSyncPair, str]]:
        """Alter the configs of the target topics. Return two mappings by topic pair: the changes that were made, and
        the reasons why changes were refused. Kafka applies either all of a request's changes to a topic or none of
        them."""
        done = {pair: plan.changes for pair, plan in plans.items()}
        answers = await self._target.alter({pair.target: _wanted(plan.changes) for pair, plan in plans.items()})
        refused = {pair: answers[pair.target] for pair in plans if pair.target in answers}
        for pair, reason in refused.items():
            changes = done.pop(pair)
            if len(changes) == 1 or "AUTHORIZATION" in reason:
                continue
            # The broker has refused the whole request because of one config, so the configs are altered one by one.
            taken: list[ConfigChange] = []
            for change in changes:
                answer = await self._target.alter({pair.target: _wanted((change,))})
                if pair.target in answer:
                    refused[pair] = answer[pair.target]
                else:
                    taken.append(change)
            if taken:
                done[pair] = tuple(taken)
        return done, refused

    def _plans(
        self, pairs: Sequence[ConfigSyncPair], source: SeenSettings, target: SeenSettings
    ) -> dict[ConfigSyncPair, SettingsPlan]:
        """Return the changes to make, by topic pair. A pair without differences is compared again only if the configs
        of one of its topics have changed."""
        plans: dict[ConfigSyncPair, SettingsPlan] = {}
        in_step: dict[ConfigSyncPair, tuple[Settings, Settings]] = {}
        remarks: dict[str, str] = {}
        for pair in pairs:
            here, there = source.topics.get(pair.source), target.topics.get(pair.target)
            if here is None or there is None:
                continue
            known = self._in_step.get(pair)
            if known is not None and known[0] is here and known[1] is there:
                in_step[pair] = known
                if pair.source in self._remarks:
                    remarks[pair.source] = self._remarks[pair.source]
                continue
            plan = plan_settings(here, there, self._rule)
            if plan.unknown:
                remarks[pair.source] = f"the target's brokers do not know {', '.join(plan.unknown)}"
            if plan.changes:
                plans[pair] = plan
            else:
                in_step[pair] = (here, there)
        self._in_step, self._remarks = in_step, remarks
        return plans

    def _log_change(self, pair: ConfigSyncPair, done: Iterable[ConfigChange], source: Settings) -> None:
        changes = _difference(done)
        if self._was.get(pair) is source:
            # The configs of the source topic have not changed, so another client has altered the target topic.
            log.warning("settings_drift_repaired", flow=self._flow.name, topic=pair.target, changes=changes)
        else:
            log.info("settings_synced", flow=self._flow.name, topic=pair.target, changes=changes)

    def _log_faults(self, faults: Mapping[str, str]) -> None:
        """Log a topic's fault when it appears or changes. Also log when it has disappeared."""
        for topic, line in faults.items():
            if self._logged.get(topic) != line:
                log.warning("settings_not_synced", flow=self._flow.name, topic=topic, reason=line)
        for topic in self._logged.keys() - faults.keys():
            log.info("settings_in_order", flow=self._flow.name, topic=topic)
        self._logged = dict(faults)


def _unseen(pairs: Sequence[ConfigSyncPair], source: SeenSettings, target: SeenSettings) -> dict[str, str]:
    faults: dict[str, str] = {}
    for pair in pairs:
        for side, topic, seen in (("source", pair.source, source), ("target", pair.target, target)):
            if topic in seen.refused:
                need = "; DESCRIBE_CONFIGS is missing" if "AUTHORIZATION" in seen.refused[topic] else ""
                line = f"the configs of the {side} topic {topic} cannot be read: {seen.refused[topic]}{need}"
                faults[pair.source] = line
    return faults


def _refusal(topic: str, reason: str) -> str:
    need = "; ALTER_CONFIGS is missing" if "AUTHORIZATION" in reason else ""
    return f"the configs of the target topic {topic} cannot be changed: {reason}{need}"


def _values(settings: Settings) -> dict[str, str | None]:
    return {name: setting.value for name, setting in settings.items()}


def _wanted(changes: Iterable[ConfigChange]) -> dict[str, str | None]:
    return {change.name: change.after for change in changes}


def _difference(changes: Iterable[ConfigChange]) -> list[str]:
    return [f"{change.name}: {_shown(change.before)} → {_shown(change.after)}" for change in changes]


def _shown(value: str | None) -> str:
    return "(default)" if value is None else value or '""'
