"""Exceptions that stop the intake before a batch."""


class Unreadable(Exception):
    """The source returned something that this version cannot copy; the text says what, and [start, end) where."""

    def __init__(self, why: str, start: int, end: int) -> None:
        super().__init__(why)
        self.start = start
        self.end = end


class Vanished(Unreadable):
    """Records that were to be copied again are no longer in the source."""


class Diverged(Unreadable):
    """The source has another record at an offset whose record was to be copied again."""


class Early(Unreadable):
    """The next records would reassign ordinals under which other records were sent in batches that may still arrive."""
