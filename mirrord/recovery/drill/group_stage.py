"""The stage of a drill that compares what consumer groups read next on both clusters."""

import asyncio
import random
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import NamedTuple

from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.groups.group_position_translation import Lanes
from mirrord.groups.offset_translation_queries import chart
from mirrord.kafka.client.bulk_log_reader import open_logs
from mirrord.kafka.client.config_and_acl_admin import UpkeepAdmin
from mirrord.kafka.client.topic_admin import TopicAdmin
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.ledger.last_seen.group_positions import SeenGroups, seen_groups
from mirrord.ledger.offset_map import CopiedPosition, LaneMap
from mirrord.ledger.state import LaneState
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.errors import MirrordError
from mirrord.model.names import TopicPartition
from mirrord.recovery.drill.group_commits import GroupCommits, group_commits
from mirrord.recovery.drill.next_records import CHUNK_BYTES, DrilledLane, NextRecordReader
from mirrord.recovery.rules.drill_positions import (
    BothCommits,
    DrillPlan,
    Findings,
    lags,
    plan_positions,
    unlisted,
)
from mirrord.recovery.rules.drill_verdicts import DrillPosition, DrillVerdict
from mirrord.runtime.rate_limit import Pace
from mirrord.supervision.rules.final_positions import CopiedPlace

LOOKS = 3
"""How often the drill looks before it reports a finding."""
AGAIN_S = 2.0
"""Shortest pause between two looks. It is at least `groups.every`, because a group that goes back is noticed then."""
SYNC_S = 5.0
"""How much longer than `groups.every` the target may take to show the position of a group."""
AT_ONCE = 8
"""Number of positions that are read at the same time."""
CPU_SHARE = 0.2
"""Share of a core that the comparison may use, on average. Without this limit, a drill on the machine of the daemon or
of a broker would delay the copying."""
MOST_POSITIONS = 5_000
"""Maximum number of positions that are compared. If there are more, they are chosen at random."""

Look = Callable[[], Awaitable[Findings]]


class GroupClients(NamedTuple):
    """What the stage needs to reach the clusters and the ledger."""

    source: ClusterConfig
    target: ClusterConfig
    store: LedgerStore
    source_topics: TopicAdmin
    """Client for the topics of the source."""
    topics: TopicAdmin
    """Client for the topics of the target."""
    upkeep: UpkeepAdmin
    """Client for the configs of the target."""
    progress: Callable[[int, int], None]
    """Called with the number of examined positions, and with the number of all."""


async def persistent(look: Look, pause_s: float = AGAIN_S) -> list[str]:
    """Look until nothing is found that was found each time, at most `LOOKS` times. Return what is left."""
    found = await look()
    for _ in range(LOOKS - 1):
        if not found:
            break
        await asyncio.sleep(pause_s)
        again = await look()
        found = {key: line for key, line in again.items() if key in found}
    return list(found.values())


