"""Static members (KIP-345) of a group on the target: a stopped member belongs to the group until its session times out,
so nothing is committed for the group until then."""

import asyncio
import time
from contextlib import AbstractContextManager
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from mirrord.config.flow_features import GroupsConfig
from mirrord.lab.cluster import Cluster
from tests.fixtures.daemon import unique
from tests.fixtures.groups import commit, committed, consume, copied, following, member
from tests.fixtures.lab import LabFactory, LabPair, client_settings
from tests.fixtures.mirror import SECONDS, copy_of

SESSION_MS = 12_000
"""What is asserted about a stopped member takes a second on a machine that does nothing else."""
SHORT_SESSIONS = {
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": f"{SESSION_MS}",
    "group.consumer.min.heartbeat.interval.ms": "500",
    "group.consumer.heartbeat.interval.ms": "1000",
}
"""For the newer protocol, whose members do not choose them."""


def has_members(cluster: Cluster, group: str) -> bool:
    admin = AdminClient(client_settings(cluster))
    listed = admin.list_consumer_groups().result(SECONDS).valid
    (state,) = [each.state for each in listed if each.group_id == group]
    return state != ConsumerGroupState.EMPTY


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_static_member_counts_until_its_session_times_out(
    lab_pair: LabPair, lab_cluster: LabFactory, protocol: str
) -> None:
    group, target = unique("static"), lab_cluster(properties=SHORT_SESSIONS)
    settings: dict[str, Any] = {"group_protocol": protocol, "group_instance_id": "one"}
    if protocol == "classic":
        settings["session_timeout_ms"] = SESSION_MS
    groups = GroupsConfig(match=(group,), refresh_ms=300, every_ms=300)
    async with copied(lab_pair.source, target, groups) as (flow, topic), following(flow) as follower:
        copy = copy_of(topic)

        def one() -> AbstractContextManager[Any]:
            return member(target, group, copy, **settings)

        def read(records: int) -> list[bytes]:
            with one() as (consumer, pending):
                return consume(consumer, pending, records)

        async def left_alone(source: int, at_target: int) -> None:
            await asyncio.to_thread(commit, flow.source, group, topic, {0: source})
            status = await follower.until(lambda each: (each.state, each.translated) == ("active", source), group)
            assert status.target_offset == at_target
            assert status.why.endswith(" on the target, and is left unchanged")
            assert await asyncio.to_thread(committed, target, group, copy) == {0: at_target}

        with one() as (consumer, pending):
            await asyncio.to_thread(consume, consumer, pending, 10)
            await left_alone(40, 10)
        # It stopped and returned: in neither case does it ask the group for its partitions anew.
        await left_alone(50, 10)
        assert await asyncio.to_thread(read, 5) == [b"value %d" % number for number in range(10, 15)]
        await left_alone(60, 15)
        deadline = time.monotonic() + SECONDS
        while await asyncio.to_thread(committed, target, group, copy) != {0: 60}:
            assert time.monotonic() < deadline, await follower.report()
            await asyncio.sleep(0.1)
        assert not await asyncio.to_thread(has_members, target, group)
        await follower.in_step(group, 60)
        assert await asyncio.to_thread(read, 1) == [b"value 60"]


async def test_a_static_member_at_the_source_keeps_its_group_there(lab_pair: LabPair) -> None:
    """Failback waits for it, too."""
    group = unique("static-back")
    groups = GroupsConfig(match=(group,), refresh_ms=300, every_ms=300, reverse=True)
    settings: dict[str, Any] = {"group_instance_id": "one", "session_timeout_ms": SESSION_MS}
    async with copied(lab_pair.source, lab_pair.target, groups) as (flow, topic), following(flow) as follower:
        with member(flow.source, group, topic, **settings) as (consumer, pending):
            await asyncio.to_thread(consume, consumer, pending, 10)
            await follower.in_step(group, 10)
        with member(flow.target, group, copy_of(topic)) as (consumer, pending):
            await asyncio.to_thread(consume, consumer, pending, 20)
            back = await follower.until_back(lambda each: (each.state, each.translated) == ("active", 30), group)
            assert back.why.endswith(" on the source, and is left unchanged")
            assert await asyncio.to_thread(committed, flow.source, group, topic) == {0: 10}
        await follower.in_step(group, 30)
        assert await asyncio.to_thread(committed, flow.source, group, topic) == {0: 30}
        assert not await asyncio.to_thread(has_members, flow.source, group)
