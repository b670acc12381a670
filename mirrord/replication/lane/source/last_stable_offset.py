"""Measures how much time has passed since the last stable offset of a source partition advanced.

A read_committed lane reads records only below this offset. If a transaction begins at this offset, it has not ended
yet. All later records, no matter which producer wrote them, have to wait until it ends.
"""


class StableEnd:
    """The last stable offset of one partition, according to the source's answers. Times are in seconds on a monotonic
    clock."""

    __slots__ = ("_since", "offset")

    def __init__(self) -> None:
        self.offset = -1
        """The first offset of the oldest open transaction, or -1 if there is none."""
        self._since = -1.0

    def note(self, last_stable: int, high_watermark: int, now: float) -> None:
        """Store the offsets of a fetch response. If the isolation level of the fetch request is read_uncommitted, the
        broker returns -1 as the last stable offset."""
        if not 0 <= last_stable < high_watermark:
            self.offset, self._since = -1, -1.0
        elif last_stable != self.offset:
            self.offset, self._since = last_stable, now

    def forget(self) -> None:
        """Forget the offset, because the source has not been asked for a while and its last stable offset may have
        advanced."""
        self.note(-1, -1, 0.0)

    def waited_s(self, position: int, now: float) -> float:
        """Return how many seconds a reader at this position has waited for the transaction to end, or 0 if it is not
        waiting.

        The wait is measured from the moment when the last stable offset was first seen to have this value. A reader
        that reached its position later than that has waited for less time than the result says.
        """
        return max(0.0, now - self._since) if 0 <= self.offset <= position else 0.0
