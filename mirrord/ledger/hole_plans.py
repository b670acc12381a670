"""Updates a hole, and the plan for copying its records again, when a later fact records another hole or assigns the
same ordinals again."""

from collections.abc import Sequence

import msgspec

from mirrord.ledger.facts.core import HoleFound, MapRebuilt


def carried_on(hole: HoleFound, first: int, again: int, until: int) -> HoleFound:
    """Return the updated form of an older hole after a later hole has been found. The later hole begins at the ordinal
    `first`, and its records are copied again under the ordinals [again, until).

    If records of the older hole were still to be copied again under ordinals at or above `again`, they are now copied
    after the records of the later hole. The `until` of the older hole is then at least the `until` of the later hole.
    """
    if hole.is_open or hole.first >= first or hole.until <= again:
        return hole
    return msgspec.structs.replace(hole, until=max(hole.until, until))


def after_rebuild(holes: Sequence[HoleFound], fact: MapRebuilt) -> tuple[HoleFound, ...]:
    """Return the holes of a lane after its map has been rebuilt.

    After the rebuild, the records that the target lacks are copied again. The plan for this is kept as a hole without
    missing ordinals. It replaces older such holes that begin at or above the first rebuilt ordinal.
    """
    mended = HoleFound(fact.lane, fact.grant, fact.first - 1, fact.first - 2, fact.last + 1, fact.until)
    kept = [hole for hole in holes if hole.first < mended.first or hole.last >= hole.first]
    return (*(carried_on(hole, fact.first, fact.first, fact.until) for hole in kept), mended)


def after_runs(holes: Sequence[HoleFound], lowest: int, last: int, *, is_lost: bool) -> tuple[HoleFound, ...]:
    """Return the holes of a lane after runs have been recorded. The first of these runs begins at the ordinal `lowest`,
    and the last one begins at the ordinal `last`. `is_lost` says whether the source has lost records that were copied.

    If ordinals of a hole are assigned again, the target log was truncated to a position below the hole and is growing
    again. A hole that begins at or above `lowest` is therefore dropped. If `is_lost` is true, the plans of all
    remaining holes end before `last`: no records are copied again under `last` or a higher ordinal. The plans of holes
    without missing ordinals (see `after_rebuild`) end there in any case.
    """
    kept = (kept_below(hole, lowest) for hole in holes if hole.first < lowest)
    return tuple(ended_at(hole, last) if is_lost or hole.first > hole.last else hole for hole in kept)


def kept_below(hole: HoleFound, ordinal: int) -> HoleFound:
    """Return the updated form of a hole after the ordinals at or above `ordinal` have been assigned to different
    records. If the records of the hole are unknown, and are therefore not copied again (`HoleFound.is_open`), the hole
    now ends before `ordinal`. Otherwise, it is unchanged."""
    if not hole.is_open or hole.last < ordinal:
        return hole
    return msgspec.structs.replace(hole, last=ordinal - 1, again=ordinal, until=ordinal)


def ended_at(hole: HoleFound, last: int) -> HoleFound:
    """Return the updated form of a hole whose records are now copied again only under ordinals below `last`.

    If there are no such ordinals, `again` is set to a higher value than `until`. If the two values were equal, the hole
    would be mistaken for one for which nothing is copied again (`HoleFound.is_open`).
    """
    if hole.until <= last:
        return hole
    return msgspec.structs.replace(hole, until=last, again=hole.again if last > hole.again else last + 1)
