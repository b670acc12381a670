"""Exceptions that stop the processing of a chunk before one of its batches."""


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
