"""Records that are parked before they are skipped, and the messages about them between a lane and its `LaneHost`."""

import msgspec


class Park(msgspec.Struct, frozen=True):
    """A request to write the record at the source offset `offset` to the flow's dead-letter topic, unless that topic
    already contains the record."""

    question: int
    offset: int
    data: bytes
    """The batch that was sent to the target and refused. It contains only the record to be parked."""
    behind: int
    """The offset in the dead-letter topic from which to search for an earlier copy of the record. -1 means the start of
    the topic."""


class ParkAnswer(msgspec.Struct, frozen=True):
    """The answer to `Park`: the record is in the dead-letter topic at offset `at`, or `trouble` says why it is not."""

    question: int
    at: int
    trouble: str = ""


class Parking(msgspec.Struct, frozen=True):
    """A record that, according to the flow's configuration, is skipped once it has been parked."""

    offset: int
    error: int
    line: str
    data: bytes
    """The refused batch, which contains only this record. It is passed to `Park`."""
    epoch: int
    """Leader epoch of the record in the source, or -1 if it is not known."""
    tries: int = 0
    """Number of failed attempts."""
