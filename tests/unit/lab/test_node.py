"""A node of the lab stops as soon as it is paused, and runs the command and the environment that it was given."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirrord.lab.node import Node

BUSY = """
import threading

print("busy", flush=True)
for _ in range(8):
    threading.Thread(target=lambda: all(iter(lambda: True, False))).start()
"""


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A process whose threads never wait."""
    node = Node(1, tmp_path, [sys.executable, "-c", BUSY], detached=False)
    node.start()
    yield node
    node.kill()


def states(node: Node) -> set[str]:
    """The states of all threads of a node."""
    stats = Path(f"/proc/{node.pid}/task").glob("*/stat")
    return {each.read_text().rpartition(")")[2].split()[0] for each in stats}


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="this system shows no threads in /proc")
def test_no_thread_of_a_paused_node_runs(node: Node) -> None:
    for _ in range(20):
        node.pause()
        assert states(node) == {"T"}
        node.resume()


def test_a_node_runs_another_command_from_its_next_start_on(tmp_path: Path) -> None:
    script = "import os; print(os.environ['GREETING'], 'from', {!r}, flush=True)"
    node = Node(
        1, tmp_path, [sys.executable, "-c", script.format("one")], detached=False, environment={"GREETING": "hello"}
    )
    for name in ("one", "two"):
        node.run([sys.executable, "-c", script.format(name)])
        node.start()
        while node.running:
            time.sleep(0.01)
        assert node.log_tail(1) == f"hello from {name}"
