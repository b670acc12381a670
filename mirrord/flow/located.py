"""What the search for a lane's batches in the source has found."""

import msgspec

from mirrord.model.runs import Run


class Located(msgspec.Struct, frozen=True):
    """Where the lane's own batches really stand in the source. Ranges are pairs (start, end) of source offsets."""

    runs: tuple[Run, ...]
    doubled: tuple[tuple[int, int], ...]
    """What stands in the target a second time."""
    missing: tuple[tuple[int, int], ...]
    """What the target lacks, in front of `next_offset`."""
    next_offset: int
    start: int
    end: int
    """[start, end) is what the batches were found to hold."""
    epochs: tuple[tuple[int, int], ...] = ()
    """(source offset, leader epoch of the source) where that changes, ascending; -1: it is not known."""
    open: tuple[tuple[int, int], ...] = ()
    """Ordinals [start, end) of which nothing tells what stands there."""
    source_start: int = 0
    """Where the source log began at that time."""
