"""Upkeep: everything that a flow's holder keeps in sync in addition to records.

Upkeep covers configs, ACLs, deletions of topics, and records for MirrorMaker 2's clients. Each of these has its own
faults, which are reported, and is tried again. None of them stops another, or the copying.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

import structlog

from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.admin_requests import NotOffered
from mirrord.kafka.client.config_and_acl_admin import UpkeepAdmin
from mirrord.ledger.facts.core import AnyFact, TopicDeleted
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.fact_recorder import Recorder
from mirrord.mm2.client_records import Mm2Upkeep
from mirrord.model.errors import EnvironmentFault
from mirrord.model.group_status import TranslatedPosition
from mirrord.model.names import TopicId
from mirrord.model.status import LatencyStatus, TopicStatus
from mirrord.runtime.clock import Clock
from mirrord.supervision.internal_topic_sync import OwnSettings
from mirrord.topics.acl_sync import AclSync
from mirrord.topics.config_sync import SettingsSync, pairs_of
from mirrord.topics.discovery import Discovered, DiscoveryPreview
from mirrord.topics.rules.deletions import DeletionsPlan, TopicCopy, plan_deletions, without_source
from mirrord.topics.rules.incarnations import copy_names
from mirrord.topics.rules.two_way_deletions import both_ways_deletions
from policies.flows import selection_of

FIRST_S = 0.1
"""Pause while the first result of discovery is not there yet."""

ForeignRecord = Callable[[TopicCopy, FlowState], Awaitable[str]]
"""Returns where a target topic holds the first record that is not the flow's; empty if there is no such record."""

log = structlog.get_logger()


