"""Marks differences as repaired. A repaired record is missing or altered on the target, but a repair has written it to
a different topic and recorded this in the ledger."""

from collections.abc import Iterator, Sequence
from typing import get_args

import msgspec

from mirrord.audit.rules.results import Difference, Explained, RangeResult
from mirrord.ledger.facts.audit import RangeRepaired, RepairedKind
from mirrord.model.intervals import uncovered, within

_REPAIRABLE = get_args(RepairedKind)


def with_repairs(result: RangeResult, repaired: Sequence[RangeRepaired]) -> RangeResult:
    """Return the result with its repaired ranges counted as explained: the repaired parts of its differences are moved
    from the differences to the explanations."""
    if not repaired or not result.compared.differences:
        return result
    ranges = [(each.start, each.end) for each in repaired]
    found = result.compared
    left = tuple(piece for each in found.differences for piece in _left(each, ranges))
    explained = tuple(
        Explained("repaired", "source", start, end)
        for each in found.differences
        if each.kind in _REPAIRABLE and each.source is not None
        for start, end in within((each.source, each.source + each.length), ranges)
    )
    compared = msgspec.structs.replace(found, differences=left, explained=(*found.explained, *explained))
    return msgspec.structs.replace(result, compared=compared)


def _left(each: Difference, ranges: Sequence[tuple[int, int]]) -> Iterator[Difference]:
    """Yield the parts of a difference that were not repaired."""
    if each.kind not in _REPAIRABLE or each.source is None:
        yield each
        return
    for start, end in uncovered((each.source, each.source + each.length), ranges):
        target = None if each.target is None else each.target + start - each.source
        yield msgspec.structs.replace(each, source=start, target=target, length=end - start)
