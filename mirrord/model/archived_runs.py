"""Older runs that `mirrord compact` has moved from the ledger to a dataset of Parquet files, and what the ledger
records about them."""

from typing import NamedTuple, Protocol

import msgspec

from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId, Side


class ArchivedRuns(msgspec.Struct, frozen=True, array_like=True):
    """What the ledger records about consecutive runs of one side of a lane that `mirrord compact` has moved to the
    dataset. Most look-ups need nothing else."""

    generation: int
    """Number of the compaction that moved the runs to the dataset."""
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
    """CRC-32C of the ordinals of all these runs, followed by their offsets, as little-endian int64."""
    turns: tuple[int, ...] = ()
    """Ordinals of the runs among these that begin at a lower offset than the previous run ends (`Runs.turns`)."""


class ArchivedPart(NamedTuple):
    """Archived runs, with the topic, lane and side under which the dataset stores them."""

    topic: str
    """Name of the source topic."""
    lane: LaneId
    side: Side
    runs: ArchivedRuns


class Archive(Protocol):
    """Read access to the dataset with the archived runs of one flow."""

    def get(self, part: ArchivedPart) -> bytes:
        """Return the runs of this part in packed form (`mirrord.model.run_codec.pack`). Raises ArchiveLost."""
        ...


class ArchiveLost(EnvironmentFault):
    """Raised when archived runs cannot be read. Operations that need only newer runs are not affected."""