class Upkeep:
    """The upkeep loops of one flow."""

    def __init__(
        self,
        flow: FlowConfig,
        source: UpkeepAdmin,
        target: UpkeepAdmin,
        clock: Clock,
        mm2: Mm2Upkeep | None = None,
        foreign: ForeignRecord | None = None,
        flow_back: Callable[[], str] = str,
    ) -> None:
        """`foreign` searches a target topic for records of other writers.

        `flow_back` returns the name of a flow that copies topics of the same names back.
        """
        self._foreign = foreign
        self._flow_back = flow_back
        self._kept: dict[TopicId, str] = {}
        """Target topics that are not deleted, because they hold other writers' records."""
        self._flow = flow
        self._source = source
        self._target = target
        self._clock = clock
        self._mm2 = mm2
        self._selection = selection_of(flow)
        self.settings = SettingsSync(flow, source, target)
        self._own = OwnSettings(flow, target)
        self._acls = AclSync(flow, self._selection.selects, source, target)
        self._deletions: tuple[str, ...] = ()
        self._faults: dict[str, str] = {}
        self._discovered: Discovered | None = None
        self._refreshed = asyncio.Event()

    def see(self, discovered: Discovered) -> None:
        """Take the state of the clusters as discovery has just seen it."""
        self._discovered = discovered
        self._refreshed.set()
        if self._mm2 is not None:
            self._mm2.see(discovered)

    def see_groups(self, positions: Iterable[TranslatedPosition]) -> None:
        """Take the current positions of consumer groups."""
        if self._mm2 is not None:
            self._mm2.record(positions)

    async def run(self, ledger: Callable[[], FlowState], recorder: Recorder) -> None:
        """Run all loops until cancelled."""
        self._discovered = None
        self._faults.clear()
        mm2 = () if self._mm2 is None else (self._mm2.run(ledger),)
        await asyncio.gather(self._keep(ledger, recorder), self._delete(ledger, recorder), *mm2)

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.gather(self._source.close(), self._target.close())

    @property
    def faults(self) -> list[str]:
        """Everything that is currently not kept in sync, one line each."""
        settings = (*self.settings.topics.faults.values(), *self.settings.rule_faults)
        return [line for line in (*self._faults.values(), self._acls.fault, *settings) if line]

    @property
    def remarks(self) -> tuple[str, ...]:
        """Information that is useful to operators, one line each."""
        mm2 = () if self._mm2 is None else self._mm2.remarks
        return (*self._own.remarks, *self._acls.remarks, *self._deletions, *mm2)

    @property
    def latency(self) -> LatencyStatus | None:
        """The latency of copied records, measured by the heartbeats that the flow copies."""
        return None if self._mm2 is None else self._mm2.latency

    def topics(self, discovered: Discovered | None) -> tuple[TopicStatus, ...]:
        """Return the topics that need attention."""
        known = self.settings.topics
        faults = dict(discovered.faults) if discovered else {}
        remarks = dict(discovered.remarks) if discovered else {}
        targets = dict(discovered.names) if discovered else {}
        names = sorted({*faults, *remarks, *known.faults, *known.remarks, *known.drift})
        return tuple(
            TopicStatus(
                topic=name,
                target_topic=targets.get(name, ""),
                faults=tuple(each[name] for each in (faults, known.faults) if name in each),
                remarks=tuple(each[name] for each in (remarks, known.remarks) if name in each),
                drift=known.drift.get(name, ()),
            )
            for name in names
        )

    async def _keep(self, ledger: Callable[[], FlowState], recorder: Recorder) -> None:
        while True:
            discovered = self._discovered
            if discovered is None:
                await asyncio.sleep(FIRST_S)
                continue
            await self._try("mirrord's own topics", lambda seen=discovered: self._own.round(seen.target))
            await self._try("settings", lambda seen=discovered: self.settings.round(seen.lanes, recorder))
            copies = {pair.target: pair.source for pair in pairs_of(discovered.lanes)}
            await self._try("ACLs", lambda copies=copies: self._acls.round(copies, ledger(), recorder))
            await asyncio.sleep(self._flow.sync.every_ms / 1000)

    async def _delete(self, ledger: Callable[[], FlowState], recorder: Recorder) -> None:
        """Handle deletions after each poll of discovery."""
        while True:
            await self._refreshed.wait()
            self._refreshed.clear()
            discovered = self._discovered
            if discovered is not None:
                await self._try("deletions", lambda seen=discovered: self._delete_gone(seen, ledger(), recorder))

    async def _delete_gone(self, discovered: Discovered, ledger: FlowState, recorder: Recorder) -> None:
        copies, back = copies_of(ledger), self._flow_back()
        wanted = self._flow.propagate_deletes and not back
        gone: list[TopicCopy] = []
        if self._flow.propagate_deletes:
            gone = await gone_copies(self._flow, discovered, ledger, self._source)
        plan = plan_deletions(copies, gone, self._clock.wall_ms(), self._flow.delete_grace_ms, wanted=wanted)
        for fact in plan.facts:
            log.warning("topic_deletion", flow=self._flow.name, topic=fact.target_topic, kind=type(fact).__name__)
        facts: list[AnyFact] = list(plan.facts)
        written = await recorder.write(facts)
        refused: dict[str, str] = {}
        due = [copy for copy in plan.due if not await self._keeps(copy, ledger)] if written else []
        if due:
            answers = await self._target.delete([copy.topic_id for copy in due])
            refused = {copy.topic: answers[copy.topic_id] for copy in due if copy.topic_id in answers}
            done = [copy for copy in due if copy.topic not in refused]
            for copy in done:
                log.warning("topic_deleted", flow=self._flow.name, topic=copy.topic)
            await recorder.write(TopicDeleted(copy.topic, copy.topic_id) for copy in done)
        self._deletions = self._deletion_remarks(plan, [copy.topic for copy in gone] if back else [], back)
        if refused:
            topic, reason = next(iter(refused.items()))
            need = "; DELETE is missing" if "AUTHORIZATION" in reason else ""
            raise EnvironmentFault(f"the target topic {topic} cannot be deleted: {reason}{need}")

    async def _keeps(self, copy: TopicCopy, ledger: FlowState) -> bool:
        """Return whether a target topic holds other writers' records and is kept for that. Raises EnvironmentFault."""
        if self._foreign is not None and copy.topic_id not in self._kept:
            where = await self._foreign(copy, ledger)
            if where:
                line = f"{copy.topic} is not deleted, although {copy.source_topic} is gone: {where} is not a copy"
                self._kept[copy.topic_id] = f"{line}; delete it by hand if it is not needed"
                log.warning("topic_not_deleted", flow=self._flow.name, topic=copy.topic, reason=line)
        return copy.topic_id in self._kept

    def _deletion_remarks(self, plan: DeletionsPlan, both_ways: Sequence[str], back: str) -> tuple[str, ...]:
        waiting = [copy.topic for copy in plan.waiting]
        lines = [f"to be deleted, because their source topics are gone: {', '.join(waiting)}"] if waiting else []
        if both_ways:
            lines.append(both_ways_deletions(back, both_ways))
        return (*lines, *(self._kept[copy.topic_id] for copy in plan.due if copy.topic_id in self._kept))

    async def _try(self, what: str, work: Callable[[], Awaitable[None]]) -> None:
        line = ""
        try:
            await work()
        except NotOffered as fault:
            line = f"{what} are not synced: {fault}"
        except EnvironmentFault as fault:
            line = f"{what} are not synced now: {fault}"
        except Exception as error:
            log.error("upkeep_failed", flow=self._flow.name, what=what, exc_info=error)
            line = f"{what} are not synced: internal error: {error!r}"
        if line and line != self._faults.get(what, ""):
            log.warning("not_synced", flow=self._flow.name, what=what, reason=line)
        self._faults[what] = line


async def gone_copies(
    flow: FlowConfig, seen: Discovered | DiscoveryPreview, ledger: FlowState, source: UpkeepAdmin
) -> list[TopicCopy]:
    """Return the target topics whose source topic no longer exists.

    Raises EnvironmentFault when the source does not answer.
    """
    names = copy_names(ledger, flow)
    copy_of = selection_of(flow).copy_of
    found = without_source(copies_of(ledger), seen.source.topics, seen.target.topics, copy_of, names)
    if not found.unseen:
        return found.replaced
    missing = await source.missing([copy.source_topic for copy in found.unseen])
    return [*found.replaced, *(copy for copy in found.unseen if copy.source_topic in missing)]


def copies_of(ledger: FlowState) -> list[TopicCopy]:
    """Return the target topics that mirrord created and has not deleted."""
    return [
        TopicCopy(topic.topic, topic.topic_id, topic.source_topic, topic.delete_at_ms, topic.source_topic_id)
        for topic in ledger.topics.values()
        if topic.created
    ]
