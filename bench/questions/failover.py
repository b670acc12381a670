"""What does a failover lose, what do consumer groups read next, and how long does it take?

A topic gets 5,000 records a second, and 200 groups commit positions in it. In most rounds, the source's broker is
killed at a random moment, and `mirrord failover --source-lost` runs at once. In the other rounds, the producer and the
groups stop, and `mirrord failover --planned` runs. Afterwards, the source's broker is started again, and its log is
compared with what the receipt says. Each round has a new topic, flow and daemon.
"""

import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Consumer

from bench.harness.clusters import Admin
from bench.harness.committer import GROUPS, Commit, Committer, Place, cluster_id, group_name
from bench.harness.daemon import Daemon, Settings
from bench.harness.load import Load, Topic, Writers
from mirrord.config.schema import ClusterConfig
from mirrord.config.security import Security
from mirrord.kafka.client.cluster_metadata import view_of
from mirrord.kafka.client.group_admin import GroupAdmin
from mirrord.lab.cluster import Cluster
from mirrord.model.errors import EnvironmentFault
from mirrord.model.status import FlowStatus

LOST_ROUNDS, PLANNED_ROUNDS = 20, 5
PARTITIONS, PREFIX = 8, "failover-group"
RECORDS_PER_S = 5_000.0
VALUE_BYTES = 200
READ_S = 1.0
"""A commit is allowed to be unknown to mirrord for this long."""
FIRST_RECORD_S = 15.0
"""Limit for the time from the command to the first record that a consumer reads on the target."""
SEEN_MS = 1_000
"""Limit for the age of the last source end that was seen when the source is killed."""
_PATIENCE_S = 120.0
_COMMIT_S = 0.2
_AT_ONCE = 50
_POLL_S = 0.1

PrintLine = Callable[[str], None]


class FailoverRound(msgspec.Struct, frozen=True, kw_only=True):
    """One failover."""

    mode: str
    command_s: float
    """From the start of the command to its end."""
    first_record_s: float
    """From the start of the command to the first record that a consumer of a group reads on the target."""
    records: int
    """Records in the target topic."""
    positions: int
    """Positions of groups that were compared."""
    read_again: int
    """Records that groups read again, summed over all groups."""
    skipped: int
    """Records that groups skip."""
    lost_records: int
    inexact_starts: int
    """Partitions whose lost range does not begin at the first record that the target lacks."""
    unnamed: int
    """Partitions of which records are lost that were on the source for more than `READ_S`, and that the receipt does
    not name."""
    seen_age_ms: int
    """The largest age of a source end in the receipt when the source was killed. 0 in a planned failover."""


def measure(source: Cluster, target: Cluster, share: float, seed: int, print_line: PrintLine) -> list[FailoverRound]:
    """Run all rounds. Raises EnvironmentFault."""
    rng = random.Random(seed)
    modes = ["source-lost"] * max(1, round(LOST_ROUNDS * share)) + ["planned"] * max(1, round(PLANNED_ROUNDS * share))
    rounds: list[FailoverRound] = []
    for number, mode in enumerate(modes):
        found = _round(source, target, number, mode, rng, print_line)
        print_line(f"failover: round {number}, {mode}: {found}")
        rounds.append(found)
    return rounds


def _round(
    source: Cluster, target: Cluster, number: int, mode: str, rng: random.Random, print_line: PrintLine
) -> FailoverRound:
    topic = f"failover-{number:02}"
    Admin(source.bootstrap).create([Topic(topic, PARTITIONS, "none")])
    load = Load(10**9, VALUE_BYTES, rng.randrange(2**31), records_per_s=RECORDS_PER_S, large_every=10**9, at_once=50)
    committer = Committer(source, topic, PARTITIONS, PREFIX, rng.randrange(2**31))
    with (
        tempfile.TemporaryDirectory(prefix="mirrord-failover-") as name,
        Writers(source.bootstrap, [Topic(topic, PARTITIONS, "lz4")], load) as writers,
        _running(_daemon(Path(name), source, target, topic, number)) as daemon,
    ):
        daemon.wait_for("copy", lambda flow: _is_copied(flow, 10_000), _PATIENCE_S)
        committer.start()
        _until(lambda: len({group for group, _ in committer.commits}) == GROUPS, "commits of all groups")
        _wait(rng.uniform(2.0, 6.0), daemon)
        if mode == "planned":
            writers.stop()
            committer.stop()
            ended_s, ended_ms = time.monotonic() + READ_S, time.time() * 1000
        else:
            source.kill()
            ended_s, ended_ms = time.monotonic(), time.time() * 1000
        began = time.monotonic()
        receipt = _failover(daemon.conf, mode)
        command_s = time.monotonic() - began
        first_s = _first_record(target, f"eu.{topic}") - began
    committer.stop()
    if mode != "planned":
        source.restart()
        _until(lambda: len(_ends(source, topic)) == PARTITIONS, "the source again")
    print_line(f"failover: round {number}: comparing {len(committer.commits)} positions")
    # The fence of a failover takes one offset in each target partition.
    copied = {partition: end - 1 for partition, end in _ends(target, f"eu.{topic}").items()}
    there = _ends(source, topic)
    positions = asyncio.run(_positions(target, f"eu.{topic}"))
    again, skipped = _compared(committer.commits, positions, copied, ended_s)
    lost = {each["partition"]: each for each in receipt["lost"]}
    seen = [ended_ms - each["seen_ms"] for each in receipt["lost"]]
    seen += [] if receipt["seen_ms"] is None else [ended_ms - receipt["seen_ms"]]
    return FailoverRound(
        mode=mode,
        command_s=command_s,
        first_record_s=first_s,
        records=sum(copied.values()),
        positions=len(committer.commits),
        read_again=again,
        skipped=skipped,
        lost_records=sum(there[partition] - copied[partition] for partition in there),
        inexact_starts=sum(each["start"] != copied[partition] for partition, each in lost.items()),
        unnamed=sum(mode == "planned" and there[each] > copied[each] and each not in lost for each in there),
        seen_age_ms=0 if mode == "planned" else max(0, round(max(seen, default=0.0))),
    )


