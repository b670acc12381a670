"""Requests the log ends of source partitions that no lane is fetching, and records the log ends of all source
partitions in the state topic.

A fetch response includes the log end, so no separate request is needed for partitions that are being fetched.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
import structlog

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.log_offsets import LogOffsets
from mirrord.ledger.last_seen.source_ends import NEVER, SeenEnd, SeenEnds, end_records, surplus_records
from mirrord.ledger.offset_map import recorded_position
from mirrord.ledger.source_ends import SourcePartition, changed_records, newest_lanes, truncated
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.fact_recorder import Recorder
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId, LaneKey, TopicPartition
from mirrord.replication.lane.assignment import ReplicatorReport
from mirrord.runtime.clock import Clock
from mirrord.runtime.wait import wait_for
from mirrord.supervision.flow_stats import Behind
from mirrord.topics.discovery import Discovered

LOOK_S = 1.0
"""Maximum interval, in seconds, at which log ends are requested and recorded."""
LANE_POLL_S = 0.001
"""Pause between two reports of the replicators, in seconds for each lane of the flow, up to `LOOK_S`."""
CONFIRM_S = 1.0
"""A log end that is lower than the recorded one must still be the same after this time, in seconds. A new leader may
report a high watermark that is too low until its followers have fetched from it."""
MOST_SHARE = 0.02
"""Maximum share of a core that the requests for log ends may use. With thousands of partitions, the requests are sent
less often."""
PARTITION_S = 0.00002
"""About how much CPU time, in seconds, the request and the answer about one partition take."""
FETCHED_S = 0.7
"""The log end of a partition is not requested if a fetch has returned it within this time."""

Known = tuple[Discovered | None, Mapping[str, ReplicatorReport]]

log = structlog.get_logger()


class FetchedEnd(NamedTuple):
    """A log end that a fetch response contained."""

    end: int
    age_s: float
    start: int
    """The log start offset, or -1 if it is not known."""


class Uncovered(NamedTuple):
    """The source partitions whose log ends must be requested, the lanes that replicators host, and the partitions whose
    log ends are known."""

    wanted: list[SourcePartition]
    """The partitions of selected topics that have had no recent fetch response."""
    hosted: frozenset[LaneId]
    fetched: Mapping[SourcePartition, FetchedEnd] = {}
    """The other partitions of selected topics."""
    faults: Mapping[str, str] = {}
    """Selected topics that are not copied, or not completely, each with the reason."""
    hidden: frozenset[str] = frozenset()
    """Those of them that the source does not show, for example because a permission is missing."""
    is_known: bool = True
    """Whether the selected topics are known."""


class UncoveredEnds:
    """The log ends of those source partitions of a running flow that no lane is fetching."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._ends: dict[SourcePartition, int] = {}
        self._spent_s = 0.0
        self._recorded = Behind()
        """How far the progress records of the lanes are behind the source. After the source is gone, the positions in
        these records are all that is known."""
        self._reported = asyncio.Event()
        self._fell: dict[SourcePartition, tuple[int, float]] = {}
        """Log ends that are lower than the recorded ones, and when they were seen first. If a log end is still the same
        after `CONFIRM_S`, the verdict that the records above it were truncated is written to the ledger."""

    @property
    def by_name(self) -> dict[TopicPartition, int]:
        """The log ends from the latest responses, by topic name and partition. Partitions whose leader did not answer
        are omitted."""
        return {TopicPartition(each.topic, each.partition): end for each, end in self._ends.items()}

    def see(self, reports: Mapping[str, ReplicatorReport]) -> Mapping[str, ReplicatorReport]:
        """Note that the replicators have just sent these reports: `follow` records the log ends now, while they are
        recent. Return the reports with the latest source ends, like `amend`."""
        self._reported.set()
        return self.amend(reports)

    def amend(self, reports: Mapping[str, ReplicatorReport]) -> Mapping[str, ReplicatorReport]:
        """Return the reports with the latest source ends: the source end of each lane is replaced if this object holds
        a higher one."""
        if not self._ends:
            return reports
        ends = {(each.topic_id, each.partition): end for each, end in self._ends.items()}
        amended: dict[str, ReplicatorReport] = {}
        for host, report in reports.items():
            changed = False
            lanes = list(report.lanes)
            for at, lane in enumerate(lanes):
                end = ends.get((LaneKey.parse(lane.lane).source_topic_id, lane.partition), -1)
                if end > lane.source_end:
                    lanes[at] = msgspec.structs.replace(lane, source_end=end, source_end_age_s=0.0)
                    changed = True
            amended[host] = msgspec.structs.replace(report, lanes=tuple(lanes)) if changed else report
        return amended

    async def follow(self, source: ClusterConfig, recorder: Recorder, known: Callable[[], Known]) -> None:
        """Request and record the log ends after each report of the replicators, and at least every `LOOK_S`, until
        cancelled. Each time, `known` is called and returns the result of the latest discovery and the latest report of
        each replicator."""
        client = LogOffsets(source)
        try:
            while True:
                self._spent_s = 0.0
                self._reported.clear()
                asked_s, asked_ms = self._clock.monotonic(), self._clock.wall_ms()
                with self._counted():
                    asked = uncovered(*known(), asked_s)
                try:
                    self._ends = await client.high_watermarks(asked.wanted)
                except EnvironmentFault:
                    self._ends = {}  # `ClusterWatch` reports that the source does not answer
                await self._record(recorder, asked.hosted)
                await self._record_seen(recorder, asked, asked_s, asked_ms)
                spent_s = self._spent_s + len(asked.wanted) * PARTITION_S
                await asyncio.sleep(spent_s / MOST_SHARE)
                await wait_for(self._reported, LOOK_S)
        finally:
            self._ends = {}
            client.close()

    @contextmanager
    def _counted(self) -> Generator[None]:
        """Add the CPU time of a block without `await` to `_spent_s`. While the object awaits something, other tasks of
        the thread use the CPU, for example the lanes of the process engine."""
        began = time.thread_time()
        yield
        self._spent_s += time.thread_time() - began

    async def _record(self, recorder: Recorder, hosted: frozenset[LaneId]) -> None:
        """Record the log ends in the state topic. If a log end shows that records were lost, write the verdict to the
        ledger first, because the verdict is derived from the old record in the state topic, which the new record
        replaces."""
        state, ends = recorder.state, self._ends
        with self._counted():
            facts = truncated(state, ends, hosted)
        lower = {SourcePartition(lane.source_topic, lane.key.source_topic_id, lane.partition): fact
                 for fact in facts if (lane := state.lanes.get(fact.lane)) is not None}  # fmt: skip
        self._fell = confirmed_since(self._fell, {where: ends[where] for where in lower}, self._clock.monotonic())
        latest_s = self._clock.monotonic() - CONFIRM_S
        sure = [fact for where, fact in lower.items() if self._fell[where][1] <= latest_s]
        for fact in sure:
            log.error("records_lost", lane=fact.lane, line=fact.note)
        if not await recorder.write(sure):
            return
        sure_lanes = {fact.lane for fact in sure}
        known = {where: end for where, end in ends.items() if where not in lower or lower[where].lane in sure_lanes}
        with self._counted():
            records = changed_records(state, known, state.lease_epoch, self._clock.wall_ms())
        await recorder.save(records)

    async def _record_seen(self, recorder: Recorder, asked: Uncovered, asked_s: float, asked_ms: int) -> None:
        """Record all log ends, so that they can be shown when the source is gone. `asked_s` and `asked_ms` are the time
        before the log ends were requested, on both clocks. By now, they may be out of date."""
        if not asked.is_known:
            return
        state = recorder.state
        seen = {
            where: SeenEnd(each.end, asked_ms - int(each.age_s * 1000), each.start)
            for where, each in asked.fetched.items()
        }
        seen |= {
            where: SeenEnd(self._ends[where], asked_ms) if where in self._ends else NEVER for where in asked.wanted
        }
        with self._counted():
            seen |= held_times(state, seen, self._recorded, asked_s, asked_ms)
            epoch, now_ms = state.lease_epoch, self._clock.wall_ms()
            records = end_records(SeenEnds(state), seen, asked.faults, asked.hidden, epoch, now_ms)
        if await recorder.save(records):
            await recorder.remove(surplus_records(state, {where.topic_id for where in seen}, asked.hidden))


