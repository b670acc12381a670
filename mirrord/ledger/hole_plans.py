"""What is left of a hole, and of the plan to copy its records again, when later facts reassign its ordinals."""

import msgspec

from mirrord.ledger.facts.core import HoleFound


def carried_on(hole: HoleFound, first: int, again: int, until: int) -> HoleFound:
    """Return an older hole as a new plan leaves it. The plan is for the ordinals from `first` on, whose records follow
    as the ordinals [again, until). What the hole was to copy again from there on follows after them."""
    if hole.is_open or hole.first >= first or hole.until <= again:
        return hole
    return msgspec.structs.replace(hole, until=max(hole.until, until))


def kept_below(hole: HoleFound, ordinal: int) -> HoleFound:
    """Return what is left of a hole when ordinals are assigned again. An open hole keeps only the part below them."""
    if not hole.is_open or hole.last < ordinal:
        return hole
    return msgspec.structs.replace(hole, last=ordinal - 1, again=ordinal, until=ordinal)


def ended_at(hole: HoleFound, last: int) -> HoleFound:
    """Let the records that a hole copies again end at an ordinal. If none are left, the hole must not be treated as
    open."""
    if hole.until <= last:
        return hole
    return msgspec.structs.replace(hole, until=last, again=hole.again if last > hole.again else last + 1)
