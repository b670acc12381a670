"""Syncs the topic configs, ACLs and topic deletions of a flow. Also writes the heartbeats, checkpoints and offset syncs
that MirrorMaker 2's clients read, and records the client quotas of the source.

If one of these operations fails, the fault is reported, and the operation is retried. A fault in one operation stops
neither the other operations nor the copying.
"""

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable

import structlog

from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.admin_requests import NotOffered
from mirrord.kafka.client.config_and_acl_admin import UpkeepAdmin
from mirrord.ledger.last_seen.configs_and_acls import acl_records, config_records
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.fact_recorder import Recorder
from mirrord.mm2.client_records import Mm2Upkeep
from mirrord.model.errors import EnvironmentFault, internal_error
from mirrord.model.group_status import TranslatedPosition
from mirrord.model.names import TopicId
from mirrord.model.status import LatencyStatus, TopicStatus
from mirrord.runtime.clock import Clock
from mirrord.runtime.tasks import run_together
from mirrord.supervision.internal_topic_sync import OwnSettings
from mirrord.supervision.source_quotas import SourceQuotas
from mirrord.supervision.unreadable_policies import UnreadablePolicies
from mirrord.topics.acl_sync import AclSync
from mirrord.topics.config_sync import SettingsSync, pairs_of
from mirrord.topics.deletion_sync import DeletionSync, ForeignRecord
from mirrord.topics.discovery import Discovered
from policies.flow_policies import selection_of

FIRST_S = 0.1
"""Interval, in seconds, at which the loops check whether the first discovery result is available."""

log = structlog.get_logger()


class Upkeep:
    """The loops that sync the configs, ACLs and topic deletions of one flow and write the records for MirrorMaker 2's
    clients."""

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
        """Prepare the loops without starting them. `foreign` and `flow_back` are arguments of `DeletionSync`."""
        self._flow = flow
        self._source = source
        self._target = target
        self._mm2 = mm2
        self._selection = selection_of(flow)
        self.settings = SettingsSync(flow, source, target)
        self._own = OwnSettings(flow, target)
        self._policies = UnreadablePolicies(flow, target)
        self._acls = AclSync(flow, self._selection.selects, source, target)
        self._quotas = SourceQuotas(flow, source, clock)
        self._deletions = DeletionSync(flow, source, target, clock, foreign, flow_back)
        self._clock = clock
        self._faults: dict[str, str] = {}
        self._discovered: Discovered | None = None
        self._refreshed = asyncio.Event()

    def see(self, discovered: Discovered) -> None:
        """Use this discovery result from now on."""
        self._discovered = discovered
        self._refreshed.set()
        if self._mm2 is not None:
            self._mm2.see(discovered)

    def see_groups(self, positions: Iterable[TranslatedPosition]) -> None:
        """Pass on the current positions of consumer groups. They are written to MirrorMaker 2's checkpoints topic."""
        if self._mm2 is not None:
            self._mm2.record(positions)

    async def run(self, ledger: Callable[[], FlowState], recorder: Recorder) -> None:
        """Run all loops until cancelled."""
        self._discovered = None
        self._faults.clear()
        mm2 = () if self._mm2 is None else (self._mm2.run(ledger),)
        await run_together(self._keep(ledger, recorder), self._delete(ledger, recorder), *mm2)

    async def close(self) -> None:
        """Close the connections to the source cluster and the target cluster."""
        await asyncio.gather(self._source.close(), self._target.close())

    @property
    def faults(self) -> list[str]:
        """One line for each fault that currently prevents a sync."""
        settings = (*self.settings.topics.faults.values(), *self.settings.rule_faults)
        return [line for line in (*self._faults.values(), self._acls.fault, *settings) if line]

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks for operators, one line each. They concern ACLs, topic deletions, mirrord's own topics, the topics
        for MirrorMaker 2's clients, and missing permissions to read configs."""
        mm2 = () if self._mm2 is None else self._mm2.remarks
        return (*self._own.remarks, *self._policies.remarks, *self._acls.remarks, *self._deletions.remarks, *mm2)

    @property
    def deleted(self) -> Container[TopicId]:
        """Target topics that were deleted because their source topics no longer exist."""
        return self._deletions.deleted

    @property
    def latency(self) -> LatencyStatus | None:
        """The latency of the flow, measured with copied heartbeat records, or None if the flow copies no heartbeats."""
        return None if self._mm2 is None else self._mm2.latency

    def topics(self, discovered: Discovered | None) -> tuple[TopicStatus, ...]:
        """Return the topics that need an operator's attention."""
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
            if await self._try("settings", lambda seen=discovered: self.settings.round(seen.lanes, recorder)):
                await self._record_configs(recorder)
            copies = {pair.target: pair.source for pair in pairs_of(discovered.lanes)}
            await self._try("target configs", lambda copies=copies: self._policies.round(copies))
            if await self._try("ACLs", lambda copies=copies: self._acls.round(copies, ledger(), recorder)):
                await self._record_acls(recorder)
            await self._quotas.round(recorder)
            await asyncio.sleep(self._flow.sync.every_ms / 1000)

    async def _record_configs(self, recorder: Recorder) -> None:
        """Record the configs of the source, which have just been read, so that they can be shown when it is gone."""
        state, configs = recorder.state, self.settings.seen()
        if configs.topics:
            await recorder.save(config_records(state, configs, state.lease_epoch, self._clock.wall_ms()))

    async def _record_acls(self, recorder: Recorder) -> None:
        """Record the ACLs of the source, if they have just been read."""
        state, now_ms = recorder.state, self._clock.wall_ms()
        if self._acls.seen is not None:
            await recorder.save(acl_records(state, self._acls.seen, "", state.lease_epoch, now_ms))
        elif self._acls.fault:
            await recorder.save(acl_records(state, (), self._acls.fault, state.lease_epoch, now_ms))

    async def _delete(self, ledger: Callable[[], FlowState], recorder: Recorder) -> None:
        """Propagate the topic deletions that each new discovery result shows."""
        while True:
            await self._refreshed.wait()
            self._refreshed.clear()
            discovered = self._discovered
            if discovered is not None:
                await self._try("deletions", lambda seen=discovered: self._deletions.round(seen, ledger(), recorder))

    async def _try(self, what: str, work: Callable[[], Awaitable[None]]) -> bool:
        """Carry out the work, and report a failure. Return whether it succeeded."""
        line = ""
        try:
            await work()
        except NotOffered as fault:
            line = f"{what} are not synced: {fault}"
        except EnvironmentFault as fault:
            line = f"{what} are currently not synced: {fault}"
        except Exception as error:
            log.error("upkeep_failed", flow=self._flow.name, what=what, exc_info=error)
            line = f"{what} are not synced: {internal_error(error)}"
        if line and line != self._faults.get(what, ""):
            log.warning("not_synced", flow=self._flow.name, what=what, reason=line)
        self._faults[what] = line
        return not line


async def keep_in_step(
    current: Callable[[], Upkeep], replaced: asyncio.Event, ledger: Callable[[], FlowState], recorder: Recorder
) -> None:
    """Run the current object until cancelled. When `replaced` is set, close it, and run the new one."""
    while True:
        replaced.clear()
        upkeep = current()
        work = asyncio.create_task(upkeep.run(ledger, recorder))
        waiting = asyncio.create_task(replaced.wait())
        try:
            await asyncio.wait((work, waiting), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
        finally:
            work.cancel()
            waiting.cancel()
            await asyncio.gather(work, waiting, return_exceptions=True)
        await upkeep.close()
