"""Measures for how long the last stable offset of a source partition has not advanced.

A read_committed lane sees no records from that offset on: a transaction that begins there has not ended yet, and all
later records have to wait, no matter who wrote them.
"""


class StableEnd:
    """The last stable offset of one partition, from the source's answers. Times are seconds of a monotonic clock."""

    __slots__ = ("_since", "offset")

    def __init__(self) -> None:
        self.offset = -1
        """The first offset of the oldest open transaction, or -1 if there is none."""
        self._since = -1.0

    def note(self, last_stable: int, high_watermark: int, now: float) -> None:
        """Note the offsets of a fetch response. If uncommitted records are read as well, brokers return -1 as the last
        stable offset."""
        if not 0 <= last_stable < high_watermark:
            self.offset, self._since = -1, -1.0
        elif last_stable != self.offset:
            self.offset, self._since = last_stable, now

    def forget(self) -> None:
        """Forget the offset. It may have moved, because the source has not been asked for a while."""
        self.note(-1, -1, 0.0)

    def waited_s(self, position: int, now: float) -> float:
        """Return how long a reader at this position has waited for the transaction to end; 0 if it does not wait.

        The time is measured from when the last stable offset was first seen at this value. A reader that reached the
        position later has waited less than that.
        """
        return max(0.0, now - self._since) if 0 <= self.offset <= position else 0.0
