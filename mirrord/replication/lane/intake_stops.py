"""Exceptions that stop the processing of a chunk before one of its batches."""

from collections.abc import Iterable

import msgspec

from mirrord.replication.lane.signals import Chunk


class Unreadable(Exception):
    """Raised when the source has returned data that this version cannot copy. The message says what kind of data it is.

    `start` and `end` (exclusive) are the source offsets of the data.
    """

    def __init__(self, why: str, start: int, end: int) -> None:
        super().__init__(why)
        self.start = start
        self.end = end


class Vanished(Unreadable):
    """Raised when records that were to be copied again are no longer in the source."""


class Diverged(Unreadable):
    """Raised when the record at a source offset is not the one that was to be copied again."""


class Early(Unreadable):
    """Raised when records must not be assigned the next ordinals yet, because other records were sent under these
    ordinals, and their batches may still be appended."""


class Unfinished(Unreadable):
    """Raised when the batch at `at` in the chunk's buffer is rebuilt later. `work` is what is left to do."""

    rest: Chunk
    """The part of the chunk that begins with this batch. It is set before `take` returns."""

    def __init__(self, work: object, at: int, start: int, end: int) -> None:
        super().__init__("a large batch", start, end)
        self.work = work
        self._at = at

    def keep(self, chunk: Chunk, aborted_ahead: Iterable[tuple[int, int]], aborted: Iterable[int]) -> None:
        """Keep the rest of the chunk. `aborted_ahead` contains (first offset, producer id) of the aborted transactions
        that begin after the batch, and `aborted` the producers of those that have begun."""
        begun = [(producer, 0) for producer in sorted(aborted)]
        left = (*begun, *((producer, first) for first, producer in sorted(aborted_ahead)))
        self.rest = msgspec.structs.replace(chunk, start=self._at, aborted=left)
