"""Facts about runs of the offset map that were moved into files (`mirrord compact`)."""

from mirrord.ledger.facts.base import Fact
from mirrord.model.archived_runs import ArchivedRuns
from mirrord.model.names import LaneId


class CompactionBegan(Fact, frozen=True, tag="compaction_began"):
    """A compaction of the offset map has begun. From here on, only the compaction with this number can move runs out of
    the ledger.

    A compaction holds no lease. The fact takes effect under the current lease, even after this lease was released, if
    `number` is higher than that of the last compaction.
    """

    number: int
    """Number of the compaction."""
    at_ms: int
    """Wall-clock time, for information only."""


class MapCompacted(Fact, frozen=True, tag="map_compacted"):
    """A compaction has written runs of a lane to files, so snapshots no longer need to hold these runs.

    The fact takes effect under two conditions. `number` is that of the last `CompactionBegan`. Since then, no run has
    been recorded that begins at or below the last ordinal of the moved runs.
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
