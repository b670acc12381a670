"""Facts about runs of the offset map that were moved to files (`mirrord compact`)."""

from mirrord.ledger.facts.base import Fact
from mirrord.model.archived_runs import ArchivedRuns
from mirrord.model.names import LaneId


class CompactionBegan(Fact, frozen=True, tag="compaction_began"):
    """A compaction of the offset map has begun. After this fact, only the compaction with this number can move runs out
    of the ledger.

    A compaction holds no lease. The fact takes effect if its entry has the epoch of the current lease and `number` is
    higher than that of the most recent compaction. It takes effect even if the lease has been released.
    """

    number: int
    """Number of the compaction."""
    at_ms: int
    """Wall-clock time, for information only."""


class MapCompacted(Fact, frozen=True, tag="map_compacted"):
    """A compaction has written runs of a lane to files, so snapshots no longer have to contain these runs.

    The fact takes effect if two conditions are met. First, `number` is the number of the most recent compaction.
    Second, the moved runs are still valid: every run that was recorded after the `CompactionBegan` of this compaction
    begins above the ordinal at which the last moved run begins.
    """

    number: int
    """Number of the compaction that moved the runs."""
    lane: LaneId
    source: tuple[ArchivedRuns, ...] = ()
    """The moved runs that map ordinals to source offsets, in ascending order."""
    target: tuple[ArchivedRuns, ...] = ()
    """The moved runs that map ordinals to target offsets, in ascending order."""

    @property
    def last_ordinal(self) -> int:
        """The highest ordinal at which one of the moved runs begins, or -1 if there are no runs."""
        return max((part.last_ordinal for part in (*self.source, *self.target)), default=-1)
