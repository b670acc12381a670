"""Each background task of the actors on Ray is killed by an error that nobody expects. It is reported, and the flow
goes on. tests/kafka/test_killed_tasks.py does the same with the process engine."""

import asyncio
import gc
import sys
import time
from collections.abc import Generator, Iterable
from concurrent.futures import Future
from pathlib import Path
from typing import Any, Protocol

import pytest
import ray
from ray import cloudpickle
from ray.cluster_utils import Cluster as RayCluster
from ray.exceptions import RayActorError
from ray.util import list_named_actors

from actors.options import NAMESPACE
from actors.ray_connection import OBJECT_STORE_BYTES
from tests.fixtures import killing
from tests.fixtures.daemon import RAY_START_S, SECONDS, Daemon, conf, unique
from tests.fixtures.groups import commit, committed, numbered
from tests.fixtures.killing import Killed, name_of, waiter_of
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import create_topic, ends, write

RECORDS = 10
MORE = """groups = { match = ["GROUP"], refresh = "300ms", reverse = true }
heartbeats = { emit = "target", every = "500ms" }"""
_ray: Any = ray


class _Actor(Protocol):
    """An actor, whose classes Ray creates at run time."""


def kill_one(_: _Actor, killed: Iterable[str]) -> str:
    """Kill a task of this process whose name is not in `killed`. Return its name, or nothing if no task is left. Ray
    runs this function outside the event loops."""
    loops = {each.get_loop() for each in gc.get_objects() if isinstance(each, asyncio.Task)}
    for loop in loops:
        done: Future[str] = Future()
        loop.call_soon_threadsafe(lambda loop=loop, done=done: done.set_result(_kill_in_loop(loop, killed)))
        if name := done.result(SECONDS):
            return name
    return ""


def _kill_in_loop(loop: asyncio.AbstractEventLoop, killed: Iterable[str]) -> str:
    tasks = [task for task in asyncio.all_tasks(loop) if waiter_of(task) is not None]
    left = {name_of(task): task for task in tasks if name_of(task) not in {"", *killed}}
    if not left:
        return ""
    name = min(left)
    waiter = waiter_of(left[name])
    assert waiter is not None
    waiter.set_exception(Killed(name))
    return name


@pytest.fixture
def ray_node() -> Generator[RayCluster]:
    node = {"num_cpus": 1, "object_store_memory": OBJECT_STORE_BYTES, "include_dashboard": False}
    made = RayCluster(initialize_head=True, head_node_args=node)
    try:
        _ray.init(address=made.address, namespace=NAMESPACE, log_to_driver=False)
        # The workers cannot import modules of tests.
        for module in (sys.modules[__name__], killing):
            cloudpickle.register_pickle_by_value(module)
        yield made
    finally:
        _ray.shutdown()
        made.shutdown()


def actors(instance: str) -> list[str]:
    """Return the names of the actors of a daemon."""
    return sorted(name for name in list_named_actors() if name.startswith(instance))


def logs(folder: Path) -> str:
    return "".join(file.read_text() for file in (folder / "logs").glob("*.log*"))


def is_reported(task: str, text: str) -> bool:
    """Return whether the log names the error, in a traceback or in a message."""
    return f"Killed: {task}" in text or f"Killed('{task}" in text


def kill_in(name: str, killed: Iterable[str]) -> str:
    """Kill a task of this actor. Return the task's name, or nothing if there is none to be killed, or no such actor."""
    try:
        return str(_ray.get(_ray.get_actor(name).__ray_call__.remote(kill_one, tuple(killed)), timeout=SECONDS))
    except (ValueError, RayActorError):
        return ""


def test_whatever_task_dies_in_an_actor_is_reported_and_replaced(
    lab_pair: LabPair, tmp_path: Path, ray_node: RayCluster
) -> None:
    source, target = lab_pair.source, lab_pair.target
    topic, group, instance = create_topic(source, unique("orders")), unique("readers"), unique("killed")
    more = f'[replicators]\ncount = 1\n[ray]\naddress = "{ray_node.address}"'
    path = conf(
        tmp_path,
        source,
        target,
        topic,
        flow=unique("killed"),
        engine="ray",
        more=more,
        flow_more=MORE.replace("GROUP", group),
        lease_ttl="10s",
    )
    path.write_text(f'instance = "{instance}"\n{path.read_text()}')
    total = 0
    killed: dict[str, set[str]] = {}

    def works() -> None:
        """Write records and commit a position at the source, and wait until both have arrived at the target."""
        nonlocal total
        write(source, topic, numbered(RECORDS, total))
        total += RECORDS
        commit(source, group, topic, {0: total})
        daemon.until(lambda: committed(target, group, f"eu.{topic}") == {0: total})
        assert ends(target, f"eu.{topic}") == {0: total}

    with Daemon(path) as daemon:
        daemon.until(lambda: "daemon_ready" in daemon.output, RAY_START_S)
        works()
        while names := [name for name in actors(instance) if name not in killed or "" not in killed[name]]:
            actor = names[0]
            done = killed.setdefault(actor, set())
            task = kill_in(actor, {each for tasks in killed.values() for each in tasks})
            done.add(task)
            if task:
                print(f"{time.monotonic():.0f} killed {task} in {actor}")
                works()
                daemon.until(lambda task=task: is_reported(task, logs(tmp_path)))
        assert daemon.stop() == 0
    assert len({task for tasks in killed.values() for task in tasks}) > 30
