"""An unnamed temporary file for runs that do not fit in the memory of a process. `mirrord.model.run_memory` selects the
runs that are moved to the file."""

import os
import tempfile
from collections import defaultdict
from contextlib import suppress
from typing import IO
from weakref import WeakValueDictionary

import structlog

from mirrord.config.schema import FlowConfig
from mirrord.kafka.protocol.crc32c import checksum
from mirrord.ledger.store.run_archive import flow_archive
from mirrord.model.errors import EnvironmentFault
from mirrord.model.run_memory import RunMemory

UNIT_BYTES = 4096
_CHECKSUM_BYTES = 4
_VAR_TMP = "/var/tmp"  # noqa: S108

log = structlog.get_logger()


class AtticLost(EnvironmentFault):
    """Raised when runs that were moved to the temporary file can no longer be read."""


class FileAttic:
    """An `Attic` that stores runs in a temporary file. The file is created on first use and disappears when the process
    exits.

    The file is divided into units of `UNIT_BYTES` bytes. Freed space is reused for data that takes the same number of
    units.
    """

    def __init__(self, folder: str | None = None) -> None:
        """Store the folder without creating a file. By default, `folder` is the value of `TMPDIR`, or /var/tmp if
        `TMPDIR` is not set. The default is not /tmp, because /tmp is in memory on many systems."""
        self._folder = folder
        self._file: IO[bytes] | None = None
        self._end = 0
        self._sizes: dict[int, int] = {}
        """The stored data. The key is the number of its first unit, and the value is its size in bytes."""
        self._free: defaultdict[int, list[int]] = defaultdict(list)
        """The free ranges of units. The key is the length of a range, and the value lists the first units of all free
        ranges of this length."""
        self._is_full = False

    @property
    def file_bytes(self) -> int:
        """The size of the file in bytes."""
        return self._end * UNIT_BYTES

    def put(self, data: bytes) -> int | None:
        """Write the data to the file. Return the number of the unit of the file at which the data begins. If the data
        cannot be written, return None, and log the first of these failures."""
        size = _CHECKSUM_BYTES + len(data)
        units = _units(size)
        spare = self._free[units]
        unit = spare[-1] if spare else self._end
        try:
            self._write(checksum(data).to_bytes(_CHECKSUM_BYTES) + data, unit * UNIT_BYTES)
        except OSError as error:
            if not self._is_full:
                log.warning("older_runs_stay_in_memory", error=str(error))
            self._is_full = True
            return None
        self._is_full = False
        if spare:
            spare.pop()
        else:
            self._end += units
        self._sizes[unit] = size
        return unit

    def get(self, number: int) -> bytes:
        """Return the data that begins at this unit. Raises AtticLost."""
        size = self._sizes[number]
        data = b""
        with suppress(OSError):
            data = os.pread(self._fileno(), size, number * UNIT_BYTES)
        if len(data) != size or checksum(data[_CHECKSUM_BYTES:]) != int.from_bytes(data[:_CHECKSUM_BYTES]):
            log.error("older_runs_lost", offset=number * UNIT_BYTES, size=size)
            raise AtticLost("runs that were moved to a temporary file can no longer be read from it")
        return data[_CHECKSUM_BYTES:]

    def free(self, number: int) -> None:
        """Release the space of the data that begins at this unit, so that the space can be reused."""
        self._free[_units(self._sizes.pop(number))].append(number)
        if not self._sizes and self._file is not None:
            self._free.clear()
            self._end = 0
            with suppress(OSError):
                self._file.truncate(0)

    def _write(self, data: bytes, position: int) -> None:
        left = memoryview(data)
        while left:
            written = os.pwrite(self._fileno(), left, position)
            left, position = left[written:], position + written

    def _fileno(self) -> int:
        if self._file is None:
            folder = self._folder or _folder()
            self._file = tempfile.TemporaryFile(dir=folder, prefix="mirrord-runs-")  # noqa: SIM115
        return self._file.fileno()


_of_flows: WeakValueDictionary[str, RunMemory] = WeakValueDictionary()


def run_memory(flow: FlowConfig) -> RunMemory:
    """Return the memory for the runs of a flow. All readers of the flow's ledger in this process share it."""
    limit_bytes = flow.limits.map_bytes
    memory = _of_flows.get(flow.name)
    if memory is None:
        memory = _of_flows[flow.name] = RunMemory(limit_bytes, FileAttic())
    memory.limit(limit_bytes)
    memory.archive = flow_archive(flow, memory.archive)
    return memory


def _units(size: int) -> int:
    return -(-size // UNIT_BYTES)


def _folder() -> str | None:
    return _VAR_TMP if "TMPDIR" not in os.environ and os.access(_VAR_TMP, os.W_OK) else None
