"""The result of searching the source for the records of a lane's batches."""

import msgspec

from mirrord.ledger.facts.core import Verdict
from mirrord.model.runs import Run


class Located(msgspec.Struct, frozen=True):
    """The result of searching the source for the records of the lane's own batches: the source offsets from which they
    were really copied. Unless a field says otherwise, ranges are pairs (start, end) of source offsets."""

    runs: tuple[Run, ...]
    doubled: tuple[tuple[int, int], ...]
    """Source offsets whose records are in the target twice."""
    missing: tuple[tuple[int, int], ...]
    """Source offsets below `next_offset` whose records the target lacks."""
    next_offset: int
    epochs: tuple[tuple[int, int], ...] = ()
    """Pairs (source offset, leader epoch of the source) in ascending order, one for each change of epoch. The epoch is
    -1 if it is not known."""
    open: tuple[tuple[int, int], ...] = ()
    """Ordinals [start, end) for which the source records could not be determined."""
    left_out: tuple[Verdict, ...] = ()
    """The source batches that are not copied, with the reasons. They are in ascending order."""
    source_compacts: bool = True
    """Whether the source topic may have been compacted. Its log can then lack offsets although no record was lost."""
    source_start: int = 0
    """The log start offset of the source at the time of the search."""
    cleaned: tuple[tuple[int, int], ...] = ()
    """Source offsets [start, end) at which the records may have been that the target's cleaner has removed and whose
    source offsets could not be determined."""
