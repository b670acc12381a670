"""Reads the committed offsets of consumer groups on both clusters. Nothing is committed."""

import asyncio
import random
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager

from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.groups.refusal_reasons import kept
from mirrord.groups.rules.commit_plan import GroupFilter
from mirrord.kafka.client.cluster_metadata import view_of
from mirrord.kafka.client.group_admin import LATER, GroupAdmin
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.ledger.state import FlowState
from mirrord.recovery.rules.drill_positions import BothCommits
from mirrord.supervision.rules.final_positions import Offsets

LOOK_S = 0.5
COORDINATOR_S = 5.0
"""How long groups are asked about again whose coordinators are just moving or loading."""


class GroupCommits:
    """The groups that a drill examines."""

    def __init__(
        self, source: GroupAdmin, target: GroupAdmin, aliases: tuple[str, str], groups: Collection[str]
    ) -> None:
        self._source = source
        self._target = target
        self._aliases = aliases
        self.groups = groups
        """The names of the chosen groups."""

    async def read(self, lacks: Callable[[BothCommits], Awaitable[bool]], patience_s: float) -> BothCommits:
        """Return the committed offsets. As long as the target `lacks` something that the source already had before, ask
        the target again, for up to `patience_s` seconds. Raises EnvironmentFault."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience_s
        refused: dict[str, str] = {}
        source = await self._offsets(self._source, self._aliases[0], refused)
        while True:
            busy = frozenset(kept(await self._target.listed()))
            target = await self._offsets(self._target, self._aliases[1], refused)
            later = await self._offsets(self._source, self._aliases[0], refused)
            found = BothCommits(source, later, target, busy, refused)
            if not await lacks(found) or loop.time() > until:
                return found
            await asyncio.sleep(LOOK_S)

    async def _offsets(self, admin: GroupAdmin, alias: str, refused: dict[str, str]) -> Offsets:
        """Return the committed offsets of the groups. Add the others to `refused`, with the reason."""
        loop = asyncio.get_running_loop()
        until = loop.time() + COORDINATOR_S
        found = await admin.offsets(self.groups) if self.groups else {}
        while (later := [group for group, each in found.items() if each.error in LATER]) and loop.time() < until:
            await asyncio.sleep(LOOK_S)
            found |= await admin.offsets(later)
        for group, answer in found.items():
            if answer.error:
                refused[group] = f"{alias} does not return its offsets: {ErrorCode.name_of(answer.error)}"
        return {
            group: {place: each.offset for place, each in answer.offsets.items()}
            for group, answer in found.items()
            if not answer.error
        }


@asynccontextmanager
async def group_commits(
    flow: FlowConfig, state: FlowState, clusters: tuple[ClusterConfig, ClusterConfig], sample: float
) -> AsyncGenerator[tuple[GroupCommits, list[str]]]:
    """Provide a random share of the groups that the flow syncs, and the names of all of them. `clusters` are the
    source and the target. Raises EnvironmentFault."""
    passes = GroupFilter(flow.groups).passes
    source, target = clusters
    async with (
        view_of(flow.source, source, state.source_cluster) as here,
        view_of(flow.target, target, state.target_cluster) as there,
    ):
        source_admin, target_admin = GroupAdmin(here), GroupAdmin(there)
        listed = [name for name, each in (await source_admin.listed()).items() if each.kind != "Share" and passes(name)]
        chosen = listed
        if sample < 1 and listed:
            chosen = random.sample(listed, max(1, round(len(listed) * sample)))
        yield GroupCommits(source_admin, target_admin, (flow.source, flow.target), chosen), listed
