"""The result of the search for a lane's batches in the source."""

import msgspec

from mirrord.model.runs import Run


class Located(msgspec.Struct, frozen=True):
    """The true source offsets of the lane's own batches. Ranges are pairs (start, end) of source offsets."""

    runs: tuple[Run, ...]
    doubled: tuple[tuple[int, int], ...]
    """Records that are in the target a second time."""
    missing: tuple[tuple[int, int], ...]
    """Records before `next_offset` that the target lacks."""
    next_offset: int
    start: int
    end: int
    """[start, end) is the range that the batches were found to hold."""
    epochs: tuple[tuple[int, int], ...] = ()
    """(source offset, leader epoch of the source) wherever the epoch changes, ascending; -1: it is not known."""
    open: tuple[tuple[int, int], ...] = ()
    """Ordinals [start, end) whose records could not be determined."""
    source_start: int = 0
    """The start of the source log at that time."""
