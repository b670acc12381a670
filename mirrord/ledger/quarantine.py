"""The quarantine of a lane. It lists ranges of records that cannot be copied, because the target refuses them or
because they cannot be read from the source. The lane waits at such a range until an operator decides what happens to
it."""

from collections.abc import Iterable

import msgspec

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.quarantine import Quarantined, QuarantineOrder, QuarantineReplayed

BY_POLICY = Origin("policy", 'on_reject = "skip"', 0)
KEPT = 128
"""Maximum number of quarantined ranges of a lane that the state keeps. The ledger holds all of them."""


class Parked(msgspec.Struct, frozen=True, array_like=True):
    """One quarantined range of a lane: the source offsets [start, end), and why their records could not be copied."""

    start: int
    end: int
    error: int
    line: str
    skipped: Origin | None = None
    """Who decided to skip the range, when and why. None while the lane is waiting for a decision."""
    letters: int = -1
    """The number of parked records. `letters` and `letters_at` have the same meaning as in `QuarantineSkipped`."""
    letters_at: int = -1
    epoch: int = -1
    """Leader epoch of the records in the source, or -1 if it is not known."""


Quarantine = tuple[Parked, ...]
"""The quarantined ranges of one lane, in the order in which they were recorded."""


def park(quarantine: Quarantine, fact: Quarantined) -> Quarantine:
    """Add the range of a fact to the quarantine and return the new quarantine. A later fact about the same offsets
    replaces an earlier one.

    Consecutive ranges of one source epoch that are skipped because of the configuration (`on_reject`) are merged into
    one.
    """
    origin = BY_POLICY if fact.skip else None
    parked = Parked(fact.start, fact.end, fact.error, fact.line, origin, fact.letters, fact.letters_at, fact.epoch)
    if origin is not None and any(_holds(each, parked) for each in quarantine):
        return quarantine  # the fact was recorded twice, and its range is already part of a longer one
    kept = [each for each in quarantine if each.end <= parked.start or parked.end <= each.start]
    if kept and origin is not None and kept[-1].end == parked.start:
        last = kept[-1]
        alike = last.skipped == origin and last.error == parked.error and last.epoch == parked.epoch
        if alike and (last.letters < 0) == (parked.letters < 0):
            letters = last.letters + max(parked.letters, 0)
            kept[-1] = msgspec.structs.replace(last, end=parked.end, letters=letters)
            return tuple(kept)
    return (*kept, parked)[-KEPT:]


def _holds(entry: Parked, other: Parked) -> bool:
    return entry.skipped == other.skipped and entry.start <= other.start and other.end <= entry.end


def decide(quarantine: Quarantine, order: QuarantineOrder) -> Quarantine | None:
    """Apply an operator's decision about quarantined records and return the new quarantine.

    Return None if no range at the offsets of the command is waiting for a decision. The command then does not take
    effect.
    """
    waits = waiting(quarantine)
    if waits is None or not (order.start <= waits.start and waits.start < order.end):
        return None
    rest = tuple(each for each in quarantine if each is not waits)
    if isinstance(order, QuarantineReplayed):
        return rest
    parking = (order.letters, order.letters_at, waits.epoch if order.end <= waits.end else -1)
    skipped = Parked(order.start, order.end, waits.error, waits.line, order.origin, *parking)
    return (*(each for each in rest if each.end <= order.start or order.end <= each.start), skipped)[-KEPT:]


def waiting(quarantine: Quarantine) -> Parked | None:
    """Return the range about which an operator still has to decide before the lane can continue; None if there is
    none."""
    return next((each for each in reversed(quarantine) if each.skipped is None), None)


def go_on(quarantine: Quarantine) -> Quarantine:
    """Return the quarantine without the ranges that are waiting for a decision. This function is called when the lane
    tries to copy their records again. If a record is refused again, a new range is added."""
    return tuple(each for each in quarantine if each.skipped is not None)


def lettered_from(quarantine: Iterable[Parked]) -> int:
    """Return the offset in the dead-letter topic from which to search for parked records of undecided ranges. These
    records follow the parked records of all decided ranges, so none of them has a lower offset. Return -1 if no range
    has parked records.
    """
    return max((each.letters_at for each in quarantine), default=-1)
