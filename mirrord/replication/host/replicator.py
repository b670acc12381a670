"""A replicator hosts, on one event loop, the lanes of one flow that the supervisor assigns to it."""

import asyncio
import gc
import socket
import time
from collections.abc import Collection, Sequence
from functools import partial

import psutil
import structlog

from mirrord.kafka.client.cluster_metadata import ClusterView
from mirrord.kafka.client.connection import ConnectionOptions
from mirrord.kafka.client.producer_expiry import ProducerExpiry
from mirrord.kafka.client.receive_buffers import BufferPool, keep_large_memory_apart
from mirrord.ledger.errors import LedgerUnavailable
from mirrord.ledger.store.leased_worker import LeasedWorker
from mirrord.ledger.store.log_interface import LedgerLog
from mirrord.model.errors import MirrordError
from mirrord.model.names import LaneId
from mirrord.replication.host.hosted_lane import HostedLane
from mirrord.replication.host.lane_host import LaneHost
from mirrord.replication.host.lane_preparation import prepare
from mirrord.replication.lane.assignment import NOT_LEFT, FlowSetup, LaneAssignment, Parting, ReplicatorReport
from mirrord.replication.lane.fast_handoff import is_last
from mirrord.runtime.clock import Clock
from mirrord.runtime.tasks import BackgroundTasks

LOOP_BEAT_S = 0.1
SHARE_S = 5.0
"""Interval, in seconds, at which the flow's rate limit is redistributed among its replicators."""
_RETRY_S = 0.5

log = structlog.get_logger()