class GroupStage:
    """Compares the positions of one flow's groups."""

    def __init__(self, flow: FlowConfig, clients: GroupClients, sample: float) -> None:
        self._flow = flow
        self._clients = clients
        self._sample = sample
        self._lanes = Lanes(omits_ended=True)
        self._every_s = flow.groups.every_ms / 1000
        self.counts: dict[str, int] = {}
        """The numbers in the receipt."""
        self.notes: list[str] = []
        """What was not compared, one line each."""

    async def run(self) -> list[str]:
        """Return the findings. Raises EnvironmentFault if a cluster does not answer."""
        flow = self._flow
        if not flow.follows_groups:
            self.notes.append('positions of consumer groups are not synced: groups.mode is "off"')
            return []
        if flow.groups.both_ways:
            self.notes.append(
                "positions on the target were not compared, because they count the records of two flows "
                "(groups.both_ways); records were"
            )
        if flow.records.transform:
            self.notes.append("the contents of transformed records were not compared")
        clusters, state = (self._clients.source, self._clients.target), self._clients.store.state
        async with group_commits(flow, state, clusters, self._sample) as (commits, listed):
            self.counts = {"groups": len(commits.groups)}
            if len(commits.groups) < len(listed):
                self.notes.append(f"{len(listed) - len(commits.groups)} groups were not examined (sample)")
            return await persistent(lambda: self._look(commits, listed), max(AGAIN_S, self._every_s))

    async def _look(self, commits: GroupCommits, listed: Sequence[str]) -> Findings:
        """Compare all positions once."""
        plan, places, seen = await self._plan(commits)
        existing, missing = await self._existing(plan.positions, places)
        chosen = random.sample(existing, min(len(existing), MOST_POSITIONS))
        verdicts = await self._verdicts(chosen, places) if chosen else {}
        outcomes = [each.outcome for each in verdicts.values()]
        self.counts |= {
            "positions": len(chosen) + len(plan.findings) + len(missing) + plan.active,
            "compared": outcomes.count("same"),
            "at_end": outcomes.count("at end"),
            "waiting": outcomes.count("waiting"),
            "explained": outcomes.count("explained"),
            "active": plan.active,
            "kept": plan.kept,
            "skipped": len(existing) - len(chosen),
        }
        followed = {group for group, _ in seen.in_step} | {each.group for each in seen.positions}
        differing = {each.key: found.line for each, found in verdicts.items() if found.outcome == "finding"}
        return {**unlisted(followed, listed), **plan.findings, **missing, **differing}

    async def _plan(self, commits: GroupCommits) -> tuple[DrillPlan, dict[TopicAndPartition, CopiedPlace], SeenGroups]:
        both_ways = self._flow.groups.both_ways

        async def lacks(found: BothCommits) -> bool:
            places = await self._places()
            return any(True for _ in lags(found, places, both_ways=both_ways))

        found = await commits.read(lacks, self._every_s + SYNC_S)
        places, seen = await self._places(), seen_groups(self._clients.store.state)
        return plan_positions(found, places, seen.positions, self._flow.groups), places, seen

    async def _places(self) -> dict[TopicAndPartition, CopiedPlace]:
        """Return the copied partitions with their current offset maps, by source partition."""
        known = await chart(self._clients.store)
        places: dict[TopicAndPartition, CopiedPlace] = {}
        for place, lane in self._lanes.of(known.state).items():
            progress = known.progress_by_lane.get(lane.key.id)
            copied = None if progress is None else CopiedPosition.by(progress)
            places[place] = CopiedPlace(lane.target_topic, lane.partition, LaneMap(lane, copied))
        return places

    async def _existing(
        self, positions: Sequence[DrillPosition], places: Mapping[TopicAndPartition, CopiedPlace]
    ) -> tuple[list[DrillPosition], Findings]:
        """Return the positions in topics that both clusters show, and the findings about the others. Topics that were
        deleted on the source are omitted."""
        topics = {(each.topic, places[each.topic, each.partition].topic) for each in positions}
        here, there = await asyncio.gather(
            self._clients.source_topics.describe({source for source, _ in topics}),
            self._clients.topics.describe({target for _, target in topics}),
        )
        existing, findings = list[DrillPosition](), Findings()
        for each in positions:
            target = places[each.topic, each.partition].topic
            if each.topic in here.topics and target in there.topics:
                existing.append(each)
            elif each.topic in here.topics:
                findings[each.key] = f"{each} at {each.source_offset}: the target does not show topic {target}"
            elif "AUTHORIZATION" in (why := here.refused.get(each.topic, "")):
                findings[each.key] = f"{each} at {each.source_offset}: the source does not show the topic: {why}"
        return existing, findings

    async def _verdicts(
        self, positions: Sequence[DrillPosition], places: Mapping[TopicAndPartition, CopiedPlace]
    ) -> dict[DrillPosition, DrillVerdict]:
        wanted = {(each.topic, each.partition): places[each.topic, each.partition] for each in positions}
        sources, targets = sorted({topic for topic, _ in wanted}), sorted({place.topic for place in wanted.values()})
        lanes = await self._drilled(wanted, targets)
        slots, done = asyncio.Semaphore(AT_ONCE), 0
        pace, used_s = Pace(CPU_SHARE), time.thread_time()
        sizes = {"rebuild_bytes": self._flow.limits.rebuild_bytes, "chunk_bytes": CHUNK_BYTES}
        async with AsyncExitStack() as stack:
            flow, clients = self._flow, self._clients
            source = await stack.enter_async_context(open_logs(flow.source, clients.source, sources, **sizes))
            target = await stack.enter_async_context(open_logs(flow.target, clients.target, targets, **sizes))
            reader = NextRecordReader(source, target, lanes, committed=flow.isolation == "read_committed")
            stack.push_async_callback(reader.close)

            async def rest() -> None:
                nonlocal used_s
                before_s, used_s = used_s, time.thread_time()
                await pace.took(used_s - before_s)

            async def one(position: DrillPosition) -> DrillVerdict:
                nonlocal done
                async with slots:
                    try:
                        return await reader.examine(position)
                    except (MirrordError, ValueError) as fault:
                        return DrillVerdict("finding", f"{position} at {position.source_offset}: {fault}")
                    finally:
                        done += 1
                        clients.progress(done, len(positions))
                        await rest()

            return dict(zip(positions, await asyncio.gather(*map(one, positions)), strict=True))

    async def _drilled(
        self, places: Mapping[TopicAndPartition, CopiedPlace], targets: Sequence[str]
    ) -> dict[TopicPartition, DrilledLane]:
        """Return the lanes of these source partitions. `targets` are their target topics."""
        settings = (await self._clients.upkeep.settings(targets)).topics
        policies = {name: each.get("cleanup.policy") for name, each in settings.items()}
        compacted = {name for name, each in policies.items() if each is not None and "compact" in (each.value or "")}
        lanes, transformed = self._lanes.of(self._clients.store.state), self._flow.records
        return {
            TopicPartition(*where): DrilledLane(
                TopicPartition(*where),
                TopicPartition(place.topic, place.partition),
                place.map,
                place.topic in compacted,
                bool(transformed.transform) and any(re.fullmatch(each, where[0]) for each in transformed.topics),
                where in lanes and _is_explained(lanes[where]),
            )
            for where, place in places.items()
        }


def _is_explained(lane: LaneState) -> bool:
    """Return whether the state keeps all verdicts of the lane, and not only the newest ones."""
    return sum(each.end - each.start for each in lane.verdicts.recent) >= sum(lane.verdicts.counts.values())
