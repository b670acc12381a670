"""Daemons on a Ray cluster that is not theirs: separated by their instance names, and ended by `mirrord stop`."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Generator
from ipaddress import ip_address
from pathlib import Path

import psutil
import pytest
import ray

from actors import janitor
from actors.handles import names
from actors.ray_access import TOKEN_PATH
from actors.ray_connection import RayConnection
from mirrord.config.schema import RayConfig
from mirrord.lab.cluster import Cluster
from tests.fixtures.daemon import RAY_START_S, SECONDS, Daemon, all_ends, assert_same, conf, fill, mirrord, unique
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic

TOKEN = {"RAY_AUTH_MODE": "token"}
"""A Ray that was started elsewhere does not say whether it wants its token."""


@pytest.fixture
def ray_address() -> Generator[str]:
    connection = RayConnection(RayConfig(dashboard=False))
    connection.connect()
    yield ray.get_runtime_context().gcs_address
    connection.close()


def test_only_processes_of_this_machine_that_have_the_token_reach_a_ray_cluster(ray_address: str) -> None:
    """Every server of the cluster listens on a loopback address, and a client without the token is refused."""
    ray.get(ray.remote(lambda: None).remote())  # a worker is running, which has a server of its own
    folder = Path(os.environ[TOKEN_PATH]).parent
    pids = {*janitor.users(str(folder)), os.getpid(), *(each.pid for each in psutil.Process().children(recursive=True))}
    listening = [
        (psutil.Process(pid).name(), each.laddr)
        for pid in pids
        for each in psutil.Process(pid).net_connections("inet")
        if each.status == psutil.CONN_LISTEN
    ]
    assert len(listening) >= 3
    assert [each for each in listening if not ip_address(each[1].ip.removeprefix("::ffff:")).is_loopback] == []
    program = "import sys, ray; ray.init(sys.argv[1]); print('joined')"
    for token, joins in ((None, False), ("0" * 64, False), (Path(os.environ[TOKEN_PATH]).read_text(), True)):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_AUTH")}
        environment |= {"RAY_AUTH_TOKEN": token, "RAY_AUTH_MODE": "token"} if token else {"RAY_AUTH_MODE": "disabled"}
        command = [sys.executable, "-c", program, ray_address]
        client = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=RAY_START_S, check=False
        )
        assert (client.stdout.endswith("joined\n"), client.returncode == 0) == (joins, joins), client.stderr


def mirror(source: Cluster, target: Cluster, folder: Path, address: str) -> tuple[str, str, Path]:
    """An instance name, a topic, and a configuration that copies it on this Ray."""
    instance, topic = unique("daemon"), create_topic(source, unique("orders"), 1)
    fill(source, topic, 1, 500)
    more = f'[ray]\naddress = "{address}"'
    path = conf(folder, source, target, topic, flow=unique("cluster"), engine="ray", more=more)
    path.write_text(f'instance = "{instance}"\n{path.read_text()}')
    return instance, topic, path


def test_two_daemons_share_a_ray_cluster(lab_pair: LabPair, tmp_path: Path, ray_address: str) -> None:
    source, target = lab_pair.source, lab_pair.target
    one, one_topic, one_path = mirror(source, target, tmp_path, ray_address)
    other, other_topic, other_path = mirror(source, target, tmp_path, ray_address)
    with Daemon(one_path, environment=TOKEN) as first, Daemon(other_path, environment=TOKEN) as second:
        for daemon, topic in ((first, one_topic), (second, other_topic)):
            daemon.until(lambda daemon=daemon: "daemon_ready" in daemon.output, RAY_START_S)
            daemon.until_copied(all_ends(source, topic))
        alive = asyncio.run(names())
        assert {f"{one}/supervisor", f"{other}/supervisor"} <= set(alive)
        assert all(name.startswith((f"{one}/", f"{other}/")) for name in alive)

        with Daemon(one_path, environment=TOKEN) as twin:
            assert twin.process.wait(SECONDS) == 1
            assert f'a daemon of the instance "{one}" is already running on this Ray cluster' in twin.output

        # The cluster keeps the daemon whose foreground process was killed until `mirrord stop`.
        first.kill()
        stopped = mirrord("stop", one_path)
        assert (stopped.returncode, stopped.stderr) == (0, "")
        deadline = time.monotonic() + SECONDS
        while any(name.startswith(f"{one}/") for name in asyncio.run(names())):
            assert time.monotonic() < deadline, "it is still there"
            time.sleep(0.2)
        assert second.flow().state == "running"

        # On one Ray cluster actors of the same program continue, under another supervisor.
        hosts = {each.pid for each in second.flow().replicators}
        with Daemon(other_path, "--upgrade", environment=TOKEN) as third:
            third.until(lambda: second.process.poll() is not None, RAY_START_S)
            assert second.process.returncode == 0, second.output
            third.until(lambda: third.flow().totals.lanes == {"copying": 1})
            third.until(lambda: {each.pid for each in third.flow().replicators} == hosts)
            fill(source, other_topic, 1, 500, first=500)
            third.until_copied(all_ends(source, other_topic))
            assert third.stop() == 0
    assert asyncio.run(names()) == []
    assert_same(source, target, [one_topic, other_topic], 1_500)
