"""`mirrord start --detach`: a daemon in the background, and how it tells the command that started it that it runs."""

import asyncio
import os
import select
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from mirrord.model.errors import EnvironmentFault
from mirrord.model.status import Status

READY_S = 30.0
"""How long a daemon waits for its flows to run or stand by before it says that it runs without them."""
TOLD_S = 240.0
"""How long the command waits for the daemon: Ray's start on a busy machine, several times over."""
POLL_S = 0.2


class Told(msgspec.Struct, frozen=True):
    """What the daemon tells."""

    pid: int
    http: str
    waiting: dict[str, str]
    """Flows that neither run nor stand by yet, and their state."""


def start_detached(conf: str, options: Sequence[str]) -> int:
    """Starts the daemon with these options more and prints where it is; the exit code.

    What keeps it from starting is printed as usual.
    """
    reading, writing = os.pipe()
    command = [sys.executable, "-m", "mirrord.cli.main", "start", conf, "--tell-fd", str(writing), *options]
    daemon = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=[writing],
        start_new_session=True,
    )
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        document = _read(pipe.fileno(), time.monotonic() + TOLD_S)
    if document is None:
        raise EnvironmentFault(f"the daemon (pid {daemon.pid}) has not said within {TOLD_S:g} s that it runs")
    if not document:
        _, errors = daemon.communicate()
        print(errors.decode(errors="replace"), end="", file=sys.stderr)
        return daemon.returncode or 1
    told = msgspec.json.decode(document, type=Told)
    print(f"mirrord runs in the background: pid {told.pid}, {told.http}")
    for flow, state in told.waiting.items():
        print(f"flow {flow}: {state}; `mirrord status` tells more", file=sys.stderr)
    return 0


async def tell_parent(fd: int, http: str, status: Callable[[], Awaitable[Status | None]]) -> None:
    """Tells the command that started us where we are, once the flows run or after a while; then lets go of it."""
    deadline = time.monotonic() + READY_S
    waiting: dict[str, str] = {}
    while True:
        known = await status()
        if known is not None:
            waiting = {flow.name: flow.state for flow in known.flows if flow.state not in {"running", "standby"}}
            if not waiting:
                break
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(POLL_S)
    with os.fdopen(fd, "wb") as pipe:
        pipe.write(msgspec.json.encode(Told(os.getpid(), http, waiting)))
    # The other end of stderr goes with the command.
    with open(os.devnull, "wb") as nowhere:  # noqa: ASYNC230, PTH123 - opens at once
        os.dup2(nowhere.fileno(), sys.stderr.fileno())


def _read(fd: int, deadline: float) -> bytes | None:
    """All until the other end closes; None when that takes too long."""
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        part = os.read(fd, 65_536)
        if not part:
            return b"".join(parts)
        parts.append(part)
