"""Adjusts a hole and the plan for copying its records again, when later facts assign its ordinals again."""

import msgspec

from mirrord.ledger.facts.core import HoleFound


def carried_on(hole: HoleFound, first: int, again: int, until: int) -> HoleFound:
    """Return an older hole in its state after a later hole was found. The later hole begins at the ordinal `first`, and
    its records follow as the ordinals [again, until).

    Records of the older hole that were to be copied at ordinals from `again` on now follow after the records of the
    later hole. The `until` of the older hole rises accordingly.
    """
    if hole.is_open or hole.first >= first or hole.until <= again:
        return hole
    return msgspec.structs.replace(hole, until=max(hole.until, until))


def kept_below(hole: HoleFound, ordinal: int) -> HoleFound:
    """Return a hole in its state after the ordinals from `ordinal` on were assigned again. An open hole only keeps its
    part below `ordinal`."""
    if not hole.is_open or hole.last < ordinal:
        return hole
    return msgspec.structs.replace(hole, last=ordinal - 1, again=ordinal, until=ordinal)


def ended_at(hole: HoleFound, last: int) -> HoleFound:
    """Return a hole whose records are copied again only up to the ordinal `last`. If none of these records remain, the
    hole must not look like an open hole."""
    if hole.until <= last:
        return hole
    return msgspec.structs.replace(hole, until=last, again=hole.again if last > hole.again else last + 1)
