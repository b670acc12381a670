"""`mirrord start` as a separate process: its configuration, its life, and what it reports over HTTP."""

import asyncio
import http.client
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import msgspec

from mirrord.config.http import HttpConfig
from mirrord.control.command_sender import CommandSender
from mirrord.lab.ports import LOOPBACK, free_ports
from mirrord.model.errors import EnvironmentFault
from mirrord.model.status import FlowStatus, Status
from mirrord.runtime.leash import leashed

STOP_S = 60.0
"""This time limit only detects hangs. Where the duration of a stop matters, it is printed."""
_ASK_S = 2.0
_POLL_S = 0.1
_TAIL_LINES = 15
_DIFFERENCE = 3
"""The exit code of `mirrord apply --dry-run` if there is something to do."""

# The leash ends with the thread that created it. This thread lives until the interpreter ends.
_starter = ThreadPoolExecutor(max_workers=1, thread_name_prefix="daemon-starter")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The configuration. Everything else has mirrord's defaults."""

    source: str
    target: str
    topics: str
    """A regex."""
    engine: Literal["ray", "process"]
    flow: str = "eu-us"
    instance: str = "bench"
    refresh_s: float = 1.0
    lease_ttl_s: float = 6.0
    request_timeout_s: float = 8.0
    replicators: int | Literal["auto"] = "auto"
    dashboard: bool = False
    flow_more: str = ""
    """Additional lines of the flow."""
    more: str = ""
    """Additional tables, for example of other clusters and flows."""
    environment: Mapping[str, str] = field(default_factory=dict[str, str])
    """Additional environment variables of the process."""


def target_name(topic: str) -> str:
    """Return the name of the target topic of a topic."""
    return f"eu.{topic}"


