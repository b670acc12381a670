"""`mirrord start --detach`: starts a daemon in the background and waits for its report over a pipe."""

import asyncio
import os
import select
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence

import msgspec

from mirrord.cli.printing import print_lines
from mirrord.model.errors import EnvironmentFault
from mirrord.model.status import Status

READY_S = 30.0
"""Maximum time in seconds that a background daemon waits for its flows to be running or on standby. After this time,
the daemon reports that it is running, and lists the flows that are not ready."""
TOLD_S = 240.0
"""How many seconds the command waits for the daemon's report. This is long enough for several attempts to start Ray on
a busy machine."""
POLL_S = 0.2


class DaemonReport(msgspec.Struct, frozen=True):
    """A background daemon's report to the command that started it."""

    pid: int
    http: str
    waiting: dict[str, str]
    """The flows that are not yet running or on standby, with their states."""


def start_detached(conf: str, options: Sequence[str]) -> int:
    """Start a daemon for the configuration file `conf` with these options, print the daemon's address, and return the
    exit code.

    If the daemon cannot start, its error message is printed. Raises EnvironmentFault if the daemon does not report in
    time.
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
        raise EnvironmentFault(f"the daemon (pid {daemon.pid}) did not report within {TOLD_S:g} s that it is running")
    if not document:
        _, errors = daemon.communicate()
        print(errors.decode(errors="replace"), end="", file=sys.stderr)
        return daemon.returncode or 1
    report = msgspec.json.decode(document, type=DaemonReport)
    print_lines([f"mirrord is running in the background: pid {report.pid}, {report.http}"])
    for flow, state in report.waiting.items():
        print(f"flow {flow}: {state}; `mirrord status` shows more", file=sys.stderr)
    return 0


SETTLED = frozenset({"running", "standby", "ended"})
"""The states in which a flow stays, if nothing happens."""


async def report_to_parent(fd: int, http: str, status: Callable[[], Awaitable[Status | None]]) -> None:
    """Report the address of this daemon to the command that started it, over the pipe `fd`. The report is sent as soon
    as all flows are running or on standby, or after `READY_S` seconds at the latest. After the report, detach stderr
    from the command."""
    deadline = time.monotonic() + READY_S
    waiting: dict[str, str] = {}
    while True:
        known = await status()
        if known is not None:
            waiting = {flow.name: flow.state for flow in known.flows if flow.state not in SETTLED}
            if not waiting:
                break
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(POLL_S)
    with os.fdopen(fd, "wb") as pipe:
        pipe.write(msgspec.json.encode(DaemonReport(os.getpid(), http, waiting)))
    # The command stops reading stderr when it exits, so later output must go elsewhere.
    with open(os.devnull, "wb") as nowhere:  # noqa: ASYNC230, PTH123 - opens at once
        os.dup2(nowhere.fileno(), sys.stderr.fileno())


def _read(fd: int, deadline: float) -> bytes | None:
    """Read from the pipe until the writer closes it. Return None if that does not happen before the deadline."""
    parts: list[bytes] = []
    while True:
        ready, _, _ = select.select([fd], [], [], max(0.0, deadline - time.monotonic()))
        if not ready:
            return None
        part = os.read(fd, 65_536)
        if not part:
            return b"".join(parts)
        parts.append(part)
