"""How many bytes of answers are worth waking for: who sleeps a little longer takes in several at once.

A connection owes an answer for each request, and how long each is at least can be told. While many are owed it is
enough to wake for a quarter of them: the rest keeps the broker busy, and a lane is told of several batches in one step.
Never is more waited for than half of what is sure to come.
"""

LEAST_BYTES = 15
"""Of an answer without topics: size, correlation id, count of topics, throttle time, and twice no tags."""
TOPIC_BYTES = 4
"""A name of one letter, or an id, which is longer; the count of its partitions, and no tags."""
PARTITION_BYTES = 33
"""Partition, error, three offsets, no errors of records, no message, no tags."""


class Owed:
    """Of one connection."""

    __slots__ = ("least_bytes", "mark_bytes")

    def __init__(self) -> None:
        self.least_bytes = 0
        """What the answers that are still to come have at least."""
        self.mark_bytes = 1
        """From so many on the process is woken."""

    def sent(self, partitions: int) -> None:
        """A request for so many partitions is on its way."""
        self.least_bytes += LEAST_BYTES + TOPIC_BYTES + PARTITION_BYTES * partitions

    def answered(self, partitions: int) -> None:
        """It was answered."""
        self.least_bytes -= LEAST_BYTES + TOPIC_BYTES + PARTITION_BYTES * partitions

    def moved(self) -> bool:
        """Whether the mark has to be another one now; `mark_bytes` is it then. Rarely: a change is a system call."""
        least, mark = self.least_bytes, self.mark_bytes
        if 2 * mark <= least < 16 * mark or (mark == 1 and least < 256):
            return False
        self.mark_bytes = 1 << max((least >> 2).bit_length() - 1, 0)
        return self.mark_bytes != mark
