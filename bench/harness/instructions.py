"""The number of instructions that a copy takes in user space, counted by Valgrind.

CPU time depends on what else runs on the machine: pairs of equal code differ by 15 % on a virtual machine with two
cores. The number of instructions differs by less than one percent. It excludes the kernel, whose share follows from the
bytes and the requests, and does not show cache misses.
"""

import re
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from bench.harness.copying import Cost
from mirrord.model.errors import EnvironmentFault

_REFS = re.compile(r"I\s+refs:\s+([\d,]+)")


class Count(NamedTuple):
    """Instructions of one process, from its start to its end."""

    batches: int
    instructions: int


class Copy(Protocol):
    """One copy in a separate process. `under` is the command that runs its interpreter."""

    def __call__(self, *, under: Sequence[str]) -> Cost: ...


def counted(copy: Copy) -> Count:
    """Run a copy under Valgrind. Raises EnvironmentFault if Valgrind is missing or counts nothing."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        raise EnvironmentFault("instructions are counted by valgrind, which is not on the PATH")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        options = ("--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null", f"--log-file={log}")
        batches = copy(under=(valgrind, *options)).batches
        text = log.read_text()
    found = _REFS.search(text)
    if found is None:
        raise EnvironmentFault(f"valgrind counted nothing:\n{text[-2_000:]}")
    return Count(batches, int(found[1].replace(",", "")))


def per_batch(small: Count, large: Count) -> float:
    """Return the instructions per batch, without the start and the end of a process. Raises ValueError."""
    if large.batches <= small.batches:
        raise ValueError(f"{large.batches} batches are not more than {small.batches}")
    return (large.instructions - small.instructions) / (large.batches - small.batches)
