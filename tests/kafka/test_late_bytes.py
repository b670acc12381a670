"""Batches of a former replicator arrive late, at a broker that has forgotten the producer: nothing is duplicated."""

import asyncio
import time
from collections.abc import AsyncGenerator, Generator

import msgspec
import pytest

from mirrord.config.schema import ClusterConfig
from mirrord.config.security import Security
from mirrord.lab.cluster import Cluster
from mirrord.lab.ports import free_ports
from mirrord.lab.server_properties import LabOptions
from mirrord.ledger.store.kafka_log import KafkaLog
from mirrord.replication.host.replicator import Replicator
from mirrord.replication.lane.assignment import FlowSetup, Former
from tests.fixtures.holding import HeldConnection, HoldingRelay, holding_relay
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import Mirror, Written, mirror, until, write

DAY_MS = 86_400_000
RECORDS = 4_000
OWN_TIMEOUT_S = 3.0
PORTS = free_ports(2)


@pytest.fixture(scope="module")
def forgetful() -> Generator[Cluster]:
    """A target that forgets producers at once, and has a second listener behind a relay."""
    properties = {"producer.id.expiration.check.interval.ms": "50", "producer.id.expiration.ms": "3600000"}
    with Cluster(LabOptions(relayed=(PORTS[0], PORTS[1]), properties=properties)) as cluster:
        yield cluster


@pytest.fixture
async def relay() -> AsyncGenerator[HoldingRelay]:
    async with holding_relay(PORTS[1], PORTS[0]) as relay:
        yield relay


async def replicator(flow: Mirror, setup: FlowSetup, former: Former) -> Replicator:
    """A replicator with all lanes that reaches the target through the relay, and the ledger directly."""
    relayed = msgspec.structs.replace(setup, target=ClusterConfig((f"127.0.0.1:{PORTS[1]}",), Security()))
    made = Replicator(f"r-{former}", relayed, KafkaLog(setup.flow.name, setup.target))
    flow.replicators.append(made)
    await made.open()
    await made.assign(await flow.lanes(former))
    return made


async def cut_off_while_copying(flow: Mirror, relay: HoldingRelay, setup: FlowSetup) -> list[HeldConnection]:
    """Let a replicator copy a part, hold back what it sends then, and end it. Returns its connections with their
    bytes."""
    topic = flow.topic(1, {"retention_ms": "-1"}, retention_ms="-1")
    old_ms = int(time.time() * 1000) - 10 * DAY_MS
    records = [Written(b"%d" % number, b"v" * 100, time_ms=old_ms) for number in range(RECORDS)]
    await asyncio.to_thread(write, flow.source, topic, records, batch_num_messages=5)
    former = await replicator(flow, setup, "none")
    await until(lambda: sum(lane.copied_records for lane in former.report().lanes) >= RECORDS // 20)
    held = relay.hold()
    await until(lambda: sum(each.held_bytes for each in held) >= 2_000)
    await former.close(0)
    flow.replicators.remove(former)
    return held


def with_timeout(setup: FlowSetup, timeout_s: float) -> FlowSetup:
    runtime = msgspec.structs.replace(setup.runtime, request_timeout_ms=int(timeout_s * 1000))
    return msgspec.structs.replace(setup, runtime=runtime)


async def test_the_former_holders_times_count(lab_pair: LabPair, forgetful: Cluster, relay: HoldingRelay) -> None:
    """It had a longer request timeout than its successor has."""
    async with mirror(lab_pair.source, forgetful, lease_ttl_ms=60_000) as flow:
        held = await cut_off_while_copying(flow, relay, with_timeout(flow.setup, 8))
        successor = await replicator(flow, with_timeout(flow.setup, OWN_TIMEOUT_S), "dead")
        await asyncio.sleep(1.5 * OWN_TIMEOUT_S)  # longer than the successor's own timeout
        for connection in held:
            connection.open.set()
        await flow.caught_up(successor)
        await flow.assert_same(records=RECORDS)


async def test_a_broker_that_was_suspended(lab_pair: LabPair, forgetful: Cluster, relay: HoldingRelay) -> None:
    """It answers the successor before it reads what it had received from the former holder."""
    async with mirror(lab_pair.source, forgetful, lease_ttl_ms=60_000) as flow:
        setup = with_timeout(flow.setup, OWN_TIMEOUT_S)
        held = await cut_off_while_copying(flow, relay, setup)
        successor = await replicator(flow, setup, "dead")
        await until(lambda: [lane.phase for lane in successor.report().lanes] == ["waiting"])
        relay.hold()
        relay.holds_new = True
        await asyncio.sleep(1.5 * OWN_TIMEOUT_S)  # the successor's barrier is over
        relay.holds_new = False
        for connection in relay.connections:
            if connection not in held:
                connection.open.set()
        released = time.monotonic()
        await until(
            lambda: (
                successor.report().lanes[0].source_offset >= RECORDS
                or time.monotonic() > released + 0.75 * OWN_TIMEOUT_S
            )
        )
        await asyncio.sleep(0.2)  # the broker forgets the producer
        for connection in held:
            connection.open.set()
        await flow.caught_up(successor)
        await flow.assert_same(records=RECORDS)
