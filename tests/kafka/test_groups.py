"""Groups of real brokers: their positions on the target are those on the source."""

import asyncio
import re
from pathlib import Path

import msgspec
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AclOperation

from mirrord.config.flow_features import GroupsConfig
from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.config_and_acl_admin import KafkaUpkeepAdmin
from mirrord.lab.cluster import Cluster
from mirrord.model.acls import AclRule
from mirrord.model.group_status import GroupsReport
from tests.fixtures.daemon import Daemon, Load, conf, mirrord, unique
from tests.fixtures.groups import (
    Watch,
    commit,
    committed,
    consume,
    copied,
    first_value,
    following,
    forget,
    member,
    numbered,
)
from tests.fixtures.java_clients import java_clients
from tests.fixtures.lab import Allow, LabPair, client_settings
from tests.fixtures.mirror import SECONDS, config_of, copy_of, create_topic, mirror, write
from tests.fixtures.wire import security_of


def only(group: str) -> GroupsConfig:
    """The groups of one test: the brokers are shared."""
    return GroupsConfig(match=(f"{group}.*",), refresh_ms=300, every_ms=300)


async def test_a_group_that_is_older_than_the_mirror(lab_pair: LabPair) -> None:
    group = unique("old")
    async with mirror(lab_pair.source, lab_pair.target, groups=only(group)) as flow:
        topic = flow.topic(partitions=2)
        await asyncio.to_thread(write, flow.source, topic, [*numbered(1000), *numbered(500, 1000, 1)])
        await asyncio.to_thread(commit, flow.source, group, topic, {0: 137, 1: 500}, "kept")
        # Foreign records on the target: offsets there are different ones.
        await asyncio.to_thread(write, flow.target, copy_of(topic), numbered(7, 9_000))
        await flow.caught_up(await flow.copying())
        async with following(flow) as follower:
            status = await follower.in_step(group, 137)
            assert status.target_offset is not None
            assert await asyncio.to_thread(first_value, flow.target, copy_of(topic), 0, status.target_offset) == (
                b"value 137"
            )
            assert (status.lag_records, status.lag_s is not None) == (1000 - 137, True)
            other = await follower.in_step(group, 500, 1)
            assert (other.target_offset, other.lag_records, other.lag_s) == (500, 0, 0.0)
            assert await asyncio.to_thread(committed, flow.target, group, copy_of(topic), (0, 1)) == {
                0: status.target_offset,
                1: 500,
            }
            assert (await follower.report()).source == "log"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_a_group_moves_over_and_reads_on(lab_pair: LabPair, protocol: str) -> None:
    group = unique(protocol)
    async with mirror(lab_pair.source, lab_pair.target, groups=only(group)) as flow:
        topic = flow.topic()
        await asyncio.to_thread(write, flow.source, topic, numbered(300))
        replicator = await flow.copying()

        def at(cluster: Cluster, name: str, records: int) -> list[bytes]:
            with member(cluster, group, name, group_protocol=protocol) as (consumer, pending):
                return consume(consumer, pending, records)

        async with following(flow) as follower:
            await asyncio.to_thread(at, flow.source, topic, 100)
            await follower.in_step(group, 100)
            await asyncio.to_thread(at, flow.source, topic, 20)
            await follower.in_step(group, 120)
            await flow.caught_up(replicator)
            values = await asyncio.to_thread(at, flow.target, copy_of(topic), 30)
            assert values == [b"value %d" % number for number in range(120, 150)]
            # It continued on the target: nothing on the source reverts that.
            status = await follower.until(lambda each: each.target_offset == 150, group)
            assert status.state == "ahead"
            await asyncio.to_thread(at, flow.source, topic, 10)
            status = await follower.until(lambda each: each.source_offset == 130, group)
            assert (status.state, status.target_offset) == ("ahead", 150)
            await asyncio.to_thread(at, flow.source, topic, 40)
            await follower.in_step(group, 170)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
async def test_members_at_the_target_are_left_alone(lab_pair: LabPair, protocol: str) -> None:
    group = unique("active")
    async with copied(lab_pair.source, lab_pair.target, only(group)) as (flow, topic):
        with member(flow.target, group, copy_of(topic), group_protocol=protocol):
            async with following(flow) as follower:
                await asyncio.to_thread(commit, flow.source, group, topic, {0: 40})
                status = await follower.until(lambda each: each.state == "active" and each.translated == 40, group)
                assert status.target_offset is None
                assert "left unchanged" in status.why
                assert await asyncio.to_thread(committed, flow.target, group, copy_of(topic)) == {0: None}
        async with following(flow) as follower:
            await follower.in_step(group, 40)


