"""The displaced ordinals of a lane: ordinals that the target log lacks, because it has lost their records or the target
has refused them (`Displaced`). The fold keeps them until they are assigned to other records or their records are stored
again."""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

import msgspec

from mirrord.ledger.facts.core import Displaced, TargetRun
from mirrord.model.intervals import uncovered

DISPLACED_KEPT = 4_000
"""Maximum number of ranges that are kept for a lane. Those with the highest ordinals are kept. Each range results from
an unclean election or a refused batch. Records that were at separate places in the log result in separate ranges. A
lane's snapshot, which is a single record, contains all of them: at most about 150 KB."""


def after_run(known: tuple[Displaced, ...], fact: TargetRun) -> tuple[Displaced, ...]:
    """Return the displaced ordinals of a lane after `fact` has been recorded. `known` are the displaced ordinals before
    that. Those at or above the ordinal of the run are dropped. If both `known` and `fact` contain an ordinal, what
    `fact` says about it applies, because it is newer."""
    known = kept_below(known, fact.ordinal)
    if not fact.displaced:
        return known
    newer = sorted(fact.displaced, key=_first)
    kept: list[Displaced] = []
    for each in known:
        found = [(other.first, other.last + 1) for other in within(newer, each.first, each.last)]
        parts = uncovered((each.first, each.last + 1), found)
        kept += [msgspec.structs.replace(each, first=start, last=end - 1) for start, end in parts]
    return tuple(sorted((*kept, *newer), key=_first)[-DISPLACED_KEPT:])


def within(known: Sequence[Displaced], first: int, last: int) -> Sequence[Displaced]:
    """Return the displaced ordinals that overlap [first, last]. The ranges in `known` are in ascending order and do not
    overlap."""
    return known[bisect_left(known, first, key=_last) : bisect_right(known, last, key=_first)]


def kept_below(known: tuple[Displaced, ...], ordinal: int) -> tuple[Displaced, ...]:
    """Return only those displaced ordinals that are below `ordinal`. Higher ordinals, and `ordinal` itself, are no
    longer displaced: they were assigned again, or their records were stored again."""
    if not known or known[-1].last < ordinal:
        return known
    kept = (each for each in known if each.first < ordinal)
    return tuple(each if each.last < ordinal else msgspec.structs.replace(each, last=ordinal - 1) for each in kept)


def kept_from(known: tuple[Displaced, ...], ordinal: int) -> tuple[Displaced, ...]:
    """Return the displaced ordinals at or above `ordinal`. The ledger no longer has runs for lower ordinals."""
    if not known or known[0].first >= ordinal:
        return known
    kept = (each for each in known if each.last >= ordinal)
    return tuple(each if each.first >= ordinal else msgspec.structs.replace(each, first=ordinal) for each in kept)


def _first(displaced: Displaced) -> int:
    return displaced.first


def _last(displaced: Displaced) -> int:
    return displaced.last
