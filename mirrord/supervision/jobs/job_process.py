"""A job as a process of its own: given its order on stdin, watched, and ended with whoever started it.

The process ties itself to the thread that started it (`mirrord.jobs.job_main`), so it ends also when that is killed;
the Java of its Spark ends with it.
"""

import asyncio
import os
import signal
import sys
import tempfile
from contextlib import suppress

import msgspec

from mirrord.config.schema import Config
from mirrord.model.jobs import Job, Outcome

PROGRAM = "mirrord.jobs.job_main"
END_S = 6.0
"""So long a process may take to tell the ledger that it was ended."""
_SHOWN_BYTES = 2_000


class JobOrder(msgspec.Struct, frozen=True):
    """What a process is to do: the job, and a configuration of one flow. It holds references to secrets, no secrets."""

    job: Job
    config: Config


class JobReport(msgspec.Struct, frozen=True):
    """What came of it."""

    outcome: Outcome
    line: str


class JobProcess:
    """Runs one job after the other."""

    def __init__(self) -> None:
        self._ending: set[asyncio.Task[None]] = set()

    async def run(self, order: JobOrder) -> JobReport:
        """Until it has ended. When this is cancelled, the process is told to end, and killed a little later."""
        with tempfile.TemporaryFile() as words:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", PROGRAM, str(os.getpid()),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=words,
            )  # fmt: skip
            try:
                told, _ = await process.communicate(msgspec.msgpack.encode(order))
            except BaseException:
                ending = asyncio.create_task(_end(process))
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)
                raise
            with suppress(msgspec.DecodeError, ValueError):
                return msgspec.msgpack.decode(told, type=JobReport)
            size = words.seek(0, os.SEEK_END)
            words.seek(max(0, size - _SHOWN_BYTES))
            lines = words.read().decode(errors="replace").splitlines()
            last = f": {lines[-1]}" if lines else ""
            return JobReport("failed", f"its process ended with exit code {process.returncode}{last}")


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGTERM)
    try:
        async with asyncio.timeout(END_S):
            await process.wait()
    except TimeoutError:
        with suppress(ProcessLookupError):
            process.kill()
