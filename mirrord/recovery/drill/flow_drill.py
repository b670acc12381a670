"""Rehearses the failover of one flow. Nothing that clients use is changed.

A drill looks at a flow that copies all the time, so what it compares may be out of date by the time it is compared. A
finding counts only if it is still there each time the drill looks.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.cluster_metadata import view_of
from mirrord.kafka.client.group_admin import GroupAdmin
from mirrord.model.drill import FINDINGS_KEPT, DrillReceipt, DrillStage
from mirrord.model.errors import MirrordError
from mirrord.model.names import drill_topic
from mirrord.model.readiness import FlowReadiness
from mirrord.recovery.drill.canary import Canary
from mirrord.recovery.drill.group_stage import GroupClients, GroupStage, persistent
from mirrord.recovery.drill.hook_check import hook_findings
from mirrord.recovery.rules.drill_positions import Findings
from mirrord.recovery.rules.judgement import drill_findings
from mirrord.runtime.clock import Clock

STAGE_S = 300.0
"""Time limit for each stage."""


class DrillOptions(NamedTuple):
    """What a drill covers."""

    sample: float = 1.0
    """The share of the consumer groups to examine."""
    principals: tuple[str, ...] = ()
    canary: bool = True


class DrillTools(NamedTuple):
    """What a drill needs."""

    clients: GroupClients
    clock: Clock
    ready: Callable[[], Awaitable[FlowReadiness]]
    """Determines how ready the flow is."""


class FlowDrill:
    """One drill of one flow."""

    def __init__(self, flow: FlowConfig, tools: DrillTools, options: DrillOptions) -> None:
        self._flow = flow
        self._tools = tools
        self._canary = options.canary
        self._groups = GroupStage(flow, tools.clients, options.sample)
        self._stages: list[DrillStage] = []
        self._findings: list[str] = []

    async def run(self) -> DrillReceipt:
        """Carry out the drill and return its receipt. A stage that cannot be completed is a finding."""
        began_ms = self._tools.clock.wall_ms()
        async with self._stage("ready"):
            self._findings += await persistent(self._ready)
        async with self._stage("hooks"):
            recovery = self._flow.recovery
            self._findings += await hook_findings((*recovery.before, *recovery.after))
        async with self._stage("groups"):
            self._findings += await self._groups.run()
        if self._canary:
            async with self._stage("canary"):
                await self._sing()
        kept, omitted = self._findings[:FINDINGS_KEPT], max(0, len(self._findings) - FINDINGS_KEPT)
        return DrillReceipt(
            flow=self._flow.name,
            at_ms=began_ms,
            stages=tuple(self._stages),
            findings=tuple(kept),
            omitted=omitted,
            note="; ".join(self._groups.notes),
            **self._groups.counts,
        )

    @asynccontextmanager
    async def _stage(self, name: str) -> AsyncGenerator[None]:
        """Time a stage. If it cannot be completed, add a finding."""
        clock, why = self._tools.clock, ""
        began_s = clock.monotonic()
        try:
            async with asyncio.timeout(STAGE_S):
                yield
        except TimeoutError:
            why = f"not completed within {STAGE_S:g} s"
        except MirrordError as fault:
            why = str(fault)
        if why:
            self._findings.append(f"{name}: {why}")
        self._stages.append(DrillStage(name, round((clock.monotonic() - began_s) * 1000)))

    async def _ready(self) -> Findings:
        syncs_acls = self._flow.sync.acls_mode != "off"
        lines = drill_findings(await self._tools.ready(), syncs_acls=syncs_acls)
        return {re.sub(r"\d+", "#", line): line for line in lines}

    async def _sing(self) -> None:
        clients, factor = self._tools.clients, self._flow.replication_factor
        async with view_of(self._flow.target, clients.target, clients.store.state.target_cluster) as view:
            name, groups = drill_topic(self._flow.name), GroupAdmin(view)
            canary = Canary(name, clients.target, clients.topics, clients.upkeep, groups)
            await canary.run(factor if isinstance(factor, int) else None)
