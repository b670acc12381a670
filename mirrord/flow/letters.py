"""What a lane and its shell tell each other about records that are parked before they are left out."""

import msgspec


class Park(msgspec.Struct, frozen=True):
    """See that the record which was to be copied from this source offset is in the flow's dead-letter topic, once."""

    question: int
    offset: int
    data: bytes
    """The batch of this record alone, as the target has refused it."""
    behind: int
    """Where in that topic to look whether it is there already; -1: from its start on."""


class LettersTold(msgspec.Struct, frozen=True):
    """What `Park` asked for is in the dead-letter topic, at that offset; or not, and `trouble` says why."""

    question: int
    at: int
    trouble: str = ""
