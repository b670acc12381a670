"""Records that cannot be copied: the target refuses them, or the source cannot be read there. Their lane waits until
somebody says what is to become of them.
"""

from collections.abc import Iterable

import msgspec

from mirrord.ledger.facts.base import Fact, Origin
from mirrord.model.names import LaneId

BY_POLICY = Origin("policy", 'on_reject = "skip"', 0)
KEPT = 128
"""So many entries of a lane are known by heart; the ledger holds them all."""


class Quarantined(Fact, frozen=True, tag="quarantined"):
    """The source offsets [start, end) cannot be copied. With `skip` the flow's policy leaves them out at once, with
    `letters` once they are parked."""

    lane: LaneId
    grant: int
    start: int
    end: int
    error: int
    """Kafka's error code by which the target refuses them; 0: the source does not give them in a form to be read."""
    line: str
    skip: bool = False
    letters: int = -1
    """As of `QuarantineSkipped`, and so the next."""
    letters_at: int = -1


class QuarantineSkipped(Fact, frozen=True, tag="quarantine_skipped"):
    """Somebody decided to leave out [start, end), and the lane goes on behind it. Binds while the lane waits there.

    It is an order to whoever has the lane, so it carries no grant.
    """

    lane: LaneId
    start: int
    end: int
    origin: Origin
    letters: int = -1
    """So many of its records were in the flow's dead-letter topic before; -1: nobody put them there."""
    letters_at: int = -1
    """Where the first of them stands in that topic; -1: there is none, or that was not told."""


class QuarantineReplayed(Fact, frozen=True, tag="quarantine_replayed"):
    """Somebody wants [start, end) to be tried again. Binds while the lane waits there."""

    lane: LaneId
    start: int
    end: int
    origin: Origin


QuarantineOrder = QuarantineSkipped | QuarantineReplayed


class Parked(msgspec.Struct, frozen=True, array_like=True):
    """An entry of a lane's quarantine."""

    start: int
    end: int
    error: int
    line: str
    skipped: Origin | None = None
    """Who decided to leave it out; None: the lane waits for somebody to decide."""
    letters: int = -1
    """As of `QuarantineSkipped`, and so the next."""
    letters_at: int = -1


Quarantine = tuple[Parked, ...]
"""Of one lane, in the order in which they were told."""


def park(quarantine: Quarantine, fact: Quarantined) -> Quarantine:
    """One more entry; a later word about the same offsets counts. What a policy leaves out in a row is one entry."""
    origin = BY_POLICY if fact.skip else None
    parked = Parked(fact.start, fact.end, fact.error, fact.line, origin, fact.letters, fact.letters_at)
    if origin is not None and any(_holds(each, parked) for each in quarantine):
        return quarantine  # told twice, and by now part of a longer one
    kept = [each for each in quarantine if each.end <= parked.start or parked.end <= each.start]
    if kept and origin is not None and kept[-1].end == parked.start:
        last = kept[-1]
        alike = last.skipped == origin and last.error == parked.error
        if alike and (last.letters < 0) == (parked.letters < 0):
            letters = last.letters + max(parked.letters, 0)
            kept[-1] = msgspec.structs.replace(last, end=parked.end, letters=letters)
            return tuple(kept)
    return (*kept, parked)[-KEPT:]


def _holds(entry: Parked, other: Parked) -> bool:
    return entry.skipped == other.skipped and entry.start <= other.start and other.end <= entry.end


def decide(quarantine: Quarantine, order: QuarantineOrder) -> Quarantine | None:
    """After an order; None when nothing waits there, so it does not bind."""
    waits = waiting(quarantine)
    if waits is None or not (order.start <= waits.start and waits.start < order.end):
        return None
    rest = tuple(each for each in quarantine if each is not waits)
    if isinstance(order, QuarantineReplayed):
        return rest
    letters = (order.letters, order.letters_at)
    skipped = Parked(order.start, order.end, waits.error, waits.line, order.origin, *letters)
    return (*(each for each in rest if each.end <= order.start or order.end <= each.start), skipped)[-KEPT:]


def waiting(quarantine: Quarantine) -> Parked | None:
    """The entry that the lane waits at."""
    return next((each for each in reversed(quarantine) if each.skipped is None), None)


def go_on(quarantine: Quarantine) -> Quarantine:
    """The lane tries again: what waited is told anew if it is refused once more."""
    return tuple(each for each in quarantine if each.skipped is not None)


def skipped_ranges(quarantine: Iterable[Parked]) -> list[tuple[int, int]]:
    """The source offsets [start, end) that are left out, in ascending order."""
    return sorted((each.start, each.end) for each in quarantine if each.skipped is not None)


def lettered_from(quarantine: Iterable[Parked]) -> int:
    """Where in the dead-letter topic to look for letters about offsets that nobody has decided on: those stand behind
    the letters of all that is decided."""
    return max((each.letters_at for each in quarantine), default=-1)
