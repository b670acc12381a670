"""How many bytes of answers are worth waking up for: a process that sleeps a little longer handles several at once.

A connection owes an answer for each request, and the minimum size of each answer is known. While many answers are owed,
it is enough to wake up for a quarter of them: the rest keeps the broker busy, and a lane is informed of several batches
in one step. The process never waits for more than half of the bytes that are sure to come.
"""

LEAST_BYTES = 15
"""Minimum size of an answer without topics: size, correlation id, count of topics, throttle time, and twice no tags."""
TOPIC_BYTES = 4
"""A name of one letter, or an id, which is longer; the count of its partitions, and no tags."""
PARTITION_BYTES = 33
"""Partition, error, three offsets, no errors of records, no message, no tags."""


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
        """Note that it was answered."""
        self.least_bytes -= LEAST_BYTES + TOPIC_BYTES + PARTITION_BYTES * partitions

    def moved(self) -> bool:
        """Return whether `low_watermark_bytes` has changed, after updating it. It changes rarely, because a change is a
        system call."""
        least, low_watermark = self.least_bytes, self.low_watermark_bytes
        if 2 * low_watermark <= least < 16 * low_watermark or (low_watermark == 1 and least < 256):
            return False
        self.low_watermark_bytes = 1 << max((least >> 2).bit_length() - 1, 0)
        return self.low_watermark_bytes != low_watermark
