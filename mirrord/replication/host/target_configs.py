"""For the lanes of one replicator, syncs and then reads the configs of target topics that have refused a record."""

import asyncio
import hashlib
from collections.abc import Iterable, Sequence

import structlog

from mirrord.kafka.client.admin_requests import NotOffered
from mirrord.kafka.client.config_and_acl_admin import KafkaUpkeepAdmin, Settings, UpkeepAdmin
from mirrord.ledger.errors import LedgerUnavailable
from mirrord.ledger.facts.core import AnyFact
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.errors import EnvironmentFault
from mirrord.replication.host.hosted_lane import Begin, HostedLane
from mirrord.replication.lane.assignment import FlowSetup
from mirrord.replication.lane.target.topic_configs import AskConfigs, ConfigsAnswer
from mirrord.topics.config_sync import SettingsSync
from mirrord.topics.rules.topic_plan import PlannedLane

DECIDING = (
    "cleanup.policy",
    "compression.type",
    "max.message.bytes",
    "message.format.version",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.difference.max.ms",
    "message.timestamp.type",
    "segment.bytes",
)
"""Configs that decide which records a topic accepts."""

log = structlog.get_logger()


class _Facts:
    """Appends facts to the ledger under a replicator's lease."""

    def __init__(self, store: LedgerStore, lease_epoch: int) -> None:
        self._store = store
        self._lease_epoch = lease_epoch

    async def write(self, facts: Iterable[AnyFact] = ()) -> bool:
        """Append facts about configs that have been altered. Return False if the facts could not be appended."""
        entry: Sequence[AnyFact] = tuple(facts)
        try:
            if entry:
                await self._store.append(self._lease_epoch, entry)
        except LedgerUnavailable as error:
            log.warning("settings_change_not_recorded", error=str(error))
            return False
        return True


class TargetConfigs:
    """Answers the requests of lanes for the configs of target topics. The connections are opened when the first record
    is refused."""

    def __init__(self, setup: FlowSetup, store: LedgerStore, begin: Begin) -> None:
        """`begin` runs a coroutine as a background task, which is cancelled when the `LaneHost` closes."""
        self._begin = begin
        self._source: UpkeepAdmin = KafkaUpkeepAdmin(setup.source, setup.request_timeout_s)
        self._target: UpkeepAdmin = KafkaUpkeepAdmin(setup.target, setup.request_timeout_s)
        self._facts = _Facts(store, setup.lease_epoch)
        self._sync = SettingsSync(setup.flow, self._source, self._target)
        self._turn = asyncio.Lock()

    def ask(self, hosted: HostedLane, effect: AskConfigs) -> None:
        """Answer a lane's request for the configs of its target topic."""
        self._begin(hosted, self._answer(hosted, effect))

    async def close(self) -> None:
        """Close the connections to both clusters."""
        await asyncio.gather(self._source.close(), self._target.close())

    async def _answer(self, hosted: HostedLane, effect: AskConfigs) -> None:
        assigned = hosted.assignment
        planned = PlannedLane(assigned.source_topic, assigned.key, assigned.target_topic)
        try:
            async with self._turn:
                answer = await self._look(planned, effect)
        except NotOffered as error:
            answer = ConfigsAnswer(effect.question, "", str(error))
        except EnvironmentFault as error:
            answer = ConfigsAnswer(effect.question, "", str(error), may_pass=True)
        hosted.tell(answer)

    async def _look(self, lane: PlannedLane, effect: AskConfigs) -> ConfigsAnswer:
        trouble = ""
        if effect.sync:
            await self._sync.round([lane], self._facts)
            trouble = self._trouble(lane.source_topic)
        seen = await self._target.settings([lane.target_topic])
        settings = seen.topics.get(lane.target_topic)
        digest = "" if settings is None else digest_of(settings)
        denied = seen.refused.get(lane.target_topic, "")
        is_denied = "AUTHORIZATION" in denied
        return ConfigsAnswer(effect.question, digest, trouble or denied, "AUTHORIZATION" in trouble, is_denied)

    def _trouble(self, topic: str) -> str:
        """Return why configs that decide which records a topic accepts (`DECIDING`) may still differ between the source
        topic and the target topic. Return an empty string if they do not differ."""
        fault = self._sync.topics.faults.get(topic, "")
        drift = self._sync.topics.drift.get(topic, ())
        differ = [line for line in drift if line.partition(":")[0] in DECIDING]
        if drift and not differ:
            return ""
        return f"{fault} ({', '.join(differ)})" if differ else fault


def digest_of(settings: Settings) -> str:
    """Return a digest of the configs in `DECIDING`. Topics with equal digests accept the same records."""
    values = [(name, settings[name].value) for name in DECIDING if name in settings]
    return hashlib.blake2b(repr(values).encode(), digest_size=8).hexdigest()
