"""How long does `mirrord ready` take with a thousand partitions and a thousand groups?

Each group has a position in ten partitions. The command is timed as a whole process: with the daemon running, and with
the source and the daemon gone. An address of a source that is gone either refuses connections, as after the end of its
process, or accepts them and stays silent.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

from bench.harness.clusters import Admin
from bench.harness.daemon import Daemon, Settings
from bench.harness.load import Topic
from bench.harness.silent import silent_address
from mirrord.config.schema import ClusterConfig
from mirrord.config.security import Security
from mirrord.kafka.client.cluster_metadata import view_of
from mirrord.kafka.client.group_admin import GroupAdmin
from mirrord.kafka.protocol.groups import CommittedOffset
from mirrord.lab.cluster import Cluster
from mirrord.lab.ports import LOOPBACK, free_ports
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import ClusterId
from mirrord.model.status import FlowStatus

PARTITIONS, GROUPS, PLACES = 1_000, 1_000, 10
RECORDS = 5
"""Records in each partition."""
TIMES = 5
LIMIT_S = 5.0
START_S = 300.0
TOPIC = "ready-orders"
_POLL_S = 0.2
_AT_ONCE = 50

PrintLine = Callable[[str], None]


class Readiness(msgspec.Struct, frozen=True, kw_only=True):
    """How long the command took in one situation."""

    situation: str
    partitions: int
    groups: int
    positions: int
    """Positions of groups that the command has found to be known exactly."""
    seconds: list[float]


def measure(source: Cluster, target: Cluster, share: float, print_line: PrintLine) -> list[Readiness]:
    """Start a daemon, end it, and time the command. Raises EnvironmentFault."""
    times = max(1, round(TIMES * share))
    Admin(source.bootstrap).create([Topic(TOPIC, PARTITIONS, "none")])
    _fill(source)
    with tempfile.TemporaryDirectory(prefix="mirrord-ready-") as name, silent_address() as silent:
        folder = Path(name)
        settings = Settings(source=source.bootstrap, target=target.bootstrap, topics=TOPIC, engine="process")
        daemon = Daemon(folder, settings)
        try:
            daemon.start()
            print_line(f"ready: {PARTITIONS:,} partitions are copied")
            daemon.wait_for("copy", _is_copied, START_S)
            print_line(f"ready: {GROUPS:,} groups commit in {PLACES} partitions each")
            asyncio.run(_commit(source))
            _until_known(daemon.conf)
            found = [_timed("the daemon runs", daemon.conf, times)]
            daemon.kill()
        finally:
            daemon.stop()
        refused = f"{LOOPBACK}:{free_ports(1)[0]}"
        for what, address in (("refuses connections", refused), ("is silent", silent)):
            gone = folder / f"{what[:2]}.toml"
            gone.write_text(daemon.conf.read_text().replace(source.bootstrap, address, 1))
            found.append(_timed(f"the daemon is gone, and the source {what}", gone, times))
    return found


def _is_copied(flow: FlowStatus) -> bool:
    return flow.totals.lanes == {"copying": PARTITIONS} and flow.totals.lag_records == 0


def _fill(source: Cluster) -> None:
    producer = Producer({"bootstrap.servers": source.bootstrap, "linger.ms": 20})
    for number in range(RECORDS * PARTITIONS):
        producer.produce(TOPIC, b"value %d" % number, partition=number % PARTITIONS)
        producer.poll(0)
    if producer.flush(START_S):
        raise EnvironmentFault(f"{TOPIC} cannot be written")


async def _commit(source: Cluster) -> None:
    config = ClusterConfig((source.bootstrap,), Security())
    slots = asyncio.Semaphore(_AT_ONCE)
    named = AdminClient({"bootstrap.servers": source.bootstrap}).list_topics(TOPIC, timeout=START_S).cluster_id
    async with view_of("eu", config, ClusterId(named or "")) as view:
        admin = GroupAdmin(view)
        await admin.listed()

        async def commit(group: int) -> None:
            places = [(TOPIC, (group * PLACES + at) % PARTITIONS) for at in range(PLACES)]
            offsets = dict.fromkeys(places, CommittedOffset(RECORDS - 1, -1, ""))
            name = f"group-{group:04}"
            async with slots:
                while True:
                    answer = await admin.commit({name: offsets})
                    if not any(answer[name].values()):
                        return
                    # Right after its start, a broker keeps no groups yet.
                    await asyncio.sleep(_POLL_S)

        await asyncio.gather(*map(commit, range(GROUPS)))


def _ready(conf: Path) -> dict[str, Any]:
    command = [sys.executable, "-m", "mirrord.cli.main", "ready", str(conf), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=START_S, check=False)
    if done.returncode not in {0, 3}:
        raise EnvironmentFault(f"mirrord ready ends with {done.returncode}: {done.stderr}")
    return msgspec.json.decode(done.stdout)["flows"][0]


def _until_known(conf: Path) -> None:
    deadline = time.monotonic() + START_S
    while (flow := _ready(conf))["groups"]["exact"] < GROUPS * PLACES or not flow["ready"]:
        if time.monotonic() > deadline:
            raise EnvironmentFault(f"not all positions are known: {flow['blockers']}")
        time.sleep(_POLL_S)


def _timed(situation: str, conf: Path, times: int) -> Readiness:
    seconds: list[float] = []
    flow: dict[str, Any] = {}
    for _ in range(times):
        began = time.monotonic()
        flow = _ready(conf)
        seconds.append(time.monotonic() - began)
    if not flow["ready"] or len(flow["partitions"]) != PARTITIONS:
        raise EnvironmentFault(f"{situation}: the flow is not ready: {flow['blockers']}")
    return Readiness(
        situation=situation,
        partitions=len(flow["partitions"]),
        groups=flow["groups"]["groups"],
        positions=flow["groups"]["exact"],
        seconds=seconds,
    )
