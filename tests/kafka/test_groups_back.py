"""Failback on real brokers: groups that consumed on the target continue on the source at the same record."""

import asyncio
import random
import time
from pathlib import Path

import msgspec
from confluent_kafka import Consumer
from confluent_kafka.admin import AclOperation

from mirrord.config.flow_features import GroupsConfig
from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.config_and_acl_admin import KafkaUpkeepAdmin
from mirrord.lab.cluster import Cluster
from mirrord.model.acls import AclRule
from mirrord.model.group_status import GroupsReport
from tests.fixtures.daemon import Daemon, Load, conf, mirrord, unique
from tests.fixtures.groups import Watch, commit, committed, consume, copied, following, member, numbered
from tests.fixtures.lab import Allow, LabPair
from tests.fixtures.mirror import SECONDS, config_of, copy_of, create_topic, write
from tests.fixtures.wire import security_of

ROUNDS = 5


def both_ways(group: str) -> GroupsConfig:
    return GroupsConfig(match=(f"{group}.*",), refresh_ms=300, every_ms=300, reverse=True)


def read_at(cluster: Cluster, group: str, topic: str, records: int, *, more: int = 0) -> list[bytes]:
    """Read and commit this many records, and read `more` without a commit; the values of those that were committed."""
    with member(cluster, group, topic) as (consumer, pending):
        values = consume(consumer, pending, records)
        _read_on(consumer, more)
    return values


def _read_on(consumer: Consumer, records: int) -> None:
    deadline = time.monotonic() + 1
    while records > 0 and time.monotonic() < deadline:
        records -= consumer.poll(0.1) is not None


async def test_the_source_follows_what_is_read_at_the_target(lab_pair: LabPair) -> None:
    group = unique("back")
    async with copied(lab_pair.source, lab_pair.target, both_ways(group), foreign=7) as (flow, topic):
        copy = copy_of(topic)
        # Two foreign records, after what has been copied so far.
        await asyncio.to_thread(write, flow.target, copy, numbered(2, 9_000))
        await asyncio.to_thread(write, flow.source, topic, numbered(50, 100))
        await flow.caught_up(flow.replicators[0])
        async with following(flow) as follower:
            await asyncio.to_thread(commit, flow.source, group, topic, {0: 40})
            await follower.in_step(group, 40)
            assert len(await asyncio.to_thread(read_at, flow.target, group, copy, 20)) == 20
            await follower.in_step(group, 60)
            assert await asyncio.to_thread(committed, flow.source, group, topic) == {0: 60}
            # Back on the target: also back on the source.
            await asyncio.to_thread(commit, flow.target, group, copy, {0: 17})
            await follower.in_step(group, 10)
            # Among records that only the target has: the next one that both have, and the target position stays.
            await asyncio.to_thread(commit, flow.target, group, copy, {0: 108})
            status = await follower.in_step(group, 100)
            assert status.target_offset == 108
            # A rewind on the source takes both back, whichever side was read last.
            await asyncio.to_thread(commit, flow.source, group, topic, {0: 5})
            assert (await follower.in_step(group, 5)).target_offset == 12
            report = await follower.sync.report(reverse=True)
            assert (report.reverse, report.source, [each.state for each in report.groups]) == (True, "log", ["in step"])


async def test_members_at_the_source_are_left_alone(lab_pair: LabPair) -> None:
    group = unique("active")
    async with copied(lab_pair.source, lab_pair.target, both_ways(group)) as (flow, topic), following(flow) as follower:
        with member(flow.source, group, topic):
            await asyncio.to_thread(read_at, flow.target, group, copy_of(topic), 30)
            back = await follower.until_back(lambda each: (each.state, each.translated) == ("active", 30), group)
            assert (back.source_offset, back.target_offset, back.translated) == (None, 30, 30)
            assert "left unchanged" in back.why
        await follower.in_step(group, 30)


async def test_a_missing_right_to_commit_at_the_source_is_reported(
    lab_sasl: Cluster, lab_pair: LabPair, allow: Allow
) -> None:
    group = unique("refused")
    async with copied(lab_sasl, lab_pair.target, both_ways(group)) as (flow, topic):
        rights = KafkaUpkeepAdmin(config_of(lab_sasl), SECONDS)
        describe = AclRule("GROUP", "PREFIXED", group, "User:mirrord", "*", "DESCRIBE", "ALLOW")
        assert await rights.add_rules([describe]) == {}
        allow("mirrord", AclOperation.READ, topic)
        try:
            less = ClusterConfig(tuple(lab_sasl.bootstrap.split(",")), security_of(lab_sasl, "mirrord"))
            async with following(flow, less) as follower:
                await asyncio.to_thread(read_at, flow.target, group, copy_of(topic), 30)
                back = await follower.until_back(lambda each: each.state == "refused", group)
                assert back.why.startswith("the source refuses the commit: GROUP_AUTHORIZATION_FAILED; READ on")
                assert await asyncio.to_thread(committed, flow.source, group, topic) == {0: None}
        finally:
            await rights.remove_rules([describe])
            await rights.close()


