"""One replicator in a separate process: copies a topic from its start to its end, and reports the cost.

`python -m bench.copying SOURCE TARGET TOPIC COPY --records N` prints one JSON object. The process does what a
replicator does on Ray, with its ledger on the target cluster, but without Ray. It also takes and holds a lease.
"""

import argparse
import asyncio
import os
import resource
import sys
import time
import uuid
from pathlib import Path
from typing import Any

import msgspec
import structlog
import uvloop

from bench.harness.sampler import Sampler
from mirrord.config.limits import LimitsConfig
from mirrord.config.schema import ClusterConfig, FlowConfig, RuntimeConfig
from mirrord.config.security import Security
from mirrord.kafka.client.topic_admin import KafkaTopicAdmin
from mirrord.ledger.facts.core import FlowOpened
from mirrord.ledger.store.kafka_log import KafkaLog
from mirrord.ledger.store.lease import LeaseKeeper
from mirrord.ledger.store.process_identity import this_process
from mirrord.ledger.store.store import LedgerStore, open_flow
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneKey
from mirrord.replication.host.replicator import Replicator
from mirrord.replication.lane.assignment import FlowSetup, LaneAssignment, ReplicatorReport
from mirrord.runtime.clock import SystemClock

PATIENCE_S = 60.0
"""Time without a single record."""
LEASE_MS = 60_000
_LOOK_S = 0.25
_ADMIN_S = 10.0


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """The cost of a copy. CPU and wall time are from the start of the first lane to the end of the last one."""

    copied_bytes: int
    """Stored size."""
    batches: int
    records: int
    cpu_s: float
    wall_s: float
    user_s: float
    """The part of the CPU-seconds outside of the kernel."""
    ticks: dict[str, int]
    """CPU time by part of the program, if requested."""
    step_ticks: int
    """Number of ticks within the lane's state machine."""
    idle_bytes: int
    """Largest resident memory before the first lane."""
    peak_bytes: int
    """Largest resident memory overall."""


async def copy(arguments: argparse.Namespace) -> Cost:
    """Copy everything. Raises EnvironmentFault if it does not reach the end."""
    source, target = (ClusterConfig((address,), Security()) for address in (arguments.source, arguments.target))
    name = f"bench-{uuid.uuid4().hex[:8]}"
    flow = FlowConfig(name, "source", "target", (".*",), limits=LimitsConfig(arguments.in_flight_bytes))
    there, here = await _look(source, arguments.topic), await _look(target, arguments.copy)
    clock = SystemClock()
    store = LedgerStore(KafkaLog(name, target), clock)
    await store.open()
    await open_flow(store, FlowOpened(name, there.cluster_id, here.cluster_id))
    lease = LeaseKeeper(store, this_process(name, ""), LEASE_MS, clock)
    epoch = await lease.acquire()
    runtime = RuntimeConfig(engine="process", lease_ttl_ms=LEASE_MS)
    setup = FlowSetup(flow, source, target, runtime, epoch, there.cluster_id, here.cluster_id)
    from_topic, to_topic = there.topics[arguments.topic], here.topics[arguments.copy]
    lanes = [
        LaneAssignment(
            LaneKey(from_topic.topic_id, partition, to_topic.topic_id), arguments.topic, arguments.copy, "none"
        )
        for partition in range(from_topic.partitions)
    ]
    replicator = Replicator(f"{name}-{os.getpid()}", setup, KafkaLog(name, target))
    await replicator.open()
    idle_bytes = _peak_bytes()
    sampler = Sampler()
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF)
    if arguments.profile:
        sampler.start()
    await replicator.assign(lanes)
    report = await _until_copied(replicator, len(lanes), arguments.records)
    profile = sampler.stop()
    after, wall_s = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - began
    user_s = after.ru_utime - before.ru_utime
    cost = Cost(
        copied_bytes=sum(lane.copied_bytes for lane in report.lanes),
        batches=sum(lane.raw_batches for lane in report.lanes),
        records=sum(lane.copied_records for lane in report.lanes),
        cpu_s=user_s + after.ru_stime - before.ru_stime,
        wall_s=wall_s,
        user_s=user_s,
        ticks=profile.ticks,
        step_ticks=profile.step,
        idle_bytes=idle_bytes,
        peak_bytes=_peak_bytes(),
    )
    await replicator.close(5.0)
    await lease.close()
    await store.close()
    return cost


async def _look(cluster: ClusterConfig, topic: str) -> Any:
    admin = KafkaTopicAdmin(cluster, _ADMIN_S)
    try:
        return await admin.describe([topic])
    finally:
        await admin.close()


async def _until_copied(replicator: Replicator, lanes: int, records: int) -> ReplicatorReport:
    copied, moved = 0, time.monotonic()
    while True:
        report = replicator.report()
        before, copied = copied, sum(lane.ordinal for lane in report.lanes)
        if len(report.lanes) == lanes and copied >= records:
            return report
        if copied > before:
            moved = time.monotonic()
        halted = [lane.note for lane in report.lanes if lane.phase == "halted"]
        if halted or time.monotonic() > moved + PATIENCE_S:
            raise EnvironmentFault(f"{copied} of {records} records were copied, and no more: {halted or report}")
        await asyncio.sleep(_LOOK_S)


def _peak_bytes() -> int:
    # getrusage would include the parent's memory: a process inherits that figure.
    (line,) = (line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) * 1024


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.copying", description=__doc__)
    for name in ("source", "target", "topic", "copy"):
        parser.add_argument(name)
    parser.add_argument("--records", type=int, required=True, help="number of records to copy")
    parser.add_argument("--in-flight-bytes", type=int, default=LimitsConfig().in_flight_bytes)
    parser.add_argument("--profile", action="store_true", help="show where the CPU time is spent")
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    print(msgspec.json.encode(uvloop.run(copy(parser.parse_args()))).decode())
    return 0
