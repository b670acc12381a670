"""Older runs in a dataset outside the ledger (`mirrord compact`), and what the ledger records about them."""

from typing import NamedTuple, Protocol

import msgspec

from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId, Side


class ArchivedRuns(msgspec.Struct, frozen=True, array_like=True):
    """Consecutive runs of one side of a lane that were moved to files, with the properties that must be known without
    reading these files."""

    generation: int
    """Number of the compaction that moved the runs."""
    count: int
    """Number of runs."""
    first_ordinal: int
    """Ordinal at which the first of the runs begins."""
    first_offset: int
    """Offset at which the first of the runs begins."""
    last_ordinal: int
    """Ordinal at which the last of the runs begins."""
    last_offset: int
    """Offset at which the last of the runs begins."""
    checksum: int
    """CRC-32C of all ordinals followed by all offsets, as little-endian int64."""
    turns: tuple[int, ...] = ()
    """Ordinals of those of the runs that begin at a lower offset than the end of the previous run (`Runs.turns`)."""


class ArchivedPart(NamedTuple):
    """Archived runs, with the keys that are needed to find them."""

    topic: str
    """Name of the source topic."""
    lane: LaneId
    side: Side
    runs: ArchivedRuns


class Archive(Protocol):
    """Read access to the dataset of one flow."""

    def get(self, part: ArchivedPart) -> bytes:
        """Return the runs, packed (`mirrord.model.run_codec.pack`). Raises ArchiveLost."""
        ...


class ArchiveLost(EnvironmentFault):
    """Runs in the dataset cannot be read now. Operations that need only newer runs are not affected."""
