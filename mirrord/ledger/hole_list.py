"""The holes of a lane, in the order in which they were found.

One ledger entry may contain hundreds of thousands of holes, and each of them may change the plans of the older ones
(`mirrord.ledger.hole_plans.carried_on`). These changes are made for all added holes together, when the holes are next
read.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from mirrord.ledger.facts.core import HoleFound
from mirrord.ledger.hole_plans import carried_on

REST_HOLES = 2
"""When no further holes are expected soon, they are stored in encoded form if there are more than this number. Fewer
holes take less memory as they are."""
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[HoleFound, ...])


class HoleList:
    """The holes of a lane. Adding a hole takes constant time."""

    __slots__ = ("_added", "_furthest", "_has_empty", "_known", "_until")

    def __init__(self, holes: Iterable[HoleFound] = ()) -> None:
        known = tuple(holes)
        self._known: tuple[HoleFound, ...] | bytes = known
        self._added: list[HoleFound] | tuple[()] = ()
        self._furthest = max((max(hole.first, hole.last) for hole in known), default=-1)
        self._until = max((hole.until for hole in known), default=-1)
        self._has_empty = any(hole.first > hole.last for hole in known)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HoleList) and self.read() == other.read()

    def __hash__(self) -> int:
        raise TypeError("holes change, so they are no key")

    def __repr__(self) -> str:
        return f"HoleList({self.read()})"

    def read(self) -> tuple[HoleFound, ...]:
        """Return all holes. The plans of older holes are first changed as the newly added holes require."""
        known = _decoder.decode(self._known) if isinstance(self._known, bytes) else self._known
        if self._added:
            known = self._known = all_carried_on(known, self._added)
            self._added = ()
        return known

    def rest(self) -> None:
        """Reduce the memory of holes that are not expected to change soon: keep them in encoded form, if this saves
        memory. They are decoded each time they are read."""
        if not isinstance(self._known, bytes) or self._added:
            known = self.read()
            self._known = _encoder.encode(known) if len(known) > REST_HOLES else known

    def add(self, hole: HoleFound) -> None:
        """Add a hole that was found after all others."""
        if isinstance(self._added, tuple):
            self._added = []
        self._added.append(hole)
        self._furthest = max(self._furthest, hole.first, hole.last)
        self._until = max(self._until, hole.until)
        self._has_empty = self._has_empty or hole.first > hole.last

    def is_changed(self, lowest: int, last: int, *, is_lost: bool) -> bool:
        """Return whether runs that begin at ordinals from `lowest` to `last` can change a hole, as described in
        `hole_plans.after_runs`."""
        ends = is_lost or self._has_empty
        return self._furthest >= lowest or (ends and self._until > last)


def all_carried_on(known: Sequence[HoleFound], added: Sequence[HoleFound]) -> tuple[HoleFound, ...]:
    """Return all holes after the holes in `added` have been found, in this order. The result is the same as if
    `carried_on` had been called, for each added hole, with every hole that was found before it."""
    holes = [*known]
    plans = _Plans()
    exceptions: list[int] = []
    for number, hole in enumerate((*known, *added)):
        if number >= len(known):
            plan = (hole.first, hole.again, hole.until)
            plans.carry_on(*plan)
            for at in exceptions:
                holes[at] = carried_on(holes[at], *plan)
            holes.append(hole)
        if hole.again > hole.until:
            # A later plan may raise `until` to `again`. From then on, no plan changes the hole (`HoleFound.is_open`).
            exceptions.append(number)
        elif not hole.is_open:
            plans.add(hole, number)
    for until, number in plans:
        if holes[number].until != until:
            holes[number] = msgspec.structs.replace(holes[number], until=until)
    return tuple(holes)


class _Plans:
    """The holes whose records are copied again, grouped by `until`. When `until` is raised for several holes of one
    group, they move to their new group together."""

    def __init__(self) -> None:
        self._untils: list[int] = []
        """The values of `until`, in ascending order."""
        self._groups: dict[int, list[tuple[int, int]]] = {}
        """For each of these values, the holes with this value, in ascending order. A hole is represented by its first
        ordinal and its index in the list of holes."""

    def __iter__(self) -> Iterator[tuple[int, int]]:
        for until, group in self._groups.items():
            for _, number in group:
                yield until, number

    def add(self, hole: HoleFound, number: int) -> None:
        insort(self._group(hole.until), (hole.first, number))

    def carry_on(self, first: int, again: int, until: int) -> None:
        """Update `until` of all older holes after a later hole has been found. The arguments, and the new value of
        `until`, are the same as in `carried_on`."""
        start, end = bisect_right(self._untils, again), bisect_left(self._untils, until)
        for former in self._untils[start:end]:
            group = self._groups[former]
            cut = bisect_left(group, (first, -1))
            if cut == 0:
                continue
            if cut == len(group):
                del self._groups[former], self._untils[bisect_left(self._untils, former)]
            else:
                self._groups[former], group = group[cut:], group[:cut]
            self._move(group, until)

    def _move(self, group: list[tuple[int, int]], until: int) -> None:
        there = self._groups.get(until)
        if there is None:
            insort(self._untils, until)
            self._groups[until] = group
        else:
            self._groups[until] = sorted([*there, *group])

    def _group(self, until: int) -> list[tuple[int, int]]:
        if until not in self._groups:
            insort(self._untils, until)
            self._groups[until] = []
        return self._groups[until]
