"""Which leader epochs the source had: each fetch carries the epoch of the last batch in front of its position.

From it a source broker sees that its log lost what was read (KIP-595). Too low an epoch would be a false alarm: the
broker takes its end for the end of what was read. One that is too high is none, as long as a batch at or behind the
position had it. So for a position in a hole, or in front of all that was seen, the epoch of what follows counts.
"""

from bisect import bisect_left


class Epochs:
    """What was seen of the source's epochs, stretch by stretch in ascending order of offsets."""

    __slots__ = ("_end", "_epochs", "_starts")

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._epochs: list[int] = []
        self._end = 0
        """Source offset up to which batches were seen."""

    def __repr__(self) -> str:
        return f"Epochs({list(zip(self._starts, self._epochs, strict=True))} up to {self._end})"

    def note(self, start: int, epoch: int) -> None:
        """A batch of this epoch follows, and nothing stands between it and the offset `start`. -1: it has none."""
        at = bisect_left(self._starts, start)
        del self._starts[at:], self._epochs[at:]
        self._starts.append(start)
        self._epochs.append(epoch)
        self._end = start

    def reach(self, end: int) -> None:
        """All batches up to this offset have the epochs that were noted."""
        self._end = max(self._end, end)

    def begin(self, position: int, epoch: int) -> None:
        """Only this much is known: the epoch of the batch in front of a position."""
        self._starts.clear()
        self._epochs.clear()
        self._end = 0
        if position > 0 <= epoch:
            self.note(position - 1, epoch)
            self._end = position

    def before(self, position: int) -> int:
        """The epoch to fetch with from this position, or -1 when none is known."""
        if not self._starts or position > self._end:
            return -1
        return self._epochs[max(bisect_left(self._starts, position) - 1, 0)]

    def go_to(self, position: int) -> int:
        """The fetching goes on elsewhere: the epoch to fetch with from there, or -1 when none is known."""
        if self._starts and position > self._end:
            # What lies between was not seen.
            self.note(self._end, -1)
            self._end = position
        return self.before(position)

    @property
    def last(self) -> int:
        """The epoch of what was seen last, or -1."""
        return self._epochs[-1] if self._epochs else -1

    def take_over(self, epochs: list[tuple[int, int]], end: int) -> None:
        """Only this much is known: from which offset on which epoch counts, ascending, up to `end`."""
        self._starts = [offset for offset, _ in epochs]
        self._epochs = [epoch for _, epoch in epochs]
        self._end = end

    def parting(self, epoch: int, end: int) -> int:
        """Where a log parts from what was seen whose epochs up to this one end there (KIP-595): records of a higher
        one that were seen are not in it."""
        return min([end, *(start for start, seen in zip(self._starts, self._epochs, strict=True) if seen > epoch >= 0)])

    def part(self, end: int) -> None:
        """What was seen from this offset on is gone."""
        at = bisect_left(self._starts, end)
        del self._starts[at:], self._epochs[at:]
        self._end = min(self._end, end)

    def diverge(self, end: int, epoch: int) -> None:
        """The source holds nothing of this epoch, nor what was seen behind the offset `end`."""
        kept = [pair for pair in zip(self._starts, self._epochs, strict=True) if pair[0] < end and pair[1] < epoch]
        self._starts, self._epochs = [pair[0] for pair in kept], [pair[1] for pair in kept]
        self._end = min(self._end, end)
