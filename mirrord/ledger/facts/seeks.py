"""Orders to go on further ahead in the source, and what lanes have left out for them."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from mirrord.ledger.facts.base import Fact, Origin
from mirrord.model.names import LaneId

KEPT = 128
"""So many ranges of a lane are known by heart; the ledger holds them all."""


class LaneSought(Fact, frozen=True, tag="lane_sought"):
    """Somebody wants the lane to go on at source offset `end`, and to leave out what it has not copied by then.

    Binds unless an order that reaches as far stands. It is an order to whoever has the lane, so it carries no grant.
    """

    lane: LaneId
    start: int
    """Where the lane stood when that was decided: what lies in front is copied."""
    end: int
    log_start: int
    """Of the source, when that was decided: what lies in front can be copied no more."""
    origin: Origin


class SeekDone(Fact, frozen=True, tag="seek_done"):
    """The lane goes on at `end` by such orders. What it left out is [start, end): nothing where both are equal."""

    lane: LaneId
    grant: int
    start: int
    end: int


class Seek(msgspec.Struct, frozen=True, array_like=True):
    """An order as it stands."""

    start: int
    end: int
    log_start: int
    origin: Origin
    done: bool = False
    """The lane has left out [start, end), and does so when it comes there again."""


Seeks = tuple[Seek, ...]
"""Of one lane, in the order of their ends."""


def sought(seeks: Seeks, order: LaneSought) -> Seeks | None:
    """After an order; None when it does not bind."""
    if any(each.end >= order.end for each in seeks):
        return None
    return (*seeks, Seek(order.start, order.end, order.log_start, order.origin))[-KEPT:]


def done(seeks: Seeks, fact: SeekDone) -> Seeks:
    """After the lane went on: orders that do not reach further are carried out."""
    kept = [each for each in seeks if each.done or each.end > fact.end]
    carried = next((each for each in seeks if each.end == fact.end and not each.done), None)
    if carried is not None and fact.start < fact.end:
        kept.append(msgspec.structs.replace(carried, start=fact.start, done=True))
    return tuple(sorted(kept, key=lambda each: each.end))


def cut(seeks: Seeks, offset: int) -> Seeks:
    """Without those that reach beyond an offset: other records stand there now."""
    return tuple(each for each in seeks if each.end <= offset)


def pending(seeks: Seeks) -> Seeks:
    """What the lane has still to do."""
    return tuple(each for each in seeks if not each.done) if seeks else ()


def passed_ranges(seeks: Iterable[Seek]) -> list[tuple[int, int]]:
    """The source offsets [start, end) that were left out."""
    return [(each.start, each.end) for each in seeks if each.done]


class Standing(NamedTuple):
    """A lane that has begun, as far as such orders go by it."""

    position: int
    """The source offset that it copies next: what lies in front is copied, or explained."""
    seeks: Seeks = ()
