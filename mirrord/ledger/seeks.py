"""The seeks of a lane: the source offsets to which operators moved it, and the ranges that it has skipped as a
result."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.seeks import LaneSought, SeekDone

KEPT = 128
"""Maximum number of seeks of a lane that the state keeps. The ledger holds all of them."""


class Seek(msgspec.Struct, frozen=True, array_like=True):
    """An operator command that moves the lane to the source offset `end`, and whether the lane has carried out the
    command."""

    start: int
    end: int
    log_start: int
    origin: Origin
    done: bool = False
    """Whether the lane has skipped [start, end). If the lane reaches the range again, it skips the range again."""


Seeks = tuple[Seek, ...]
"""The seeks of one lane, in the order of their `end`."""


def sought(seeks: Seeks, order: LaneSought) -> Seeks | None:
    """Add the seek that an operator has requested, and return all seeks. Return None if the request does not take
    effect because an earlier seek reaches at least as far."""
    if any(each.end >= order.end for each in seeks):
        return None
    return (*seeks, Seek(order.start, order.end, order.log_start, order.origin))[-KEPT:]


def done(seeks: Seeks, fact: SeekDone) -> Seeks:
    """Return the lane's seeks, updated for a seek that it has carried out (`fact`). Pending seeks to the same offset or
    a lower one also count as carried out."""
    kept = [each for each in seeks if each.done or each.end > fact.end]
    carried = next((each for each in seeks if each.end == fact.end and not each.done), None)
    if carried is not None and fact.start < fact.end:
        kept.append(msgspec.structs.replace(carried, start=fact.start, done=True))
    return tuple(sorted(kept, key=lambda each: each.end))


def cut(seeks: Seeks, offset: int) -> Seeks:
    """Return only the seeks that end at this source offset or below it. This function is called after the source log
    has been truncated to this offset, because the source then has different records at higher offsets."""
    return tuple(each for each in seeks if each.end <= offset)


def pending(seeks: Seeks) -> Seeks:
    """Return the seeks that the lane has not carried out yet."""
    return tuple(each for each in seeks if not each.done) if seeks else ()


def passed_ranges(seeks: Iterable[Seek]) -> list[tuple[int, int]]:
    """Return the source offsets [start, end) that were skipped."""
    return [(each.start, each.end) for each in seeks if each.done]


class Standing(NamedTuple):
    """The position and the seeks of a lane that has begun to copy. They determine whether a new seek can take
    effect."""

    position: int
    """The source offset that the lane copies next. Every record before it is copied or explained."""
    seeks: Seeks = ()
