"""Rehearses the failover of one flow. Nothing that clients use is changed.

A drill looks at a flow that copies all the time, so what it compares may be out of date by the time it is compared. A
finding counts only if it is still there when the drill looks again.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import NamedTuple

from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.groups.group_position_translation import Lanes
from mirrord.groups.offset_translation_queries import chart
from mirrord.kafka.client.bulk_log_reader import open_logs
from mirrord.kafka.client.cluster_metadata import view_of
from mirrord.kafka.client.config_and_acl_admin import UpkeepAdmin
from mirrord.kafka.client.group_admin import GroupAdmin
from mirrord.kafka.client.topic_admin import TopicAdmin
from mirrord.ledger.last_seen.group_positions import seen_groups
from mirrord.ledger.offset_map import CopiedPosition, LaneMap
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.drill import FINDINGS_KEPT, DrillReceipt, DrillStage
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.names import TopicPartition, drill_topic
from mirrord.model.readiness import FlowReadiness
from mirrord.recovery.drill.canary import Canary, CanaryFailed
from mirrord.recovery.drill.group_commits import GroupCommits, group_commits
from mirrord.recovery.drill.hook_check import hook_findings
from mirrord.recovery.drill.next_records import CHUNK_BYTES, DrilledLane, NextRecordReader
from mirrord.recovery.rules.drill_positions import BothCommits, DrillPlan, lags, plan_positions
from mirrord.recovery.rules.drill_verdicts import DrillPosition, DrillVerdict
from mirrord.recovery.rules.judgement import drill_findings
from mirrord.runtime.clock import Clock
from mirrord.supervision.rules.final_positions import CopiedPlace

LOOKS = 3
"""How often the drill looks before it reports a finding."""
AGAIN_S = 2.0
"""Pause between two looks."""
SYNC_S = 5.0
"""How much longer than `groups.every` the target may take to show the position of a group, in seconds."""
AT_ONCE = 8
"""Number of positions that are read at the same time."""
MOST_POSITIONS = 5_000
"""Maximum number of positions that are compared. The others are counted as skipped."""


class DrillOptions(NamedTuple):
    """What a drill covers."""

    sample: float = 1.0
    """The share of the consumer groups to examine."""
    principals: tuple[str, ...] = ()
    canary: bool = True


class DrillTools(NamedTuple):
    """What a drill needs to reach the clusters and the ledger."""

    source: ClusterConfig
    target: ClusterConfig
    store: LedgerStore
    source_topics: TopicAdmin
    """Client for the topics of the source."""
    topics: TopicAdmin
    """Client for the topics of the target."""
    upkeep: UpkeepAdmin
    """Client for the configs and ACLs of the target."""
    clock: Clock
    ready: Callable[[], Awaitable[FlowReadiness]]
    """Determines how ready the flow is."""
    progress: Callable[[int, int], None]
    """Called with the number of examined positions, and with the number of all."""


class FlowDrill:
    """One drill of one flow."""

    def __init__(self, flow: FlowConfig, tools: DrillTools, options: DrillOptions) -> None:
        self._flow = flow
        self._tools = tools
        self._options = options
        self._stages: list[DrillStage] = []
        self._findings: list[str] = []
        self._notes: list[str] = []
        self._counts: dict[str, int] = {}
        self._lanes = Lanes(omits_ended=True)
        self._patience_s = flow.groups.every_ms / 1000 + SYNC_S

    async def run(self) -> DrillReceipt:
        """Carry out the drill and return its receipt. Raises EnvironmentFault if a cluster does not answer, because
        nothing can be rehearsed then."""
        began_ms = self._tools.clock.wall_ms()
        async with self._stage("ready"):
            self._findings += await self._again(self._ready)
        async with self._stage("hooks"):
            recovery = self._flow.recovery
            self._findings += await hook_findings((*recovery.before, *recovery.after))
        async with self._stage("groups"):
            await self._groups()
        if self._options.canary:
            async with self._stage("canary"):
                await self._canary()
        kept, omitted = self._findings[:FINDINGS_KEPT], max(0, len(self._findings) - FINDINGS_KEPT)
        return DrillReceipt(
            flow=self._flow.name,
            at_ms=began_ms,
            stages=tuple(self._stages),
            findings=tuple(kept),
            omitted=omitted,
            note="; ".join(self._notes),
            **self._counts,
        )

    @asynccontextmanager
    async def _stage(self, name: str) -> AsyncGenerator[None]:
        began_s = self._tools.clock.monotonic()
        yield
        self._stages.append(DrillStage(name, round((self._tools.clock.monotonic() - began_s) * 1000)))

    async def _again(self, look: Callable[[], Awaitable[list[str]]]) -> list[str]:
        """Look until there is no finding, at most `LOOKS` times. Return the last findings."""
        found = await look()
        for _ in range(LOOKS - 1):
            if not found:
                break
            await asyncio.sleep(AGAIN_S)
            found = await look()
        return found

    async def _ready(self) -> list[str]:
        syncs_acls = self._flow.sync.acls_mode != "off"
        return drill_findings(await self._tools.ready(), syncs_acls=syncs_acls)

    async def _groups(self) -> None:
        flow, options = self._flow, self._options
        if not flow.follows_groups:
            self._notes.append('positions of consumer groups are not synced: groups.mode is "off"')
            return
        if flow.groups.both_ways:
            self._notes.append(
                "positions on the target were not compared, because they count the records of two flows "
                "(groups.both_ways); records were"
            )
        clusters, state = (self._tools.source, self._tools.target), self._tools.store.state
        async with group_commits(flow, state, clusters, options.sample) as (commits, listed):
            self._counts = {"groups": len(commits.groups)}
            if len(commits.groups) < listed:
                self._notes.append(f"{listed - len(commits.groups)} groups were left out (sample)")
            self._findings += await self._again(lambda: self._examine(commits))

    async def _examine(self, commits: GroupCommits) -> list[str]:
        """Compare all positions once. Return the findings."""
        plan, places = await self._plan(commits)
        existing, missing = await self._existing(plan.positions, places)
        chosen, skipped = existing[:MOST_POSITIONS], max(0, len(existing) - MOST_POSITIONS)
        verdicts = await self._verdicts(chosen, places) if chosen else []
        counted = [each.outcome for each in verdicts]
        self._counts |= {
            "positions": len(chosen) + len(plan.findings) + len(missing) + plan.active,
            "compared": counted.count("same"),
            "at_end": counted.count("at end"),
            "waiting": counted.count("waiting"),
            "left_out": counted.count("left out"),
            "active": plan.active,
            "skipped": skipped,
        }
        return [*plan.findings, *missing, *(each.line for each in verdicts if each.outcome == "finding")]

    async def _plan(self, commits: GroupCommits) -> tuple[DrillPlan, dict[tuple[str, int], CopiedPlace]]:
        flow, both_ways = self._flow, self._flow.groups.both_ways

        async def lacks(found: BothCommits) -> bool:
            places = await self._places()
            return any(True for _ in lags(found, places, both_ways=both_ways))

        found = await commits.read(lacks, self._patience_s)
        places = await self._places()
        seen = seen_groups(self._tools.store.state).positions
        plan = plan_positions(found, places, seen, flow.groups.mode, both_ways=both_ways)
        return plan, places

    async def _places(self) -> dict[tuple[str, int], CopiedPlace]:
        """Return the copied partitions with their current offset maps, by source partition."""
        known = await chart(self._tools.store)
        places: dict[tuple[str, int], CopiedPlace] = {}
        for place, lane in self._lanes.of(known.state).items():
            progress = known.progress_by_lane.get(lane.key.id)
            copied = None if progress is None else CopiedPosition.by(progress)
            places[place] = CopiedPlace(lane.target_topic, lane.partition, LaneMap(lane, copied))
        return places

    async def _existing(
        self, positions: Sequence[DrillPosition], places: Mapping[tuple[str, int], CopiedPlace]
    ) -> tuple[list[DrillPosition], list[str]]:
        """Return the positions in topics that exist on both clusters, and one line for each position whose topic is
        missing on the target. Topics that were deleted on the source are omitted."""
        topics = {(each.topic, places[each.topic, each.partition].topic) for each in positions}
        here, there = await asyncio.gather(
            self._tools.source_topics.describe({source for source, _ in topics}),
            self._tools.topics.describe({target for _, target in topics}),
        )
        existing, missing = list[DrillPosition](), list[str]()
        for each in positions:
            target = places[each.topic, each.partition].topic
            if each.topic in here.topics and target in there.topics:
                existing.append(each)
            elif each.topic in here.topics:
                missing.append(f"{each} at {each.source_offset}: the target has no topic {target}")
        return existing, missing

    async def _verdicts(
        self, positions: Sequence[DrillPosition], places: Mapping[tuple[str, int], CopiedPlace]
    ) -> list[DrillVerdict]:
        wanted = {(each.topic, each.partition): places[each.topic, each.partition] for each in positions}
        targets = sorted({place.topic for place in wanted.values()})
        compacted = await self._compacted(targets)
        lanes = {
            TopicPartition(*where): DrilledLane(
                TopicPartition(*where),
                TopicPartition(place.topic, place.partition),
                place.map,
                place.topic in compacted,
            )
            for where, place in wanted.items()
        }
        committed = self._flow.isolation == "read_committed"
        sizes = {"rebuild_bytes": self._flow.limits.rebuild_bytes, "chunk_bytes": CHUNK_BYTES}
        slots, done = asyncio.Semaphore(AT_ONCE), 0
        async with AsyncExitStack() as stack:
            sources = sorted({topic for topic, _ in wanted})
            source = await stack.enter_async_context(open_logs(self._flow.source, self._tools.source, sources, **sizes))
            target = await stack.enter_async_context(open_logs(self._flow.target, self._tools.target, targets, **sizes))
            reader = NextRecordReader(source, target, lanes, committed=committed)
            stack.push_async_callback(reader.close)

            async def one(position: DrillPosition) -> DrillVerdict:
                nonlocal done
                async with slots:
                    try:
                        return await reader.examine(position)
                    except (EnvironmentFault, ConfigError, ValueError) as fault:
                        return DrillVerdict("finding", f"{position} at {position.source_offset}: {fault}")
                    finally:
                        done += 1
                        self._tools.progress(done, len(positions))

            return list(await asyncio.gather(*map(one, positions)))

    async def _compacted(self, topics: Sequence[str]) -> set[str]:
        seen = await self._tools.upkeep.settings(topics)
        policies = {name: settings.get("cleanup.policy") for name, settings in seen.topics.items()}
        return {name for name, each in policies.items() if each is not None and "compact" in (each.value or "")}

    async def _canary(self) -> None:
        name, target = drill_topic(self._flow.name), self._tools.target
        factor = self._flow.replication_factor
        async with view_of(self._flow.target, target, self._tools.store.state.target_cluster) as view:
            canary = Canary(name, target, self._tools.topics, self._tools.upkeep, GroupAdmin(view))
            try:
                await canary.run(factor if isinstance(factor, int) else None)
            except CanaryFailed as fault:
                self._findings.append(str(fault))
