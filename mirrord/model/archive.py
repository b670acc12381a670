"""Older runs that lie in a dataset outside the ledger (`mirrord compact`), and what the ledger tells of them."""

from typing import Literal, NamedTuple, Protocol

import msgspec

from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId

Side = Literal["source", "target"]


class ArchivedRuns(msgspec.Struct, frozen=True, array_like=True):
    """Runs of one side of a lane that follow each other: all that is to be known of them without looking."""

    generation: int
    """The compaction that put them there."""
    count: int
    first_ordinal: int
    first_offset: int
    last_ordinal: int
    """Where the last of the runs begins."""
    last_offset: int
    checksum: int
    """CRC-32C of all ordinals, then all offsets, as little-endian int64."""
    turns: tuple[int, ...] = ()
    """The ordinals among them at which offsets go back (`Runs.turns`)."""


class ArchivedPart(NamedTuple):
    """Archived runs, with what is to be known to find them."""

    topic: str
    """Of the source."""
    lane: LaneId
    side: Side
    runs: ArchivedRuns


class Archive(Protocol):
    """The dataset of one flow, to read from."""

    def get(self, part: ArchivedPart) -> bytes:
        """The runs, packed (`mirrord.model.packed_runs.pack`). Raises ArchiveLost."""
        ...


class ArchiveLost(EnvironmentFault):
    """Runs that lie in the dataset cannot be read now; what needs newer ones alone is not concerned."""
