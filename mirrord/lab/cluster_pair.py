"""Manages the pair of clusters that `mirrord lab up` starts. The clusters outlive the command. A small file stores
their addresses and process ids."""

import fcntl
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil

from mirrord.lab.cluster import Cluster, start_together
from mirrord.lab.jars import cache_folder
from mirrord.lab.server_properties import LabOptions
from mirrord.model.errors import EnvironmentFault

NAMES = ("source", "target")
_STATE = "lab.json"
_STOP_SECONDS = 30


class LabCluster(msgspec.Struct, frozen=True):
    """One cluster of the pair. `pid` is the id of its only process."""

    bootstrap: str
    pid: int
    folder: str


class LabState(msgspec.Struct, frozen=True):
    """The contents of `lab.json`: the Kafka version, and the two clusters by name (`source`, `target`)."""

    version: str
    clusters: dict[str, LabCluster]


def default_folder() -> Path:
    return cache_folder() / "lab"


def up(folder: Path, options: LabOptions) -> LabState:
    """Start the pair of clusters and return its state. If both clusters are already running, change nothing. Raises
    EnvironmentFault."""
    with _locked(folder):
        state = status(folder)
        if state is not None:
            if all(is_running(cluster) for cluster in state.clusters.values()):
                return state
            _end(state)  # both clusters are needed, so both are started again if one has ended
        clusters: dict[str, Cluster] = {}
        for name in NAMES:
            home = folder / name
            shutil.rmtree(home, ignore_errors=True)
            clusters[name] = Cluster(options, home, detached=True)
        start_together(clusters.values())
        state = LabState(
            version=options.version,
            clusters={
                name: LabCluster(bootstrap=cluster.bootstrap, pid=cluster.pid(), folder=str(cluster.folder))
                for name, cluster in clusters.items()
            },
        )
        (folder / _STATE).write_bytes(msgspec.json.format(msgspec.json.encode(state)))
        return state


def down(folder: Path) -> LabState | None:
    """Stop both clusters, remove their data, and return the former state of the pair, or None if there is no pair."""
    if not (folder / _STATE).exists():
        return None
    with _locked(folder):
        state = status(folder)
        if state is not None:
            _end(state)
            for cluster in state.clusters.values():
                shutil.rmtree(cluster.folder, ignore_errors=True)
            (folder / _STATE).unlink()
        return state


def status(folder: Path) -> LabState | None:
    """Return the state that `up` wrote to this folder, or None if there is none. Raises EnvironmentFault if the file
    does not contain a valid state."""
    try:
        return msgspec.json.decode((folder / _STATE).read_bytes(), type=LabState)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError) as error:
        raise EnvironmentFault(f"{folder / _STATE} does not say where the lab is: {error}") from None


def is_running(cluster: LabCluster) -> bool:
    return _process(cluster) is not None


def _process(cluster: LabCluster) -> psutil.Process | None:
    """Return the cluster's process, or None if the process that `up` started has exited. In the latter case, another
    program may now have the same process id. Therefore a process is assumed to be the cluster's only if its command
    line contains the cluster's folder."""
    try:
        process = psutil.Process(cluster.pid)
        ours = any(part.startswith(cluster.folder) for part in process.cmdline())
        return process if ours and process.status() != psutil.STATUS_ZOMBIE else None
    except psutil.Error:
        return None


def _end(state: LabState) -> None:
    processes = [process for cluster in state.clusters.values() if (process := _process(cluster)) is not None]
    _signal(processes, lambda process: process.resume())
    _signal(processes, lambda process: process.terminate())
    _, alive = psutil.wait_procs(processes, timeout=_STOP_SECONDS)
    _signal(alive, lambda process: process.kill())
    psutil.wait_procs(alive, timeout=_STOP_SECONDS)


def _signal(processes: list[psutil.Process], send: Callable[[psutil.Process], None]) -> None:
    for process in processes:
        try:
            send(process)
        except psutil.NoSuchProcess:
            continue


@contextmanager
def _locked(folder: Path) -> Generator[None]:
    """Hold the lock on this folder, so that only one command at a time can change the pair."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "lab.lock").open("w")
    except OSError as error:
        raise EnvironmentFault(f"the lab cannot use the folder {folder}: {error.strerror}") from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
