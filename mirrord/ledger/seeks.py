"""The seeks of a lane: the source offsets to which operators moved it, and the ranges that it has skipped as a
result."""

from collections.abc import Iterable, Iterator
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
    lost_from: int = -1
    """The lowest source offset of the loss that the operator accepted with this command (`LaneSought.lost_from`), or
    -1."""
    epoch: int = -1
    """If the range was skipped: the highest leader epoch that its records can have (`SeekDone.epoch`), or -1."""
    epochs: tuple[tuple[int, int], ...] = ()
    """If the range was skipped: the leader epochs of its records (`SeekDone.epochs`)."""

    def epoch_before(self, offset: int) -> int:
        """Return the leader epoch of the last skipped record below this source offset. If it is not known, return the
        highest one that it can have, or -1."""
        return max((epoch for at, epoch in self.epochs if at < offset), default=self.epoch)


Seeks = tuple[Seek, ...]
"""The seeks of one lane, in the order of their `end`."""


def sought(seeks: Seeks, order: LaneSought) -> Seeks | None:
    """Add the seek that an operator has requested, and return all seeks. Return None if the request does not take
    effect because an earlier seek reaches at least as far.

    If the source has lost copied records, and the operator knows of this loss, seeks beyond it are about records that
    the source no longer has. They do not count, and those that the lane has not carried out are dropped.
    """
    lost_from = order.lost_from
    counting = [each for each in seeks if lost_from < 0 or each.end <= lost_from]
    counting += [each for each in seeks if each.lost_from == lost_from >= 0 and not each.done]
    if any(each.end >= order.end for each in counting):
        return None
    kept = [each for each in seeks if each.done or each in counting]
    seek = Seek(order.start, order.end, order.log_start, order.origin, lost_from=lost_from)
    return tuple(sorted((*kept, seek), key=lambda each: each.end))[-KEPT:]


def done(seeks: Seeks, fact: SeekDone) -> Seeks:
    """Return the lane's seeks, updated for a seek that it has carried out (`fact`). Pending seeks to the same offset or
    a lower one also count as carried out."""
    kept = [each for each in seeks if each.done or each.end > fact.end]
    carried = next((each for each in seeks if each.end == fact.end and not each.done), None)
    if carried is not None and fact.start < fact.end:
        known = {"epoch": fact.epoch, "epochs": fact.epochs}
        kept.append(msgspec.structs.replace(carried, start=fact.start, done=True, **known))
    return tuple(sorted(kept, key=lambda each: each.end))


def cut(seeks: Seeks, offset: int) -> Seeks:
    """Return only the seeks that end at this source offset or below it. This function is called after the source log
    has been truncated to this offset, because the source then has different records at higher offsets. Commands that
    the operator gave because of this loss are kept as well (see `accepts_loss`).

    A range that was skipped and contains this offset ends there if the epochs of its records are known. The source may
    have lost more of the range than is known so far, and the epochs show this.
    """
    kept = (each if each.end <= offset or _accepts(each, offset) else _below(each, offset) for each in seeks)
    return tuple(sorted((each for each in kept if each is not None), key=lambda each: each.end))


def _below(seek: Seek, offset: int) -> Seek | None:
    """Return the part of a skipped range below this offset, or None if the epochs of its records are not known."""
    epochs = tuple(each for each in seek.epochs if each[0] < offset)
    known = {"end": offset, "epoch": epochs[-1][1], "epochs": epochs} if epochs else None
    return None if known is None or not seek.done else msgspec.structs.replace(seek, **known)


def accepts_loss(seeks: Seeks, offset: int) -> bool:
    """Return whether an operator has accepted that the source has lost the copied records from this source offset on,
    by a command that the lane has not carried out yet."""
    return any(_accepts(each, offset) for each in seeks)


def _accepts(seek: Seek, offset: int) -> bool:
    return not seek.done and 0 <= seek.lost_from <= offset


def pending(seeks: Seeks) -> Seeks:
    """Return the seeks that the lane has not carried out yet."""
    return tuple(each for each in seeks if not each.done) if seeks else ()


def passed(seeks: Iterable[Seek]) -> list[Seek]:
    """Return the seeks whose ranges were skipped."""
    return [each for each in seeks if each.done]


def skipped_epochs(seeks: Iterable[Seek]) -> Iterator[tuple[int, int, int]]:
    """Yield triples (start, end, leader epoch) of source offsets that were skipped, if the epochs are known."""
    for each in seeks:
        ends = (*(at for at, _ in each.epochs[1:]), each.end)
        yield from ((at, end, epoch) for (at, epoch), end in zip(each.epochs, ends, strict=False) if each.done)


class Standing(NamedTuple):
    """The position and the seeks of a lane that has begun to copy. They determine whether a new seek can take
    effect."""

    position: int
    """The source offset that the lane copies next. Every record before it is copied or explained."""
    seeks: Seeks = ()
    lost_from: int = -1
    """If the lane is halted because the source has lost copied records: the lowest offset that the source has lost.
    Otherwise -1."""
