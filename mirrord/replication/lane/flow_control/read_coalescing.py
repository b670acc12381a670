"""Decides how many bytes of produce responses must arrive before a process wakes up. A process that sleeps a little
longer can handle several responses at once.

The minimum size of the response to each request in flight is known. While many responses are outstanding, the process
wakes up only when about a quarter of their total minimum size has arrived. It never waits for more than half of that
total. In the meantime, the other requests keep the broker busy. When the process wakes up, a lane can handle the
responses for several batches in one step.
"""

LEAST_BYTES = 15
"""Minimum size of a response without topics, in bytes: the length, the correlation id, the number of topics, the
throttle time, and two empty lists of tagged fields."""
TOPIC_BYTES = 4
"""Minimum size of a topic in a response, in bytes: a name of one letter (a topic id is longer), the number of
partitions, and an empty list of tagged fields."""
PARTITION_BYTES = 33
"""Minimum size of a partition in a response, in bytes: the partition number, the error code, the base offset, the
append time, the log start offset, an empty list of record errors, a null error message, and an empty list of tagged
fields."""


class Owed:
    """The outstanding responses of one connection."""

    __slots__ = ("least_bytes", "low_watermark_bytes")

    def __init__(self) -> None:
        self.least_bytes = 0
        """The total minimum size of the outstanding responses, in bytes."""
        self.low_watermark_bytes = 1
        """The number of received bytes at which the process is woken up."""

    def sent(self, partitions: int) -> None:
        """Count a request for this number of partitions as sent."""
        self.least_bytes += LEAST_BYTES + TOPIC_BYTES + PARTITION_BYTES * partitions

    def answered(self, partitions: int) -> None:
        """Count a request for this number of partitions as answered."""
        self.least_bytes -= LEAST_BYTES + TOPIC_BYTES + PARTITION_BYTES * partitions

    def moved(self) -> bool:
        """Update `low_watermark_bytes` if it no longer fits the size of the outstanding answers, and return whether it
        has changed. It is changed only rarely, because each change costs a system call."""
        least, low_watermark = self.least_bytes, self.low_watermark_bytes
        if 2 * low_watermark <= least < 16 * low_watermark or (low_watermark == 1 and least < 256):
            return False
        self.low_watermark_bytes = 1 << max((least >> 2).bit_length() - 1, 0)
        return self.low_watermark_bytes != low_watermark