def poll_pause_s(least_s: float, lanes: int) -> float:
    """Return the pause before the replicators are asked for their next reports, which contain `lanes` lanes. The high
    watermarks in the ledger are as old as the last reports when the source fails, so it is short for few lanes."""
    return max(least_s, min(lanes * LANE_POLL_S, LOOK_S))


def confirmed_since(
    earlier: Mapping[SourcePartition, tuple[int, float]], ends: Mapping[SourcePartition, int], now_s: float
) -> dict[SourcePartition, tuple[int, float]]:
    """Return each of these log ends, and since when it has been the same."""
    found: dict[SourcePartition, tuple[int, float]] = {}
    for where, end in ends.items():
        before = earlier.get(where)
        found[where] = before if before is not None and before[0] == end else (end, now_s)
    return found


def uncovered(discovered: Discovered | None, reports: Mapping[str, ReplicatorReport], now: float) -> Uncovered:
    """Return the partitions of the selected topics, and all hosted lanes. `now` is the time on the monotonic clock.

    If a lane is halted or waiting, its partition counts as not being fetched. Partitions beyond the flow's limits are
    omitted.
    """
    lanes = [lane for report in reports.values() for lane in report.lanes]
    hosted = frozenset(lane.lane for lane in lanes)
    if discovered is None:
        return Uncovered([], hosted, is_known=False)
    fetched = {
        (LaneKey.parse(lane.lane).source_topic_id, lane.partition): FetchedEnd(
            lane.source_end, lane.source_end_age_s + max(0.0, now - report.received_s), lane.source_start
        )
        for report in reports.values()
        for lane in report.lanes
        if lane.phase == "copying" and lane.source_end >= 0 and lane.source_end_age_s < FETCHED_S
    }
    topics = discovered.source.topics
    names = {lane.source_topic for lane in discovered.lanes} | (discovered.faults.keys() & topics.keys())
    copied = Counter(lane.source_topic for lane in discovered.lanes if lane.source_topic in discovered.beyond_limits)
    selected = [
        SourcePartition(name, topics[name].topic_id, partition)
        for name in sorted(names)
        if name in topics
        for partition in range(copied[name] if name in discovered.beyond_limits else topics[name].partitions)
    ]
    wanted = [where for where in selected if where[1:] not in fetched]
    ends = {where: fetched[where[1:]] for where in selected if where[1:] in fetched}
    return Uncovered(wanted, hosted, ends, discovered.faults, frozenset(discovered.faults.keys() - topics.keys()))


def held_times(
    state: FlowState, seen: Mapping[SourcePartition, SeenEnd], recorded: Behind, now_s: float, now_ms: int
) -> dict[SourcePartition, SeenEnd]:
    """Return the log ends in `seen` for which it is known up to which time the target held all records of the
    partition, with this time. It is known from the progress records. `now_s` and `now_ms` are the same time on the
    monotonic clock and on the wall clock. `recorded` keeps the earlier log ends."""
    found: dict[SourcePartition, SeenEnd] = {}
    lanes = {
        SourcePartition(lane.source_topic, lane.key.source_topic_id, lane.partition): lane
        for lane in newest_lanes(state.lanes.values())
    }
    recorded.keep({lanes[where].key.id for where in lanes.keys() & seen.keys()})
    for where, lane in lanes.items():
        end = seen.get(where, NEVER)
        if end.end < 0:
            continue
        position, at_s = recorded_position(state, lane), now_s - (now_ms - end.at_ms) / 1000
        if position is not None:
            recorded.see(lane.key.id, end.end, position, at_s)
        if (held_s := recorded.held_s(lane.key.id, at_s)) is not None:
            found[where] = end._replace(held_ms=end.at_ms - int(held_s * 1000))
    return found
