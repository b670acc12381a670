"""Keeps the leader epochs of the source, because each fetch carries the epoch of the last batch before its position.

From that epoch a source broker detects that its log lost records that were read (KIP-595). If the epoch is too low, the
broker raises a false alarm: it takes the end of that epoch for the end of what was read. An epoch that is too high does
no harm if a batch at or after the position had it. So for a position in a gap, or before everything that was seen, the
epoch of the following batch is used.
"""

from bisect import bisect_left


class EpochCache:
    """The source epochs seen so far, by ranges of offsets in ascending order."""

    __slots__ = ("_end", "_epochs", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._epochs: list[int] = []
        self._end = 0
        """Source offset up to which batches were seen."""

    def __repr__(self) -> str:
        return f"Epochs({list(zip(self._starts, self._epochs, strict=True))} up to {self._end})"

    def note(self, start: int, epoch: int) -> None:
        """Note that the first batch at or after the offset `start` has this epoch, or none if it is -1."""
        at = bisect_left(self._starts, start)
        del self._starts[at:], self._epochs[at:]
        self._starts.append(start)
        self._epochs.append(epoch)
        self._end = start

    def reach(self, end: int) -> None:
        """Note that all batches up to this offset have the epochs that were noted."""
        self._end = max(self._end, end)

    def begin(self, position: int, epoch: int) -> None:
        """Reset to a single known fact: the epoch of the batch before a position."""
        self._starts.clear()
        self._epochs.clear()
        self._end = 0
        if position > 0 <= epoch:
            self.note(position - 1, epoch)
            self._end = position

    def before(self, position: int) -> int:
        """Return the epoch to fetch with from this position, or -1 if none is known."""
        if not self._starts or position > self._end:
            return -1
        return self._epochs[max(bisect_left(self._starts, position) - 1, 0)]

    def go_to(self, position: int) -> int:
        """Continue fetching elsewhere; return the epoch to fetch with from there, or -1 if none is known."""
        if self._starts and position > self._end:
            # The batches in between were not seen.
            self.note(self._end, -1)
            self._end = position
        return self.before(position)

    @property
    def last(self) -> int:
        """The epoch of the batch seen last, or -1."""
        return self._epochs[-1] if self._epochs else -1

    def take_over(self, epochs: list[tuple[int, int]], end: int) -> None:
        """Reset to these known epochs, each with the offset from which it applies, ascending, up to `end`."""
        self._starts = [offset for offset, _ in epochs]
        self._epochs = [epoch for _, epoch in epochs]
        self._end = end

    def divergence(self, epoch: int, end: int) -> int:
        """Return the offset at which a log diverges from what was seen, if its epochs up to `epoch` end at `end`
        (KIP-595). Batches of higher epochs that were seen are not in that log."""
        return min([end, *(start for start, seen in zip(self._starts, self._epochs, strict=True) if seen > epoch >= 0)])

    def truncate(self, end: int) -> None:
        """Forget everything from this offset on, because it is gone."""
        at = bisect_left(self._starts, end)
        del self._starts[at:], self._epochs[at:]
        self._end = min(self._end, end)

    def diverge(self, end: int, epoch: int) -> None:
        """Forget this epoch and higher ones, and everything from the offset `end` on, because the source no longer
        holds these batches."""
        kept = [pair for pair in zip(self._starts, self._epochs, strict=True) if pair[0] < end and pair[1] < epoch]
        self._starts, self._epochs = [pair[0] for pair in kept], [pair[1] for pair in kept]
        self._end = min(self._end, end)