class Replicator(LeasedWorker):
    """Hosts lanes of one flow. All methods except `report` and `hurry` run on the event loop on which `open` was
    called."""

    def __init__(self, name: str, setup: FlowSetup, topics: LedgerLog, clock: Clock | None = None) -> None:
        """`name` must never have been used by another replicator, because the ledger identifies replicators by their
        names."""
        tasks = BackgroundTasks("replicator_task_failed", replicator=name)
        super().__init__(name, setup.flow, setup.runtime.lease_ttl_ms, topics, tasks, clock)
        self._setup = setup
        self._process = psutil.Process()
        self._attempts = 0
        self._expiry: ProducerExpiry | None = None
        self._expiry_known: asyncio.Task[None] | None = None
        """The task that determines how long the target remembers producers.

        It starts early so that no lane has to wait for the answer.
        """
        self._came_round = time.monotonic()
        self._host: LaneHost | None = None
        self._source: ClusterView | None = None
        self._target: ClusterView | None = None

    async def open(self) -> None:
        """Read the ledger and start working under the flow's lease. While the ledger is being read, background tasks
        request the metadata of both clusters.

        Raises LedgerMissing, LedgerUnavailable, LedgerCorrupt or LedgerWentBack if the ledger cannot be opened.
        """
        setup = self._setup
        _settle_collector()
        keep_large_memory_apart()
        source, target = self._views()
        expiry = self._expiry = ProducerExpiry(setup.flow.target, setup.target, lambda: target.nodes, self._clock)
        self._expiry_known = self._tasks.keep(expiry.until_known)
        await self._join(setup.lease_epoch)
        self._host = LaneHost(setup, self._clock, self._store, self._may_write, source, target)
        follow, share = partial(expiry.follow, self._host.expect_expiry), partial(self._share_rate, self._host)
        for work in (self._watch_lease, self._beat, share, follow):
            self._tasks.keep(work)

    def _views(self) -> tuple[ClusterView, ClusterView]:
        """Create the metadata views of the source cluster and the target cluster, and start keeping them up to date."""
        setup = self._setup
        request_s, ttl_s = setup.runtime.request_timeout_ms / 1000, setup.runtime.lease_ttl_ms / 1000
        pool = BufferPool(setup.flow.limits.in_flight_bytes)
        options = ConnectionOptions(client_id=f"mirrord-{setup.flow.name}", request_timeout_s=request_s)
        source = self._source = ClusterView(setup.flow.source, setup.source, pool, options, setup.source_cluster_id)
        # The next holder of a lane relies on what `FlowSetup.barrier_s` assumes about this process: the kernel does not
        # retransmit data for longer than a request may take, and it delivers nothing after the connection is closed.
        options = ConnectionOptions(
            client_id=f"mirrord-{setup.flow.name}",
            request_timeout_s=request_s,
            user_timeout_s=min(ttl_s, request_s),
            reset_on_close=True,
        )
        target = self._target = ClusterView(setup.flow.target, setup.target, pool, options, setup.target_cluster_id)
        source.start()
        target.start()
        return source, target

    async def prepare(self, lanes: Sequence[LaneAssignment]) -> None:
        """Find the leaders and open the connections for lanes that will be assigned soon."""
        if self._source is not None and self._target is not None:
            await prepare(self._source, self._target, lanes)

    async def assign(self, lanes: Sequence[LaneAssignment]) -> None:
        """Host these lanes, and start them in the background. A lane that is already hosted is not changed."""
        if self._host is None or self._lease.lost.is_set():
            return
        added: list[HostedLane] = []
        try:
            for assignment in lanes:
                self._attempts += 1
                hosted = self._host.add(assignment, f"{self.name}/{self._attempts}")
                if hosted is not None:
                    added.append(hosted)
        finally:
            # After an unexpected error, the next assignment would leave out the lanes that have been added.
            if added:
                self._tasks.keep(partial(self._start, self._host, added))

    async def release(self, lanes: Sequence[LaneId], deadline_s: float) -> dict[LaneId, bool]:
        """Drain lanes and stop hosting them. For each lane, return whether it was left cleanly.

        A lane was left cleanly if none of its batches are in flight and its progress record has been saved.
        """
        host = self._host
        hosted = {lane: host.hosted(lane) for lane in lanes} if host is not None else {}
        partings = await self.part_with(lanes, deadline_s)
        if host is not None:
            await host.until_saved(deadline_s)
        saved_progress = {
            lane: each.saved for lane, each in hosted.items() if each is not None and each.saved is not None
        }
        saved = {lane for lane, progress in saved_progress.items() if progress.state == "drained"}
        return {lane: parting.clean and lane in saved for lane, parting in partings.items()}

    async def part_with(self, lanes: Sequence[LaneId], deadline_s: float) -> dict[LaneId, Parting]:
        """Drain lanes and stop hosting them. For each lane, return a `Parting`, which says how the lane was left."""
        host = self._host
        found = {lane: host.hosted(lane) for lane in lanes} if host is not None else {}
        leaving = {lane: hosted for lane, hosted in found.items() if hosted is not None}
        partings = dict.fromkeys(lanes, NOT_LEFT)
        if host is None or not leaving:
            return partings
        began = time.monotonic()
        for hosted in leaving.values():
            host.drain(hosted)
        await asyncio.wait([hosted.left for hosted in leaving.values()], timeout=deadline_s)
        drain_ms = round((time.monotonic() - began) * 1000, 1)
        for lane, hosted in leaving.items():
            if hosted.left.done():
                partings[lane] = hosted.left.result()
            host.remove(hosted)
            log.info("lane_left", lane=lane, clean=partings[lane].clean, drain_ms=drain_ms)
        return partings

    def hurry(self, lanes: Collection[LaneId]) -> None:
        """Fetch records for these lanes before other lanes. The next call to this method replaces the list of lanes.
        Another thread may call this method."""
        if self._host is not None:
            self._host.hurry(lanes)

    def report(self) -> ReplicatorReport:
        """Return the replicator's current state. This method is cheap, and another thread may call it."""
        process = self._process
        cpu = process.cpu_times()
        return ReplicatorReport(
            name=self.name,
            pid=process.pid,
            host=socket.gethostname(),
            loop_age_ms=(time.monotonic() - self._came_round) * 1000,
            cpu_seconds=cpu.user + cpu.system,
            rss_bytes=process.memory_info().rss,
            lanes=self._host.reports() if self._host is not None else (),
            source_error=self._source.error if self._source is not None else "",
            target_error=self._target.error if self._target is not None else "",
            lease_valid_s=max(0.0, self._lease.valid_until - self._clock.monotonic()),
            lost=self._lease.lost.is_set(),
            requests=(self._source.fetches.status(), self._target.produces.status())
            if self._source and self._target
            else (),
            remark=self._host.provenance.trouble if self._host is not None else "",
        )

    @property
    def has_lanes(self) -> bool:
        """Whether this replicator hosts a lane that no other replicator has taken."""
        return self._host is not None and any(lane.phase != "gone" for lane in self._host.reports())

    async def close(self, deadline_s: float) -> None:
        """Drain all lanes, and then end all tasks and close all connections."""
        if self._host is not None:
            await self.release(self._host.lane_ids(), deadline_s)
        await self._leave(self._close_connections)

    async def _close_connections(self) -> None:
        if self._host is not None:
            await self._host.close()
        for view in (self._source, self._target):
            if view is not None:
                await view.close()

    async def _start(self, host: LaneHost, added: Sequence[HostedLane]) -> None:
        """Start the lanes that have not started yet. A lane that can start from a handoff checkpoint starts at once.
        Other lanes start when the ledger has been read to its end, because only then is it known what the previous
        holders recorded. If this call fails unexpectedly, it is repeated."""
        if self._expiry is not None and self._expiry_known is not None:
            await asyncio.shield(self._expiry_known)
            host.expect_expiry(self._expiry.shortest_ms)
        error = self._start_now(host, [hosted for hosted in added if self._knows(hosted)])
        late = [hosted for hosted in added if not hosted.started]
        while late:
            try:
                await self._store.read_to_end()
                break
            except LedgerUnavailable:
                await self._clock.sleep(_RETRY_S)
            except MirrordError:
                return  # the ledger can no longer be read, so the lease is lost, too
        error = self._start_now(host, late) or error
        if error is not None:
            raise error

    def _knows(self, hosted: HostedLane) -> bool:
        """Return whether the lane can start from its last holder's handoff checkpoint at once, before the rest of the
        ledger has been read."""
        assignment, record = hosted.assignment, self._store.state.lanes.get(hosted.lane.id)
        return assignment.former == "left" and is_last(assignment.word, record)

    def _start_now(self, host: LaneHost, lanes: Sequence[HostedLane]) -> Exception | None:
        """Start lanes. If some of them cannot be started, the others start nevertheless. Return the first error."""
        first: Exception | None = None
        for hosted in lanes:
            if hosted.started:
                continue
            try:
                if hosted.journey is not None:
                    hosted.journey.passes("ledger")
                host.start(hosted)
            except Exception as error:
                log.exception("lane_not_started", lane=hosted.lane.id)
                first = first or error
        return first

    async def _watch_lease(self) -> None:
        await self._lease.lost.wait()
        if self._host is not None:
            self._host.fence()

    async def _beat(self) -> None:
        while True:
            self._came_round = time.monotonic()
            await asyncio.sleep(LOOP_BEAT_S)

    async def _share_rate(self, host: LaneHost) -> None:
        """Divide the flow's rate limit at regular intervals among the replicators that, according to the ledger, have
        taken lanes under the current lease."""
        while self._setup.flow.limits.rate_bytes_per_s is not None:
            lanes = self._store.state.lanes.values()
            mine = f".g{self._setup.lease_epoch}."
            holders = {lane.replicator.rpartition("/")[0] for lane in lanes if mine in lane.replicator}
            host.budget.share(len(holders | {self.name}))
            await asyncio.sleep(SHARE_S)


def _settle_collector() -> None:
    """Tune the garbage collector so that it ignores all existing objects and runs less often.

    The hot path creates hardly any reference cycles. With Python's default settings, the collector scans a hundred
    thousand library objects again and again, which takes about 5% of the hot path's time.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)
