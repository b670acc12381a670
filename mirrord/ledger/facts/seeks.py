"""Commands to seek forward in the source, and the source offsets that lanes have skipped for them."""

from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from mirrord.ledger.facts.base import Fact, Origin
from mirrord.model.names import LaneId

KEPT = 128
"""Number of ranges of a lane that are kept in the state. The ledger holds all of them."""


class LaneSought(Fact, frozen=True, tag="lane_sought"):
    """An operator requested that the lane continue at source offset `end` and skip what it has not copied by then.

    The fact takes effect unless a seek that reaches at least as far is known. It is a command to the current holder of
    the lane, so it carries no grant.
    """

    lane: LaneId
    start: int
    """Position of the lane when the seek was decided. Records before it are copied."""
    end: int
    """The source offset at which the lane is to continue."""
    log_start: int
    """Log start of the source when the seek was decided. Records before it can no longer be copied."""
    origin: Origin


class SeekDone(Fact, frozen=True, tag="seek_done"):
    """The lane continues at `end` after such commands. It skipped [start, end), which is nothing if both are equal."""

    lane: LaneId
    grant: int
    start: int
    """First source offset that was skipped."""
    end: int
    """The source offset at which the lane continues."""


class Seek(msgspec.Struct, frozen=True, array_like=True):
    """The current state of a seek."""

    start: int
    end: int
    log_start: int
    origin: Origin
    done: bool = False
    """Whether the lane has skipped [start, end). It skips the range again if it comes there again."""


Seeks = tuple[Seek, ...]
"""The seeks of one lane, ordered by their ends."""


def sought(seeks: Seeks, order: LaneSought) -> Seeks | None:
    """Return the seeks after a command, or None if the command does not take effect."""
    if any(each.end >= order.end for each in seeks):
        return None
    return (*seeks, Seek(order.start, order.end, order.log_start, order.origin))[-KEPT:]


def done(seeks: Seeks, fact: SeekDone) -> Seeks:
    """Return the seeks after the lane continued. Commands that do not reach further are done."""
    kept = [each for each in seeks if each.done or each.end > fact.end]
    carried = next((each for each in seeks if each.end == fact.end and not each.done), None)
    if carried is not None and fact.start < fact.end:
        kept.append(msgspec.structs.replace(carried, start=fact.start, done=True))
    return tuple(sorted(kept, key=lambda each: each.end))


def cut(seeks: Seeks, offset: int) -> Seeks:
    """Return the seeks without those that reach beyond an offset, because other records are there now."""
    return tuple(each for each in seeks if each.end <= offset)


def pending(seeks: Seeks) -> Seeks:
    """Return the seeks that the lane has not carried out yet."""
    return tuple(each for each in seeks if not each.done) if seeks else ()


def passed_ranges(seeks: Iterable[Seek]) -> list[tuple[int, int]]:
    """Return the source offsets [start, end) that were skipped."""
    return [(each.start, each.end) for each in seeks if each.done]


class Standing(NamedTuple):
    """The state of a lane that has begun, as seek commands need it."""

    position: int
    """The source offset that it copies next. Every record before it is copied or explained."""
    seeks: Seeks = ()
