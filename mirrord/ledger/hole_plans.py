"""Adjusts a hole, and the plan to copy its records again, when later facts assign its ordinals again."""

import msgspec

from mirrord.ledger.facts.core import HoleFound


def carried_on(hole: HoleFound, first: int, again: int, until: int) -> HoleFound:
    """Return an older hole as it is after a later one was found, which begins at the ordinal `first` and whose records
    follow as the ordinals [again, until).

    If records of the older hole were still to be copied again from `again` on, they now follow after those, so its own
    `until` rises.
    """
    if hole.is_open or hole.first >= first or hole.until <= again:
        return hole
    return msgspec.structs.replace(hole, until=max(hole.until, until))


def kept_below(hole: HoleFound, ordinal: int) -> HoleFound:
    """Return a hole as it is after the ordinals from `ordinal` on were assigned again. An open hole keeps only its part
    below `ordinal`."""
    if not hole.is_open or hole.last < ordinal:
        return hole
    return msgspec.structs.replace(hole, last=ordinal - 1, again=ordinal, until=ordinal)


def ended_at(hole: HoleFound, last: int) -> HoleFound:
    """Return a hole whose records are copied again only up to the ordinal `last`. If none of them are left, the hole
    must not look like an open one."""
    if hole.until <= last:
        return hole
    return msgspec.structs.replace(hole, until=last, again=hole.again if last > hole.again else last + 1)
