"""How long the last stable offset of a source partition has been blocking later records.

A read_committed lane sees nothing from that offset on: below the high watermark is a transaction that has not ended
yet, and all records after its first one wait, no matter who wrote them.
"""


class StableEnd:
    """The last stable offset of one partition, from the source's answers. Times are seconds of a monotonic clock."""

    __slots__ = ("_since", "offset")

    def __init__(self) -> None:
        self.offset = -1
        """The first offset of the oldest open transaction, while there is one."""
        self._since = -1.0

    def note(self, last_stable: int, high_watermark: int, now: float) -> None:
        """Note the offsets of an answer. Brokers return no last stable offset (-1) if uncommitted records are read,
        too."""
        if not 0 <= last_stable < high_watermark:
            self.offset, self._since = -1, -1.0
        elif last_stable != self.offset:
            self.offset, self._since = last_stable, now

    def forget(self) -> None:
        """Forget the offset, because the source was not asked for a while and it may have moved."""
        self.note(-1, -1, 0.0)

    def waited_s(self, position: int, now: float) -> float:
        """Return how long a reader at this position has waited there at least; 0 if it does not wait.

        The time is measured from when the offset was first seen there: a reader that came later may have waited less.
        """
        return max(0.0, now - self._since) if 0 <= self.offset <= position else 0.0