def test_the_verb_shows_the_way_back_and_goes_it(lab_pair: LabPair, tmp_path: Path) -> None:
    topic, group, flow = unique("orders"), unique("verb"), unique("flow")
    create_topic(lab_pair.source, topic)
    write(lab_pair.source, topic, numbered(100))
    groups = f'groups = {{ match = ["{group}.*"], refresh = "300ms" }}'
    path = conf(tmp_path, lab_pair.source, lab_pair.target, topic, flow=flow, flow_more=groups)

    def shown(*more: str, code: int = 0) -> dict[str, tuple[int | None, str]]:
        answer = mirrord("groups", path, "--reverse", "--json", *more)
        assert answer.returncode == code, answer.stdout + answer.stderr
        (report,) = msgspec.json.decode(answer.stdout, type=dict[str, list[GroupsReport]])["flows"]
        assert report.reverse
        return {each.group.removeprefix(group): (each.source_offset, each.state) for each in report.groups}

    with Daemon(path) as daemon:
        daemon.until_copied({(topic, 0): 100})
        for name in ("", "-active", "-further"):
            commit(lab_pair.source, group + name, topic, {0: 40})
            daemon.until(lambda name=name: committed(lab_pair.target, group + name, f"eu.{topic}") == {0: 40})
        assert daemon.stop() == 0
    # The source is gone for a while, and groups continue to read on the target.
    for name in ("", "-active", "-new"):
        read_at(lab_pair.target, group + name, f"eu.{topic}", 25)
    commit(lab_pair.source, f"{group}-further", topic, {0: 90})
    looked = {"": (40, "behind"), "-active": (40, "behind"), "-new": (None, "behind"), "-further": (90, "ahead")}
    assert shown() == looked
    assert shown() == looked, "a look alters nothing"
    with member(lab_pair.source, f"{group}-active", topic):
        assert shown("--write", code=3) == {
            "": (65, "in step"),
            "-active": (40, "active"),
            "-new": (25, "in step"),
            "-further": (90, "ahead"),
        }
    assert shown("--write", "--force")["-further"] == (40, "in step")
    assert committed(lab_pair.source, group, topic) == {0: 65}
    assert committed(lab_pair.source, f"{group}-active", topic) == {0: 65}
    assert read_at(lab_pair.source, group, topic, 1) == [b"value 65"]
    lines = mirrord("groups", path, "--reverse").stdout
    assert "in step" in lines
    answer = mirrord("groups", path, "--write")
    assert (answer.returncode, "need --reverse" in answer.stderr) == (2, True)


def test_a_consumer_moves_over_and_back_under_load(lab_pair: LabPair, tmp_path: Path, seed: int) -> None:
    """Nothing that was committed is read again, and nothing is skipped, wherever and whenever it moves."""
    chance = random.Random(seed)
    topic, group, flow = unique("orders"), unique("moving"), unique("flow")
    create_topic(lab_pair.source, topic)
    copy = create_topic(lab_pair.target, f"eu.{topic}")
    others = chance.randrange(1, 20)
    write(lab_pair.target, copy, numbered(others, 1_000_000))
    groups = f'groups = {{ match = ["{group}"], refresh = "300ms", reverse = true }}'
    path = conf(tmp_path, lab_pair.source, lab_pair.target, topic, flow=flow, flow_more=groups)
    read: list[bytes] = []
    watches = [Watch(lab_pair.target, group, copy), Watch(lab_pair.source, group, topic)]
    with Load(lab_pair.source, topic, 1).running() as load, watches[0].running(), watches[1].running():
        load.wait_for(100)
        daemon = Daemon(path)
        try:
            for number in range(ROUNDS):
                for cluster, name, other in ((lab_pair.source, topic, 0), (lab_pair.target, copy, 1)):
                    read += read_at(cluster, group, name, chance.randrange(1, 120), more=chance.randrange(3))
                    if number == ROUNDS // 2 and chance.random() < 0.5:
                        daemon.kill()
                        daemon = Daemon(path)
                    wanted = len(read) + (0 if other else others)
                    daemon.until(lambda at=other, wanted=wanted: watches[at].seen[-1:] == [wanted])
            answer = mirrord("groups", path, "--reverse", "--json")
            (report,) = msgspec.json.decode(answer.stdout, type=dict[str, list[GroupsReport]])["flows"]
            assert (report.source, report.note, [each.state for each in report.groups]) == ("log", "", ["in step"])
            assert daemon.stop() == 0
        finally:
            daemon.__exit__()
    assert [watch.wrong for watch in watches] == [[], []]
    assert read == [b"value %d" % number for number in range(len(read))]
