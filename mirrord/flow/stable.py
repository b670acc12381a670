"""How long a source partition's last stable offset has stood still in front of other records.

A read_committed lane sees nothing from there on: below the high watermark stands a transaction that nobody has ended
yet, and all records behind its first one wait, whoever wrote them.
"""


class StableEnd:
    """Of one partition, as the source's answers tell. Moments are seconds of a monotonic clock."""

    __slots__ = ("_since", "offset")

    def __init__(self) -> None:
        self.offset = -1
        """The first offset of the oldest open transaction, while there is one."""
        self._since = -1.0

    def note(self, last_stable: int, high_watermark: int, now: float) -> None:
        """An answer says so. Brokers tell of no last stable offset (-1) where uncommitted records are read, too."""
        if not 0 <= last_stable < high_watermark:
            self.offset, self._since = -1, -1.0
        elif last_stable != self.offset:
            self.offset, self._since = last_stable, now

    def forget(self) -> None:
        """Nobody has asked for a while: it may have moved."""
        self.note(-1, -1, 0.0)

    def waited_s(self, position: int, now: float) -> float:
        """How long a reader that has come to this position has waited there at least; 0 when it does not wait.

        Counted from when the offset was first seen to stand there: a reader that came later may have waited less.
        """
        return max(0.0, now - self._since) if 0 <= self.offset <= position else 0.0