async def test_a_share_group_of_the_same_name_at_the_target(lab_pair: LabPair) -> None:
    group = unique("share")
    async with copied(lab_pair.source, lab_pair.target, only(group)) as (flow, topic):
        with java_clients() as java, java.share_consumer(flow.target, group, copy_of(topic)):
            async with following(flow) as follower:
                await asyncio.to_thread(commit, flow.source, group, topic, {0: 40})
                # If the share group is created after the groups were listed, the broker refuses one commit. The next
                # list then names the type of the group.
                named = "there is a share group with this name on the target, which has no such positions"
                status = await follower.until(lambda each: each.why == named, group)
                assert status.state == "refused"
        async with following(flow) as follower:
            # Without members it remains a share group.
            status = await follower.until(lambda each: each.state == "refused", group)
            assert status.target_offset is None


async def test_a_rewind_is_followed_also_after_a_restart(lab_pair: LabPair) -> None:
    group = unique("rewind")
    async with copied(lab_pair.source, lab_pair.target, only(group)) as (flow, topic):
        async with following(flow) as follower:
            await asyncio.to_thread(commit, flow.source, group, topic, {0: 80})
            await follower.in_step(group, 80)
            await asyncio.to_thread(commit, flow.source, group, topic, {0: 10})
            assert (await follower.in_step(group, 10)).target_offset == 10
            await asyncio.to_thread(commit, flow.source, group, topic, {0: 90})
            await follower.in_step(group, 90)
        await asyncio.to_thread(commit, flow.source, group, topic, {0: 5})
        async with following(flow) as follower:
            assert (await follower.in_step(group, 5)).target_offset == 5


async def test_forward_only_stays_in_front(lab_pair: LabPair) -> None:
    group = unique("forward")
    groups = GroupsConfig(match=(group,), mode="forward-only", refresh_ms=300)
    async with copied(lab_pair.source, lab_pair.target, groups) as (flow, topic), following(flow) as follower:
        await asyncio.to_thread(commit, flow.source, group, topic, {0: 80})
        await follower.in_step(group, 80)
        await asyncio.to_thread(commit, flow.source, group, topic, {0: 10})
        status = await follower.until(lambda each: (each.source_offset, each.state) == (10, "ahead"), group)
        assert status.target_offset == 80


async def test_what_the_source_forgets_stays_at_the_target(lab_pair: LabPair) -> None:
    group = unique("expired")
    async with copied(lab_pair.source, lab_pair.target, only(group)) as (flow, topic), following(flow) as follower:
        await asyncio.to_thread(commit, flow.source, group, topic, {0: 80})
        await follower.in_step(group, 80)
        await asyncio.to_thread(forget, flow.source, group)
        status = await follower.until(lambda each: each.state == "expired", group)
        assert (status.source_offset, status.target_offset) == (None, 80)
        assert await asyncio.to_thread(committed, flow.target, group, copy_of(topic)) == {0: 80}


async def test_a_group_waits_for_its_data(lab_pair: LabPair) -> None:
    group = unique("waits")
    async with mirror(lab_pair.source, lab_pair.target, groups=only(group)) as flow:
        topic = flow.topic()
        await asyncio.to_thread(write, flow.source, topic, numbered(100))
        replicator = await flow.copying()
        await flow.caught_up(replicator)
        async with following(flow) as follower:
            await replicator.close(10)
            flow.replicators.remove(replicator)
            await asyncio.to_thread(write, flow.source, topic, numbered(50, 100))
            await asyncio.to_thread(commit, flow.source, group, topic, {0: 130})
            status = await follower.until(lambda each: each.state == "waits", group)
            assert status.target_offset == 100
            assert status.why == "30 source offsets before it have not been copied yet"
            await flow.copying("left")
            assert (await follower.in_step(group, 130)).target_offset == 130


async def test_without_the_right_to_read_commits_they_are_asked_for(
    lab_sasl: Cluster, lab_pair: LabPair, allow: Allow
) -> None:
    group = unique("asked")
    async with copied(lab_sasl, lab_pair.target, only(group)) as (flow, topic):
        rights = KafkaUpkeepAdmin(config_of(lab_sasl), SECONDS)
        describe = AclRule("GROUP", "PREFIXED", group, "User:mirrord", "*", "DESCRIBE", "ALLOW")
        assert await rights.add_rules([describe]) == {}
        allow("mirrord", AclOperation.READ, topic)
        try:
            less = ClusterConfig(tuple(lab_sasl.bootstrap.split(",")), security_of(lab_sasl, "mirrord"))
            async with following(flow, less) as follower:
                await asyncio.to_thread(commit, flow.source, group, topic, {0: 80})
                await follower.in_step(group, 80)
                report = await follower.report()
                assert report.source == "polling"
                assert report.note.startswith("READ on the topic __consumer_offsets of eu is missing")
                await asyncio.to_thread(commit, flow.source, group, topic, {0: 20})
                assert (await follower.in_step(group, 20)).target_offset == 20
        finally:
            await rights.remove_rules([describe])
            await rights.close()