def _daemon(folder: Path, source: Cluster, target: Cluster, topic: str, number: int) -> Daemon:
    settings = Settings(
        source=source.bootstrap,
        target=target.bootstrap,
        topics=topic,
        engine="process",
        flow=f"failover-{number:02}",
        flow_more='groups = { match = ["failover-group-.*"] }',
    )
    return Daemon(folder, settings)


@contextmanager
def _running(daemon: Daemon) -> Generator[Daemon]:
    try:
        daemon.start()
        yield daemon
    finally:
        daemon.stop()


def _is_copied(flow: FlowStatus, records: int) -> bool:
    return sum(lane.copied_records for lane in flow.lanes) >= records


def _wait(seconds: float, daemon: Daemon) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        _ = daemon.pid
        time.sleep(_POLL_S)


def _until(reached: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while not reached():
        if time.monotonic() > deadline:
            raise EnvironmentFault(f"no {what} within {_PATIENCE_S:g} s")
        time.sleep(_POLL_S)


def _failover(conf: Path, mode: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "mirrord.cli.main", "failover", str(conf), f"--{mode}", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    if done.returncode != 0:
        raise EnvironmentFault(f"mirrord failover ends with {done.returncode}: {done.stdout}{done.stderr}")
    return msgspec.json.decode(done.stdout)["flows"][0]


def _first_record(target: Cluster, topic: str) -> float:
    """Consume with some groups on the target until one of them gets a record. Return the time."""
    deadline = time.monotonic() + _PATIENCE_S
    consumers: list[Consumer] = []
    try:
        for number in range(5):
            settings = {
                "group.id": group_name(PREFIX, number),
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
            }
            consumer = Consumer({"bootstrap.servers": target.bootstrap, "log_level": 2, **settings})
            consumer.subscribe([topic])
            consumers.append(consumer)
        while time.monotonic() < deadline:
            for consumer in consumers:
                message = consumer.poll(0.02)
                if message is not None and message.error() is None:
                    return time.monotonic()
        raise EnvironmentFault(f"no group reads a record of {topic}")
    finally:
        for consumer in consumers:
            consumer.close()


def _ends(cluster: Cluster, topic: str) -> dict[int, int]:
    found = Admin(cluster.bootstrap).ends({topic: PARTITIONS}, timeout_s=10.0)
    return {partition: end for (_, partition), end in found.items()}


async def _positions(target: Cluster, topic: str) -> dict[Place, int]:
    config = ClusterConfig((target.bootstrap,), Security())
    async with view_of("us", config, cluster_id(target)) as view:
        admin = GroupAdmin(view)
        await admin.listed()
        answers = await admin.offsets([group_name(PREFIX, number) for number in range(GROUPS)])
    return {
        (group, partition): each.offset
        for group, answer in answers.items()
        for (name, partition), each in answer.offsets.items()
        if name == topic
    }


def _compared(
    commits: Mapping[Place, list[Commit]], positions: Mapping[Place, int], copied: Mapping[int, int], ended_s: float
) -> tuple[int, int]:
    """Return how many records all groups together read again, and how many they skip.

    A position on the target is compared with the last commit that mirrord had `READ_S` to read, and with all later
    ones, which it may have read. Offsets are the same on both clusters, because no other client writes.
    """
    again = skipped = 0
    for (group, partition), made in commits.items():
        end = copied[partition]
        known = [each.offset for each in made if each.acknowledged_s <= ended_s - READ_S]
        possible = [each.offset for each in made if each.sent_s <= ended_s]
        position = positions.get((group, partition), 0)
        if known:
            again += max(0, min(known[-1], end) - position)
        skipped += max(0, position - min(max(possible, default=0), end))
    return again, skipped
