"""A job that runs in a separate process. It gets its order on stdin, is watched, and ends together with its parent.

The process ties itself to the thread that started it (`mirrord.jobs.job_main`), so it also ends when its parent is
killed. The Java process of its Spark ends with it.
"""

import asyncio
import os
import signal
import sys
import tempfile
from contextlib import suppress

import msgspec

from mirrord.config.schema import Config
from mirrord.model.jobs import Job, JobOutcome

PROGRAM = "mirrord.jobs.job_main"
END_S = 6.0
"""Time that a process has to record in the ledger that it was ended, in seconds."""
_SHOWN_BYTES = 2_000


class JobOrder(msgspec.Struct, frozen=True):
    """The order for a process: the job, and a configuration with one flow.

    It holds references to secrets, but no secrets.
    """

    job: Job
    config: Config


class JobReport(msgspec.Struct, frozen=True):
    """The result of a job."""

    outcome: JobOutcome
    line: str


class JobProcess:
    """A runner that executes jobs, each in a new process."""

    def __init__(self) -> None:
        self._ending: set[asyncio.Task[None]] = set()

    async def run(self, order: JobOrder) -> JobReport:
        """Run a job until its process ends.

        If this call is cancelled, the process is asked to end, and is killed a little later.
        """
        with tempfile.TemporaryFile() as words:
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", PROGRAM, str(os.getpid()),
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=words,
            )  # fmt: skip
            try:
                output, _ = await process.communicate(msgspec.msgpack.encode(order))
            except BaseException:
                ending = asyncio.create_task(_end(process))
                self._ending.add(ending)
                ending.add_done_callback(self._ending.discard)
                raise
            with suppress(msgspec.DecodeError, ValueError):
                return msgspec.msgpack.decode(output, type=JobReport)
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
