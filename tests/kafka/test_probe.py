"""The probe on real brokers: Kafka passes, its other permitted behaviour is remarked, and an impossible probe says so.

Also lanes whose target failed the probe: they copy everything all the same, relying on the log alone.
"""

import asyncio
import time
from collections.abc import Callable

import pytest
from confluent_kafka.admin import AdminClient
from msgspec.structs import replace

from bench.faults.delay import delayed
from mirrord.config.schema import ClusterConfig
from mirrord.config.security import Security
from mirrord.lab.cluster import Cluster
from mirrord.lab.ports import LOOPBACK, free_ports
from mirrord.ledger.facts.core import TargetProbed
from mirrord.runtime.clock import SystemClock
from mirrord.supervision import broker_probe
from mirrord.supervision.broker_probe import NotProbed, probe_target
from tests.fixtures.daemon import unique
from tests.fixtures.lab import LabFactory, LabPair, client_settings
from tests.fixtures.mirror import SECONDS, Written, config_of, mirror, write
from tests.fixtures.wire import security_of

CLOCK = SystemClock()


async def probed(cluster: Cluster, topic: str, known: TargetProbed | None = None) -> TargetProbed:
    return await probe_target(config_of(cluster), topic, CLOCK, known, SECONDS)


def topics_of(cluster: Cluster) -> set[str]:
    return set(AdminClient(client_settings(cluster)).list_topics(timeout=SECONDS).topics)


def until_gone(cluster: Cluster, topic: str) -> None:
    deadline = time.monotonic() + SECONDS
    while topic in topics_of(cluster):
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def test_kafka_passes_and_the_topic_is_gone(lab_pair: LabPair) -> None:
    topic = f"mirrord.{unique('pass')}.probe"
    found = await probed(lab_pair.target, topic)
    assert (found.passed, found.failures, found.remarks) == (True, (), ())
    until_gone(lab_pair.target, topic)
    assert await probed(lab_pair.target, topic, found) is found, "these brokers are known"
    assert topic not in topics_of(lab_pair.target)
    other = replace(found, version="other brokers")
    assert await probed(lab_pair.target, topic, other) == found


async def test_what_kafka_may_do_otherwise_is_remarked(lab_cluster: LabFactory) -> None:
    cluster = lab_cluster(
        properties={
            "compression.type": "lz4",
            "log.message.timestamp.before.max.ms": "86400000",
            "delete.topic.enable": "false",
        }
    )
    for _ in range(2):  # the topic of the first one is still there, and not empty
        found = await probed(cluster, "mirrord.flow.probe")
        assert (found.passed, found.failures) == (True, ())
        assert ["compression.type" in line or "before.max" in line for line in found.remarks] == [True, True]
    assert "mirrord.flow.probe" in topics_of(cluster)


async def test_several_brokers_and_sasl(lab_three: Cluster, lab_sasl: Cluster) -> None:
    for cluster in (lab_three, lab_sasl):
        found = await probed(cluster, f"mirrord.{unique('pass')}.probe")
        assert (found.passed, found.failures) == (True, ())


async def test_the_round_trips_of_a_far_broker_come_on_top_of_the_time(lab_cluster: LabFactory) -> None:
    port, relay = free_ports(2)
    lab_cluster(relayed=(port, relay))
    far = ClusterConfig((f"{LOOPBACK}:{relay}",), Security())
    with delayed(relay, port, 200):
        # It comes back when the relay listens.
        await asyncio.to_thread(AdminClient({"bootstrap.servers": far.bootstrap[0]}).list_topics, timeout=SECONDS)
        began = time.monotonic()
        found = await probe_target(far, "mirrord.far.probe", CLOCK, deadline_s=2.0)
        assert time.monotonic() - began > 2.0, "otherwise this shows nothing"
    assert (found.passed, found.failures, found.remarks) == (True, (), ())


async def test_without_the_right_to_create_the_topic_it_is_not_probed(lab_sasl: Cluster) -> None:
    stranger = ClusterConfig(tuple(lab_sasl.bootstrap.split(",")), security_of(lab_sasl, "stranger"))
    name = unique("refused")
    with pytest.raises(NotProbed, match=rf"mirrord\.{name}\.probe cannot be created: .*AUTHORIZATION_FAILED"):
        await probe_target(stranger, f"mirrord.{name}.probe", CLOCK, deadline_s=SECONDS)


async def test_where_nobody_answers_it_is_not_probed(lab_pair: LabPair) -> None:
    lab_pair.target.pause()
    with pytest.raises(NotProbed):
        await probe_target(config_of(lab_pair.target), "mirrord.flow.probe", CLOCK, deadline_s=0.5)


async def test_a_broken_rule_is_named(lab_pair: LabPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """No broker here breaks a rule, so one batch is not what its step says: it is undamaged, and accepted."""
    make: Callable[[broker_probe.ProbeStep, int, int], bytes] = broker_probe._batch  # pyright: ignore[reportPrivateUsage]

    def make_whole(step: broker_probe.ProbeStep, producer_id: int, time_ms: int) -> bytes:
        return make(step._replace(damaged=False), producer_id, time_ms)

    monkeypatch.setattr(broker_probe, "_batch", make_whole)
    found = await probed(lab_pair.target, f"mirrord.{unique('broken')}.probe")
    assert not found.passed
    assert found.failures[0] == (
        "not met: a batch with a wrong checksum is refused (the answer is offset 0, not CORRUPT_MESSAGE)"
    )


async def test_lanes_that_rest_on_the_log_alone_copy_everything_once(lab_pair: LabPair) -> None:
    async with mirror(lab_pair.source, lab_pair.target) as flow:
        flow.setup = replace(flow.setup, mode="at-least-once")
        topic = flow.topic(2)
        records = [Written(b"%d" % n, b"v" * 100, partition=n % 2) for n in range(2_000)]
        write(lab_pair.source, topic, records[:1_000], batch_num_messages=50)
        first = await flow.copying()
        reports = await flow.caught_up(first)
        assert not any(report.protected for report in reports)
        assert {lane.mode for lane in flow.state.lanes.values()} == {"at-least-once"}
        await first.close(10)
        await asyncio.to_thread(write, lab_pair.source, topic, records[1_000:], batch_num_messages=50)
        await flow.caught_up(await flow.copying("dead"))
        await flow.assert_same(records=2_000)
