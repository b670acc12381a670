"""What is left of a hole, and of the plan to copy its records again, when later facts reassign its ordinals."""

import msgspec

from mirrord.ledger.facts.core import HoleFound, MapRebuilt


def carried_on(hole: HoleFound, fact: MapRebuilt) -> HoleFound:
    """Return an older hole whose records follow after the rebuilt ordinals, if they were to follow among these."""
    if hole.is_open or hole.first >= fact.first or hole.until <= fact.first:
        return hole
    return msgspec.structs.replace(hole, until=max(hole.until, fact.until))


def kept_below(hole: HoleFound, ordinal: int) -> HoleFound:
    """Return what is left of a hole when ordinals are assigned again. An open hole keeps only the part below them."""
    if not hole.is_open or hole.last < ordinal:
        return hole
    return msgspec.structs.replace(hole, last=ordinal - 1, again=ordinal, until=ordinal)


def ended_at(hole: HoleFound, last: int) -> HoleFound:
    """Let the records that a hole copies again end at an ordinal. If none are left, the hole must not count as open."""
    if hole.until <= last:
        return hole
    return msgspec.structs.replace(hole, until=last, again=hole.again if last > hole.again else last + 1)