class Daemon:
    """One daemon. It ends with this process, however that ends, unless it `outlives` it."""

    def __init__(self, folder: Path, settings: Settings, *, outlives: bool = False) -> None:
        """The folder gets the configuration and the logs."""
        self.settings = settings
        self._outlives = outlives
        self.conf = folder / f"{settings.instance}.toml"
        (port,) = free_ports(1)
        self.address = f"{LOOPBACK}:{port}"
        self._logs = folder / "logs"
        self._output = folder / f"{settings.instance}.out"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self.conf.write_text(_conf(settings, self.address, self._logs))

    @property
    def running(self) -> bool:
        """Whether the process that was started lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The pid of the process that was started. Raises EnvironmentFault if it has ended."""
        if self._process is None or self._process.poll() is not None:
            raise EnvironmentFault(f"the daemon {self.settings.instance} has ended:\n{self.tail()}")
        return self._process.pid

    def start(self) -> None:
        """Start the daemon and return at once."""
        self._process = _starter.submit(self._spawn).result()

    def _spawn(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "mirrord.cli.main", "start", str(self.conf)]
        with self._output.open("ab") as output:
            return subprocess.Popen(
                command if self._outlives else leashed(command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **self.settings.environment},
            )

    def kill(self) -> None:
        """Send kill -9 to the process that was started; Ray's processes end with it."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self) -> int:
        """Send SIGTERM, and return the exit code, or -9 if it has not ended in time."""
        if self._process is None:
            return 0
        if self._process.poll() is None:
            os.kill(self._process.pid, signal.SIGTERM)
        try:
            return self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
            return -signal.SIGKILL

    def apply(self, topics: str, *, dry_run: bool = False) -> None:
        """Write other topics into its file and run `mirrord apply`; with `dry_run` nothing changes, and the file is
        restored. Raises EnvironmentFault."""
        before = self.conf.read_text()
        self.conf.write_text(_conf(replace(self.settings, topics=topics), self.address, self._logs))
        options = ["--dry-run"] if dry_run else []
        command = [sys.executable, "-m", "mirrord.cli.main", "apply", str(self.conf), *options]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=STOP_S, check=False)
        finally:
            if dry_run:
                self.conf.write_text(before)
        if done.returncode != (_DIFFERENCE if dry_run else 0):
            raise EnvironmentFault(f"apply ends with {done.returncode}: {done.stdout}{done.stderr}")

    def hang_up(self, *, topics: str | None = None, replicators: int | None = None) -> None:
        """Write other topics into its file and send SIGHUP, so that it reads the file again. Raises EnvironmentFault if
        it ended."""
        settings = self.settings
        settings = replace(settings, topics=topics or settings.topics, replicators=replicators or settings.replicators)
        self.conf.write_text(_conf(settings, self.address, self._logs))
        os.kill(self.pid, signal.SIGHUP)

    def order(self, order: Mapping[str, str]) -> None:
        """Give it a command (`mirrord.ledger.standing_orders.Order`). Raises EnvironmentFault if it does not accept
        it."""
        sender = CommandSender(f"http://{self.address}", HttpConfig(), STOP_S)
        answer = asyncio.run(sender.send("POST", "/order", msgspec.json.encode(order), "operate"))
        if answer.status != http.HTTPStatus.OK:
            raise EnvironmentFault(f"the command is refused: {answer.body.decode(errors='replace')}")

    def flow(self) -> FlowStatus | None:
        """Return the status of its first flow, or None if it does not answer."""
        return next(iter(self.flows()), None)

    def flows(self) -> Sequence[FlowStatus]:
        """Return the status of all its flows. Empty if it does not answer."""
        try:
            with urllib.request.urlopen(f"http://{self.address}/status", timeout=_ASK_S) as answer:
                return Status.decode(answer.read()).flows
        except (OSError, http.client.HTTPException, ValueError):
            return ()

    def wait_for(
        self,
        what: str,
        reached: Callable[[FlowStatus], bool],
        patience_s: float,
        meanwhile: Callable[[], None] = lambda: None,
    ) -> FlowStatus:
        """Wait until the status meets a condition. Raises EnvironmentFault if the daemon ends, or the time is up."""
        deadline = time.monotonic() + patience_s
        while True:
            flow = self.flow()
            if flow is not None and reached(flow):
                return flow
            _ = self.pid
            meanwhile()
            if time.monotonic() > deadline:
                state = f"{flow.state}, {flow.totals.lanes}, {flow.note}" if flow else "no answer"
                raise EnvironmentFault(f"no {what} within {patience_s:g} s ({state}):\n{self.tail()}")
            time.sleep(_POLL_S)

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield the log lines that it has printed."""
        for line in self._output.read_bytes().splitlines() if self._output.exists() else ():
            try:
                event = msgspec.json.decode(line)
            except msgspec.DecodeError:
                continue
            if isinstance(event, dict):
                yield event

    def tail(self) -> str:
        """Return the end of its output."""
        if not self._output.exists():
            return ""
        return "\n".join(self._output.read_text(errors="replace").splitlines()[-_TAIL_LINES:])


def _conf(settings: Settings, address: str, logs: Path) -> str:
    count = settings.replicators if isinstance(settings.replicators, int) else f'"{settings.replicators}"'
    return f"""instance = "{settings.instance}"

[clusters.eu]
bootstrap = "{settings.source}"

[clusters.us]
bootstrap = "{settings.target}"

[[flows]]
name = "{settings.flow}"
from = "eu"
to = "us"
topics = ['{settings.topics}']
refresh = "{int(settings.refresh_s * 1000)}ms"
{settings.flow_more}

[replicators]
count = {count}

[runtime]
engine = "{settings.engine}"
lease_ttl = "{int(settings.lease_ttl_s * 1000)}ms"
request_timeout = "{int(settings.request_timeout_s * 1000)}ms"

[ray]
dashboard = {"true" if settings.dashboard else "false"}

[http]
listen = "{address}"

[logs]
dir = "{logs}"
{settings.more}
"""
