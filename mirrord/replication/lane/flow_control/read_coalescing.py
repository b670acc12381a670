"""Decides how many bytes of answers must arrive before a process wakes up: if it sleeps a little longer, it handles
several answers at once.

A connection owes an answer for each request, and the minimum size of each answer is known. While many answers are owed,
it is enough to wake up for a quarter of them: the rest keeps the broker busy, and a lane is informed of several batches
in one step. The process never waits for more than half of the bytes that are sure to come.
"""

LEAST_BYTES = 15
"""Minimum size of an answer without topics: size, correlation id, count of topics, throttle time, and two empty lists
of tags."""
TOPIC_BYTES = 4
"""Minimum size of a topic in an answer: a name of one letter (an id is longer), the count of its partitions, and an
empty list of tags."""
PARTITION_BYTES = 33
"""Minimum size of a partition in an answer: its number, the error, three offsets, no record errors, no message, and an
empty list of tags."""


class Owed:
    """The answers that one connection still owes."""

    __slots__ = ("least_bytes", "low_watermark_bytes")

    def __init__(self) -> None:
        self.least_bytes = 0
        """The minimum size of the answers that are still to come."""
        self.low_watermark_bytes = 1
        """The number of received bytes at which the process is woken."""

    def sent(self, partitions: int) -> None:
        """Note that a request for this many partitions was sent."""
        self.least_bytes += LEAST_BYTES + TOPIC_BYTES + PARTITION_BYTES * partitions

    def answered(self, partitions: int) -> None:
        """Note that a request for this many partitions was answered."""
        self.least_bytes -= LEAST_BYTES + TOPIC_BYTES + PARTITION_BYTES * partitions

    def moved(self) -> bool:
        """Return whether `low_watermark_bytes` has changed, after updating it. It changes rarely, because a change is a
        system call."""
        least, low_watermark = self.least_bytes, self.low_watermark_bytes
        if 2 * low_watermark <= least < 16 * low_watermark or (low_watermark == 1 and least < 256):
            return False
        self.low_watermark_bytes = 1 << max((least >> 2).bit_length() - 1, 0)
        return self.low_watermark_bytes != low_watermark
