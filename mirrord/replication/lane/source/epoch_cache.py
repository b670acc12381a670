"""Keeps the leader epochs of the source. Each fetch request carries the epoch of the last batch before its fetch
offset.

With this epoch, a source broker can detect that its log has lost records that the lane has read (KIP-595). If the epoch
in the request is too low, it ends below the fetch offset in the broker's log, and the broker reports a divergence that
does not exist. An epoch that is too high does no harm as long as a batch at or after the fetch offset has this epoch.
Therefore, if the fetch offset is in a gap or precedes all batches that the lane has read, the request carries the epoch
of the batch that follows.
"""

from bisect import bisect_left


class EpochCache:
    """The leader epochs of the source batches that the lane has read, by ranges of offsets in ascending order."""

    __slots__ = ("_end", "_epochs", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._epochs: list[int] = []
        self._end = 0
        """The source offset up to which the epochs are known."""

    def __repr__(self) -> str:
        return f"Epochs({list(zip(self._starts, self._epochs, strict=True))} up to {self._end})"

    def note(self, start: int, epoch: int) -> None:
        """Store the epoch of the first batch at or after the offset `start`. This epoch replaces all epochs that were
        stored for `start` and higher offsets. -1 means that the batch has no known epoch."""
        at = bisect_left(self._starts, start)
        del self._starts[at:], self._epochs[at:]
        self._starts.append(start)
        self._epochs.append(epoch)
        self._end = start

    def reach(self, end: int) -> None:
        """Extend the range of the last stored epoch up to this offset."""
        self._end = max(self._end, end)

    def begin(self, position: int, epoch: int) -> None:
        """Forget all epochs, and store only the epoch of the batch before `position`."""
        self._starts.clear()
        self._epochs.clear()
        self._end = 0
        if position > 0 <= epoch:
            self.note(position - 1, epoch)
            self._end = position

    def before(self, position: int) -> int:
        """Return the epoch that a fetch request from this position must carry, or -1 if none is known."""
        if not self._starts or position > self._end:
            return -1
        return self._epochs[max(bisect_left(self._starts, position) - 1, 0)]

    def go_to(self, position: int) -> int:
        """Continue fetching at a different position. Return the epoch that a fetch request from there must carry, or -1
        if none is known."""
        if self._starts and position > self._end:
            # The lane has not seen the batches in between.
            self.note(self._end, -1)
            self._end = position
        return self.before(position)

    @property
    def last(self) -> int:
        """The epoch of the last batch that the lane has read, or -1 if it is not known."""
        return self._epochs[-1] if self._epochs else -1

    def take_over(self, epochs: list[tuple[int, int]], end: int) -> None:
        """Replace all epochs with `epochs`: pairs (offset, epoch) in ascending order. Each epoch applies from its
        offset up to the offset of the next pair. The last epoch applies up to `end`."""
        self._starts = [offset for offset, _ in epochs]
        self._epochs = [epoch for _, epoch in epochs]
        self._end = end

    def divergence(self, epoch: int, end: int) -> int:
        """Return the offset at which a source log diverges from the batches that the lane has read.

        `epoch` and `end` are the broker's answer (KIP-595): the highest epoch in its log that is not above the
        requested epoch, and the offset at which that epoch ends. Therefore, if the lane has read batches of a higher
        epoch, that log does not contain them.
        """
        return min([end, *(start for start, seen in zip(self._starts, self._epochs, strict=True) if seen > epoch >= 0)])

    def truncate(self, end: int) -> None:
        """Forget the epochs of all batches at or above this offset, because the source no longer has these batches."""
        at = bisect_left(self._starts, end)
        del self._starts[at:], self._epochs[at:]
        self._end = min(self._end, end)

    def diverge(self, end: int, epoch: int) -> None:
        """Forget all batches with this epoch or a higher one, and all batches at or above the offset `end`. The source
        no longer has them."""
        kept = [pair for pair in zip(self._starts, self._epochs, strict=True) if pair[0] < end and pair[1] < epoch]
        self._starts, self._epochs = [pair[0] for pair in kept], [pair[1] for pair in kept]
        self._end = min(self._end, end)
