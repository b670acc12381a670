"""The contents of a flow's dead-letter topic: records that were skipped, and a receipt for each one that was replayed.

A skipped record is stored as it was on the source, with additional headers after its own headers. The additional
headers say where the record was, who skipped it and why. A receipt is an empty record with the same additional headers
and one more header, which says where the replayed record is stored.
"""

from collections.abc import Sequence
from typing import NamedTuple

from mirrord.ledger.facts.base import Origin
from mirrord.model.names import LaneId, TopicPartition

LetterHeaders = Sequence[tuple[str, bytes | None]]

_OF = ("mirrord.topic", "mirrord.partition", "mirrord.offset", "mirrord.lane", "mirrord.reason", "mirrord.by")
_RETURNED = "mirrord.returned"


class LetterPlace(NamedTuple):
    """The original position of a record on the source."""

    topic: str
    partition: int
    offset: int
    lane: LaneId
    """The lane of the record. It distinguishes the records of a recreated topic from those of the previous topic with
    the same name."""


class Letter(NamedTuple):
    """The parsed headers of a record in the dead-letter topic."""

    place: LetterPlace
    headers: LetterHeaders
    """The headers that the record had on the source."""
    returned: str = ""
    """For a receipt: where the replayed record is stored. Otherwise empty."""


class TargetPosition(NamedTuple):
    """A partition of the target cluster, and an offset in it."""

    partition: TopicPartition
    offset: int

    def __str__(self) -> str:
        return f"{self.partition} offset {self.offset}"


class Returned(NamedTuple):
    """A record that was replayed from the dead-letter topic."""

    offset: int
    """Offset of the record on the source."""
    where: str
    """Where the replayed record is stored, in the format of `TargetPosition`."""

    @property
    def position(self) -> "TargetPosition | None":
        """The position in `where`, as a `TargetPosition`. None if `where` cannot be parsed, which means that mirrord
        did not write the receipt from which `where` was read."""
        place, _, offset = self.where.rpartition(" offset ")
        topic, _, partition = place.rpartition("-")
        if not topic or not partition.isdecimal() or not offset.isdecimal():
            return None
        return TargetPosition(TopicPartition(topic, int(partition)), int(offset))

    def __str__(self) -> str:
        return f"source offset {self.offset} is at {self.where}"


def headers_of(
    place: LetterPlace, origin: Origin, headers: LetterHeaders, returned: str = ""
) -> list[tuple[str, bytes | None]]:
    """Return the headers with which a skipped record, or the receipt for a replayed record, is written to the
    dead-letter topic.

    `headers` are the record's own headers. `returned` is set only for a receipt: it says where the replayed record is
    stored.
    """
    values = (place.topic, str(place.partition), str(place.offset), place.lane, origin.reason, origin.by)
    ours: list[tuple[str, bytes | None]] = [(name, value.encode()) for name, value in zip(_OF, values, strict=True)]
    return [*headers, *ours, *([(_RETURNED, returned.encode())] if returned else [])]


def understood(headers: LetterHeaders) -> Letter | None:
    """Parse the headers of a record in the dead-letter topic. Return None if mirrord did not write the record.

    Only the headers at the end were added by mirrord. The headers before them belong to the skipped record, and may
    have the same names.
    """
    returned = ""
    if headers and headers[-1][0] == _RETURNED:
        returned, headers = (headers[-1][1] or b"").decode(errors="replace"), headers[:-1]
    own = len(headers) - len(_OF)
    if own < 0 or tuple(name for name, _ in headers[own:]) != _OF:
        return None
    topic, partition, offset, lane, *_ = ((value or b"").decode(errors="replace") for _, value in headers[own:])
    if not partition.isdecimal() or not offset.isdecimal():
        return None
    return Letter(LetterPlace(topic, int(partition), int(offset), LaneId(lane)), headers[:own], returned)


def letters_words(letters: int) -> str:
    """Return a phrase such as "3 records parked" for the field `letters` of a `QuarantineSkipped` fact.

    A negative number means that the records were not parked.
    """
    if letters < 0:
        return "not parked"
    return f"{letters} record{'' if letters == 1 else 's'} parked"
