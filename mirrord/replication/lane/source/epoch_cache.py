"""Keeps the leader epochs of the source, because each fetch request carries the epoch of the last batch before its
position.

With that epoch, a source broker detects that its log has lost records that the lane has read (KIP-595). If the epoch is
too low, the broker reports a divergence by mistake, because the position is above the end of that epoch. An epoch that
is too high does no harm if a batch at or after the position had it. So for a position in a gap, or before all batches
that were seen, the epoch of the following batch is used.
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
        """Note that the first batch at or after the offset `start` has this epoch. -1 means that the batch has no known
        epoch."""
        at = bisect_left(self._starts, start)
        del self._starts[at:], self._epochs[at:]
        self._starts.append(start)
        self._epochs.append(epoch)
        self._end = start

    def reach(self, end: int) -> None:
        """Note that all batches up to this offset have the epochs that were noted."""
        self._end = max(self._end, end)

    def begin(self, position: int, epoch: int) -> None:
        """Forget all epochs, and note only the epoch of the batch before `position`."""
        self._starts.clear()
        self._epochs.clear()
        self._end = 0
        if position > 0 <= epoch:
            self.note(position - 1, epoch)
            self._end = position

    def before(self, position: int) -> int:
        """Return the epoch for a fetch from this position, or -1 if none is known."""
        if not self._starts or position > self._end:
            return -1
        return self._epochs[max(bisect_left(self._starts, position) - 1, 0)]

    def go_to(self, position: int) -> int:
        """Continue fetching at another position. Return the epoch for a fetch from there, or -1 if none is known."""
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
        """Replace all epochs by the pairs (offset, epoch), in ascending order. Each epoch applies from its offset on,
        and the last one up to `end`."""
        self._starts = [offset for offset, _ in epochs]
        self._epochs = [epoch for _, epoch in epochs]
        self._end = end

    def divergence(self, epoch: int, end: int) -> int:
        """Return the offset at which a source log diverges from the batches that were seen. In that log, the epochs up
        to `epoch` end at `end` (KIP-595). The log has no batches of higher epochs that were seen."""
        return min([end, *(start for start, seen in zip(self._starts, self._epochs, strict=True) if seen > epoch >= 0)])

    def truncate(self, end: int) -> None:
        """Forget the epochs of all batches from this offset on, because the source no longer has these batches."""
        at = bisect_left(self._starts, end)
        del self._starts[at:], self._epochs[at:]
        self._end = min(self._end, end)

    def diverge(self, end: int, epoch: int) -> None:
        """Forget all batches with this epoch or a higher one, and all batches from the offset `end` on. The source no
        longer has them."""
        kept = [pair for pair in zip(self._starts, self._epochs, strict=True) if pair[0] < end and pair[1] < epoch]
        self._starts, self._epochs = [pair[0] for pair in kept], [pair[1] for pair in kept]
        self._end = min(self._end, end)
