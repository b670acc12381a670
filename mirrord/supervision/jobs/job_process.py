"""Runs an audit or a compaction in a separate process. The process reads its order from stdin and writes its result to
stdout.

`mirrord.jobs.job_main` asks the kernel to kill the process when the thread that started it ends. The process therefore
exits even if its parent is killed. If the job has started Spark, Spark's Java process exits together with the job
process.
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
"""A job process that has been asked to exit has this many seconds to record the end of the job in the ledger. After
that, it is killed."""
_SHOWN_BYTES = 2_000


class JobOrder(msgspec.Struct, frozen=True):
    """The order for a job process: the kind of job, and a configuration with a single flow.

    The configuration contains references to secrets, but no secrets.
    """

    job: Job
    config: Config


class JobReport(msgspec.Struct, frozen=True):
    """The result of a job, and one line for operators about it."""

    outcome: JobOutcome
    line: str


class JobProcess:
    """Starts each job in a new process, and waits for its result."""

    def __init__(self) -> None:
        self._ending: set[asyncio.Task[None]] = set()

    async def run(self, order: JobOrder) -> JobReport:
        """Run a job in a new process, wait until the process has exited, and return the result.

        If this call is cancelled, the process is asked to exit. If it has not exited after `END_S` seconds, it is
        killed.
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
