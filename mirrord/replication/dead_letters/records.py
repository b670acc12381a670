"""What a flow's dead-letter topic holds: records that were left out, and a receipt for each that was brought back.

Such a record is the source's, with headers of ours behind its own. They say where it stood, who left it out and why. A
receipt is an empty record with the same headers and one more, which says where its record stands now.
"""

from collections.abc import Sequence
from typing import NamedTuple

from mirrord.ledger.facts.base import Origin
from mirrord.model.names import LaneId, TopicPartition

Headers = Sequence[tuple[str, bytes | None]]

_OF = ("mirrord.topic", "mirrord.partition", "mirrord.offset", "mirrord.lane", "mirrord.reason", "mirrord.by")
_RETURNED = "mirrord.returned"


class Place(NamedTuple):
    """Where a record stood in the source."""

    topic: str
    partition: int
    offset: int
    lane: LaneId
    """Tells the records of a topic that was created again from those of the one before."""


class Letter(NamedTuple):
    """The headers of a record of the topic, understood."""

    place: Place
    headers: Headers
    """Those that its record had at the source."""
    returned: str = ""
    """Of a receipt: where the record stands now."""


class Standing(NamedTuple):
    """A place in the target."""

    partition: TopicPartition
    offset: int

    def __str__(self) -> str:
        return f"{self.partition} offset {self.offset}"


class Returned(NamedTuple):
    """A record that was brought back."""

    offset: int
    """At the source."""
    where: str
    """As `Standing` says it."""

    @property
    def standing(self) -> "Standing | None":
        """Where it stands; None for what is not ours."""
        place, _, offset = self.where.rpartition(" offset ")
        topic, _, partition = place.rpartition("-")
        if not topic or not partition.isdecimal() or not offset.isdecimal():
            return None
        return Standing(TopicPartition(topic, int(partition)), int(offset))

    def __str__(self) -> str:
        return f"source offset {self.offset} stands at {self.where}"


def headers_of(place: Place, origin: Origin, headers: Headers, returned: str = "") -> list[tuple[str, bytes | None]]:
    """The headers of a record of the topic."""
    told = (place.topic, str(place.partition), str(place.offset), place.lane, origin.reason, origin.by)
    ours: list[tuple[str, bytes | None]] = [(name, value.encode()) for name, value in zip(_OF, told, strict=True)]
    return [*headers, *ours, *([(_RETURNED, returned.encode())] if returned else [])]


def understood(headers: Headers) -> Letter | None:
    """None for a record that is not ours. Only the last headers count: what was left out may itself have such ones."""
    returned = ""
    if headers and headers[-1][0] == _RETURNED:
        returned, headers = (headers[-1][1] or b"").decode(errors="replace"), headers[:-1]
    own = len(headers) - len(_OF)
    if own < 0 or tuple(name for name, _ in headers[own:]) != _OF:
        return None
    topic, partition, offset, lane, *_ = ((value or b"").decode(errors="replace") for _, value in headers[own:])
    if not partition.isdecimal() or not offset.isdecimal():
        return None
    return Letter(Place(topic, int(partition), int(offset), LaneId(lane)), headers[:own], returned)


def letters_words(letters: int) -> str:
    """Of an entry: `QuarantineSkipped.letters`."""
    if letters < 0:
        return "not parked"
    return f"{letters} record{'' if letters == 1 else 's'} parked"
