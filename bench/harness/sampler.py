"""Where the CPU time of a process is spent: records the running Python function at every tick of the CPU clock.

A tick (SIGPROF) costs some microseconds, so the process behaves as usual; timers around functions that take a
microsecond would measure themselves. Python runs a signal handler between two instructions: a tick within a system call
is seen in the function that made the call. A tick within the event loop is seen at the first instruction of the
callback that runs next, so such ticks are counted for the loop.
"""

import dis
import signal
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import NamedTuple

TICK_S = 0.001
"""The kernel rounds it to its own tick, 1 to 4 ms."""

LOOP = "event loop and reading sockets"
PATCH = "patch and checksum"
INTAKE = "intake"
WINDOW = "window and answers"
REST = "all else"

PARTS = (
    LOOP,
    "writing sockets",
    "frames",
    "fetch requests and answers",
    INTAKE,
    PATCH,
    WINDOW,
    "produce requests",
    "produce answers",
    "lane host",
    "ledger and lease",
    REST,
)
"""The parts in the order in which a batch passes them."""

# By file, or by file and function. A file that is not listed belongs to its caller.
_WHERE: dict[str, str] = {
    "kafka/client/request_pipeline.py:send_held": "writing sockets",
    "kafka/client/request_pipeline.py:request": "writing sockets",
    "kafka/client/request_pipeline.py": "frames",
    "kafka/client/receive_buffers.py": "frames",
    "replication/host/flow_control/memory_budget.py": "frames",
    "replication/host/fetcher.py": "fetch requests and answers",
    "kafka/protocol/fetch.py": "fetch requests and answers",
    "kafka/protocol/fetch_session.py": "fetch requests and answers",
    "replication/lane/intake.py": INTAKE,
    "kafka/protocol/record_batch.py": PATCH,
    "kafka/protocol/crc32c.py": PATCH,
    "replication/lane/step.py": WINDOW,
    "replication/lane/in_flight.py": WINDOW,
    "kafka/rules/error_policy.py": WINDOW,
    "replication/lane/notes.py": WINDOW,
    "replication/lane/lane_report.py": WINDOW,
    "replication/lane/flow_control/request_packing.py": "produce requests",
    "kafka/protocol/produce.py:decode": "produce answers",
    "kafka/protocol/produce.py": "produce requests",
    "replication/host/producer.py:__call__": "produce answers",
    "replication/host/producer.py:answered": "produce answers",
    "replication/host/producer.py:_tell_taken": "produce answers",
    "replication/host/producer.py": "produce requests",
    "replication/host/lane_host.py": "lane host",
    "replication/host/replicator.py": "lane host",
    "ledger/store/lease.py": "ledger and lease",
    "runtime/clock.py": "ledger and lease",
}
_LEDGER = "ledger/"
_PACKAGE = str(Path(__file__).parents[2] / "mirrord") + "/"
_RESUME = dis.opmap["RESUME"]


class Profile(NamedTuple):
    """Ticks by part, and the number of ticks in `step`, the lane's state machine, including everything that it
    calls."""

    ticks: dict[str, int]
    step: int

    @property
    def total(self) -> int:
        """Number of all ticks."""
        return sum(self.ticks.values())


class Sampler:
    """Counts from `start` to `stop`, in the main thread."""

    def __init__(self) -> None:
        self._ticks: Counter[str] = Counter()
        self._step = 0

    @property
    def looks(self) -> int:
        """Return the ticks so far."""
        return self._ticks.total()

    def start(self) -> None:
        """Start."""
        signal.signal(signal.SIGPROF, self._tick)
        signal.setitimer(signal.ITIMER_PROF, TICK_S, TICK_S)

    def stop(self) -> Profile:
        """Stop, and return the ticks."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, signal.SIG_IGN)
        return Profile({part: self._ticks[part] for part in PARTS if self._ticks[part]}, self._step)

    def _tick(self, _number: int, frame: FrameType | None) -> None:
        part, stepped = _place(frame)
        self._ticks[part] += 1
        self._step += stepped


def _place(frame: FrameType | None) -> tuple[str, bool]:
    """Return the part that a frame belongs to, and whether `step` is below it."""
    if frame is None or (_by_loop(frame) and _just_entered(frame)):
        return LOOP, False
    part: str | None = None
    while frame is not None:
        code = frame.f_code
        file = code.co_filename
        if file.startswith(_PACKAGE):
            name = file[len(_PACKAGE) :]
            if part is None:
                part = _WHERE.get(f"{name}:{code.co_name}") or _WHERE.get(name)
                if part is None and name.startswith(_LEDGER):
                    part = "ledger and lease"
            if code.co_name == "step" and name == "replication/lane/step.py":
                return part or WINDOW, True
        elif part is None and _runs_loop(frame):
            return LOOP, False
        frame = frame.f_back
    return part or REST, False


def _runs_loop(frame: FrameType) -> bool:
    return frame.f_code.co_name == "run" and frame.f_code.co_filename.endswith("asyncio/runners.py")


def _by_loop(frame: FrameType) -> bool:
    """Return whether the event loop called this frame. uvloop's functions have no frames, so what they call is right
    above the runner."""
    return frame.f_back is not None and _runs_loop(frame.f_back)


def _just_entered(frame: FrameType) -> bool:
    return frame.f_lasti < 0 or frame.f_code.co_code[frame.f_lasti] == _RESUME
