"""Describes older runs that `mirrord compact` has moved from the ledger to a dataset of Parquet files."""

from typing import NamedTuple, Protocol

import msgspec

from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId, Side


class ArchivedRuns(msgspec.Struct, frozen=True, array_like=True):
    """A summary of consecutive runs on one side of a lane. `mirrord compact` has moved these runs from the ledger to a
    dataset of Parquet files, and the ledger stores this summary in their place. Most lookups in the offset map need
    only the summary."""

    generation: int
    """Number of the compaction that moved the runs to the dataset."""
    count: int
    """Number of archived runs."""
    first_ordinal: int
    """Ordinal at which the first archived run begins."""
    first_offset: int
    """Offset at which the first archived run begins."""
    last_ordinal: int
    """Ordinal at which the last archived run begins."""
    last_offset: int
    """Offset at which the last archived run begins."""
    checksum: int
    """CRC-32C of the ordinals of all archived runs, followed by their offsets, as little-endian int64."""
    turns: tuple[int, ...] = ()
    """The first ordinal of each archived run whose first offset is lower than the end of the previous run (see
    `Runs.turns`)."""


class ArchivedPart(NamedTuple):
    """A summary of archived runs, with the keys under which the dataset stores the runs: topic, lane and side."""

    topic: str
    """Name of the lane's source topic."""
    lane: LaneId
    side: Side
    runs: ArchivedRuns


class Archive(Protocol):
    """Read access to the dataset with the archived runs of one flow."""

    def get(self, part: ArchivedPart) -> bytes:
        """Return the archived runs that `part` describes, in packed form (`mirrord.model.run_codec.pack`). Raises
        ArchiveLost if they cannot be read."""
        ...


class ArchiveLost(EnvironmentFault):
    """Raised when archived runs cannot be read. Operations that need only the runs in the ledger still work."""
