"""Writes one flow's heartbeats once per interval. If the flow copies heartbeats, also reads their copies on the target.

A MirrorMaker 2 client detects a flow by its `heartbeats` topic. Heartbeats on the source are copied like all other
records. Their copies therefore show how long replication takes (`mirrord.mm2.rules.heartbeat_latency`).
"""

import asyncio

from mirrord.config.schema import ClusterConfig, FlowConfig
from mirrord.kafka.protocol.errors import WireError
from mirrord.kafka.protocol.mm2_records import Heartbeat
from mirrord.mm2.client_topic import COMPACT, Mm2Topic
from mirrord.mm2.cluster_clock import ClusterClock
from mirrord.mm2.rules.heartbeat_latency import BeatLatency, SentBeats, apart
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import Alias
from mirrord.model.status import LatencyStatus
from mirrord.runtime.clock import Clock
from mirrord.runtime.current_failures import Troubles
from mirrord.runtime.tasks import keep_running, run_together
from policies.mm2_names import HEARTBEATS

RETRY_S = 5.0
CLOCKS_S = 10.0
"""Interval in seconds at which each cluster is asked for its time."""


class Heartbeats:
    """Writes the heartbeats of one flow and measures the flow's latency with copied heartbeats."""

    def __init__(
        self, flow: FlowConfig, clusters: dict[Alias, ClusterConfig], timeout_s: float, clock: Clock, sent: SentBeats
    ) -> None:
        self._flow = flow
        self._clusters = clusters
        self._timeout_s = timeout_s
        self._clock = clock
        self._sent = sent
        self._copy = ""
        self._carried = asyncio.Event()
        self._latency: BeatLatency | None = None
        self._clocks: dict[Alias, ClusterClock] = {}
        self._troubles = Troubles("heartbeats", flow=flow.name)

    def carry(self, copy: str | None) -> None:
        """Set the target topic to which the flow copies the source's heartbeats. The argument is None if the flow does
        not copy heartbeats."""
        if copy is None:
            self._carried.clear()
        else:
            self._copy = copy
            self._carried.set()

    @property
    def remarks(self) -> list[str]:
        """One line for each operation that is currently failing."""
        return self._troubles.lines

    def status(self) -> LatencyStatus | None:
        """Return the flow's current latency as measured with heartbeats, or None if the flow does not copy
        heartbeats."""
        if not self._carried.is_set() or self._latency is None:
            return None
        source, target = (self._clocks.get(alias) for alias in (self._flow.source, self._flow.target))
        shown = self._latency.at(self._clock.monotonic())
        clocks = apart(source.ahead if source else None, target.ahead if target else None)
        return LatencyStatus(
            latency_ms=shown.latency_ms,
            latency_error_ms=shown.error_ms,
            clock_offset_ms=clocks.offset_ms if clocks else None,
            clock_error_ms=clocks.error_ms if clocks else None,
            note=next((each.why_unknown for each in (source, target) if each and each.why_unknown), ""),
        )

    async def run(self) -> None:
        """Until cancelled, write heartbeats and read the copied heartbeats on the target."""
        flow = self._flow
        writers: list[tuple[Alias, Alias, Alias]] = []
        if flow.heartbeats.emit in {"target", "both"}:
            writers.append((flow.target, flow.source, flow.target))
        if flow.heartbeats.emit in {"source", "both"}:
            # The heartbeats that are written to the source contain the cluster names in the opposite order, like those
            # of MirrorMaker 2's connector for the opposite direction.
            writers.append((flow.source, flow.target, flow.source))
        await run_together(*(self._write(*each) for each in writers), self._follow())

    async def _write(self, cluster: Alias, source: Alias, target: Alias) -> None:
        topic = Mm2Topic(HEARTBEATS, self._clusters[cluster], self._timeout_s)
        try:
            while True:
                try:
                    await topic.create(self._flow.heartbeats.replication_factor, COMPACT)
                    await self._beat(topic, cluster, source, target)
                except EnvironmentFault as fault:
                    self._troubles.report(f"heartbeats are not written to {cluster}: {fault}", cluster)
                    await asyncio.sleep(RETRY_S)
        finally:
            await topic.end()

    async def _beat(self, topic: Mm2Topic, cluster: Alias, source: Alias, target: Alias) -> None:
        every_s = self._flow.heartbeats.every_ms / 1000
        next_s = self._clock.monotonic()
        while True:
            beat = Heartbeat(source, target, self._clock.wall_ms())
            self._sent.note(cluster, beat, self._clock.monotonic())
            try:
                await topic.write([(beat.key, beat.value)])
            except BaseException:
                self._sent.forget(cluster, beat)
                raise
            self._troubles.report("", cluster)
            next_s = max(next_s + every_s, self._clock.monotonic())
            await asyncio.sleep(next_s - self._clock.monotonic())

    async def _follow(self) -> None:
        while True:
            await self._carried.wait()
            looking = asyncio.create_task(
                keep_running(self._measure_clocks, "clocks_not_measured", flow=self._flow.name)
            )
            try:
                await self._read()
            except EnvironmentFault as fault:
                self._troubles.report(f"no latency is known: {fault}", "latency")
            finally:
                self._latency = None
                looking.cancel()
                await asyncio.gather(looking, return_exceptions=True)
            await asyncio.sleep(RETRY_S)

    async def _read(self) -> None:
        topic = Mm2Topic(self._copy, self._clusters[self._flow.target], self._timeout_s)
        try:
            async for records in topic.follow():
                now_s, now_ms = self._clock.monotonic(), self._clock.wall_ms()
                if self._latency is None:
                    self._latency = BeatLatency(self._flow.source, self._sent, now_s)
                    self._troubles.report("", "latency")
                for key, value in records:
                    try:
                        beat = Heartbeat.decode(key, value)
                    except WireError:
                        continue  # other clients may also write to the topic
                    clock = self._clocks.get(self._flow.source)
                    self._latency.arrived(beat, now_s, now_ms, clock.ahead if clock else None)
        finally:
            await topic.end()

    async def _measure_clocks(self) -> None:
        self._clocks = {
            alias: ClusterClock(alias, self._clusters[alias], self._timeout_s, self._clock)
            for alias in (self._flow.source, self._flow.target)
        }
        try:
            while True:
                await asyncio.gather(*(each.measure() for each in self._clocks.values()))
                await asyncio.sleep(CLOCKS_S)
        finally:
            for each in self._clocks.values():
                each.close()
