"""Displaced ordinals of a lane, which the fold keeps until their ordinals are assigned or stored again."""

import msgspec

from mirrord.ledger.facts.core import Displaced, TargetRun
from mirrord.model.intervals import uncovered

DISPLACED_KEPT = 128
"""Maximum number of ranges that are kept for a lane, those with the highest ordinals."""


def after_run(known: tuple[Displaced, ...], fact: TargetRun) -> tuple[Displaced, ...]:
    """Return the displaced ordinals after a run was recorded. The newer fact overrides the older ones."""
    known = kept_below(known, fact.ordinal)
    if not fact.displaced:
        return known
    found = [(each.first, each.last + 1) for each in fact.displaced]
    kept = [
        msgspec.structs.replace(each, first=start, last=end - 1)
        for each in known
        for start, end in uncovered((each.first, each.last + 1), found)
    ]
    return tuple(sorted((*kept, *fact.displaced), key=_first)[-DISPLACED_KEPT:])


def kept_below(known: tuple[Displaced, ...], ordinal: int) -> tuple[Displaced, ...]:
    """Return the displaced ordinals below a given one. From that one on, they are assigned or stored again."""
    if not known:
        return known
    kept = (each for each in known if each.first < ordinal)
    return tuple(each if each.last < ordinal else msgspec.structs.replace(each, last=ordinal - 1) for each in kept)


def kept_from(known: tuple[Displaced, ...], ordinal: int) -> tuple[Displaced, ...]:
    """Return the displaced ordinals at or above a given one. The ledger has no runs for lower ones any more."""
    if not known or known[0].first >= ordinal:
        return known
    kept = (each for each in known if each.last >= ordinal)
    return tuple(each if each.first >= ordinal else msgspec.structs.replace(each, first=ordinal) for each in kept)


def _first(displaced: Displaced) -> int:
    return displaced.first
