"""Facts about runs of the offset map that were moved into files (`mirrord compact`)."""

from mirrord.ledger.facts.base import Fact
from mirrord.model.archive import ArchivedRuns
from mirrord.model.names import LaneId


class CompactionBegan(Fact, frozen=True, tag="compaction_began"):
    """From here on, only the compaction of this number can move runs out of the ledger.

    Whoever compacts holds no lease: it binds under the present one, also when that was given back. Binds when `number`
    is higher than the last.
    """

    number: int
    at_ms: int
    """Wall clock, for people only."""


class MapCompacted(Fact, frozen=True, tag="map_compacted"):
    """These runs of a lane lie in the dataset, so snapshots need not hold them any more.

    Binds when `number` is the last `CompactionBegan`, and no run at or below the last of them was told since.
    """

    number: int
    lane: LaneId
    source: tuple[ArchivedRuns, ...] = ()
    """In ascending order, as `target`."""
    target: tuple[ArchivedRuns, ...] = ()

    @property
    def last_ordinal(self) -> int:
        """No run begins behind it; -1 when there is none."""
        return max((part.last_ordinal for part in (*self.source, *self.target)), default=-1)