async def test_commits_of_transactions_count_when_these_do(lab_pair: LabPair) -> None:
    group = unique("transactions")
    async with copied(lab_pair.source, lab_pair.target, only(group)) as (flow, topic):

        def in_transaction(offset: int, *, abort: bool) -> None:
            producer = Producer({**client_settings(flow.source), "transactional.id": group})
            consumer = Consumer({**client_settings(flow.source), "group.id": group})
            producer.init_transactions(SECONDS)
            producer.begin_transaction()
            member_of = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction([TopicPartition(topic, 0, offset)], member_of, SECONDS)
            (producer.abort_transaction if abort else producer.commit_transaction)(SECONDS)
            consumer.close()

        async with following(flow) as follower:
            await asyncio.to_thread(in_transaction, 30, abort=False)
            await follower.in_step(group, 30)
            await asyncio.to_thread(in_transaction, 60, abort=True)
            await asyncio.to_thread(in_transaction, 40, abort=False)
            await follower.in_step(group, 40)


def test_the_verb_shows_groups_with_and_without_a_daemon(lab_pair: LabPair, tmp_path: Path) -> None:
    topic, group, flow = unique("orders"), unique("verb"), unique("flow")
    create_topic(lab_pair.source, topic)
    write(lab_pair.source, topic, numbered(100))
    path = conf(
        tmp_path,
        lab_pair.source,
        lab_pair.target,
        topic,
        flow=flow,
        # A long id could take too long with the second pattern.
        flow_more=f'groups = {{ match = ["{group}.*"], exclude = [".*z.*z.*z"], refresh = "300ms" }}',
    )
    left_out = f'1 group is left out, because .*; the first one: "{group}x+..."'

    def shown() -> GroupsReport:
        answer = mirrord("groups", path, "--json")
        assert answer.returncode == 0, answer.stderr
        (report,) = msgspec.json.decode(answer.stdout, type=dict[str, list[GroupsReport]])["flows"]
        return report

    with Daemon(path) as daemon:
        daemon.until_copied({(topic, 0): 100})
        commit(lab_pair.source, f"{group}{'x' * 300}", topic, {0: 10})
        commit(lab_pair.source, group, topic, {0: 40})
        daemon.until(lambda: [each.target_offset for each in shown().groups] == [40])
        daemon.until(lambda: any(re.search(left_out, each) for each in daemon.flow().remarks))
        assert [event["cluster"] for event in daemon.events() if event["event"] == "groups_left_out"] == ["eu"]
        report = shown()
        (status,) = report.groups
        assert report.source == "log"
        assert re.fullmatch(left_out, report.note)
        assert (status.state, status.lag_records, status.target_topic) == ("in step", 60, f"eu.{topic}")
        assert daemon.stop() == 0
    commit(lab_pair.source, group, topic, {0: 70})
    report = shown()
    (status,) = report.groups
    note = "no daemon answers: determined from both clusters, and nothing is committed"
    assert re.fullmatch(f"{note}; {left_out}", report.note)
    assert (status.state, status.source_offset, status.target_offset, status.translated) == ("behind", 70, 40, 70)
    lines = mirrord("groups", path).stdout
    assert group in lines
    assert "the source has moved on" in lines
    other = tmp_path / "other.toml"
    other.write_text(path.read_text().replace(lab_pair.source.bootstrap, "127.0.0.1:1"))
    answer = mirrord("groups", other, "--json")
    (report,) = msgspec.json.decode(answer.stdout, type=dict[str, list[GroupsReport]])["flows"]
    (status,) = report.groups
    assert (status.target_offset, status.lag_records, status.why) == (40, 60, "the source does not answer")


def test_kill_9_sets_no_group_back_nor_past_its_data(lab_pair: LabPair, tmp_path: Path) -> None:
    topic, group, flow = unique("orders"), unique("killed"), unique("flow")
    create_topic(lab_pair.source, topic)
    create_topic(lab_pair.target, f"eu.{topic}")
    # Foreign records: the offsets on the two sides differ.
    write(lab_pair.target, f"eu.{topic}", numbered(7, 1_000_000))
    groups = f'groups = {{ match = ["{group}.*"], refresh = "300ms" }}'
    path = conf(tmp_path, lab_pair.source, lab_pair.target, topic, flow=flow, flow_more=groups)
    read: list[bytes] = []
    watch = Watch(lab_pair.target, group, f"eu.{topic}")
    with Load(lab_pair.source, topic, 1).running() as load, watch.running():
        with member(lab_pair.source, group, topic) as (consumer, pending):
            for _ in range(3):
                with Daemon(path) as daemon:
                    seen = len(watch.seen)
                    while len(watch.seen) < seen + 5:
                        read += consume(consumer, pending, 20)
                        assert daemon.process.poll() is None, daemon.output
                    daemon.kill()
        with Daemon(path) as daemon:
            load.wait_for(100)
            behind = len(read) + 7
            daemon.until(lambda: watch.seen[-1] == behind)
            assert watch.wrong == []
            with member(lab_pair.target, group, f"eu.{topic}") as (consumer, pending):
                read += consume(consumer, pending, 50)
    assert read == [b"value %d" % number for number in range(len(read))]
