"""The messages between a lane and its `LaneHost` about records that are parked before they are skipped."""

import msgspec


class Park(msgspec.Struct, frozen=True):
    """Ensure that the record to be copied from this source offset is in the flow's dead-letter topic, once."""

    question: int
    offset: int
    data: bytes
    """The batch of this record alone, as the target has refused it."""
    behind: int
    """The offset in that topic after which to look for an earlier copy; -1: from its start on."""


class ParkAnswer(msgspec.Struct, frozen=True):
    """The answer to `Park`: the record is in the dead-letter topic at that offset, or `trouble` says why it is not."""

    question: int
    at: int
    trouble: str = ""
