"""Finds the lane that ends its replicator again and again, for example with a batch for which there is not enough
memory.

A death alone does not show which of the replicator's lanes has caused it, or whether any has: an operator or the
operating system may have ended the process. A lane is therefore a suspect only until it makes progress, has nothing
left to copy, or has been copying for `SURVIVED_S`. If several lanes have been in as many deaths in succession, at most
half of them run at the same time, so that the next death narrows the choice (`arrange`). The last one gets a replicator
to itself, and the other suspects wait. A lane is to be halted only after a first death, which may be any lane's, and
`MOST_ALONE` more in succession in which it was alone on its replicator, at the same source offset: no other lane can
have caused these. If a replicator without the lane dies in between, or within `TOGETHER_S` before, there may be another
cause for all these deaths. They do not count.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

import msgspec

from mirrord.model.names import LaneId

SURVIVED_S = 10.0
"""If a lane has been copying for this long, the batch at its position does not end its replicator."""
MOST_ALONE = 2
"""Number of deaths in succession, after the first one, with no other lane on the replicator, after which a lane is to
be halted."""
TOGETHER_S = 5.0
"""Replicators that die within this time may have the same cause of death, for example an operator."""
_CHOICE = 2
"""Number of deaths in succession from which a lane is treated differently from others. A single death can be the end of
any process."""


class Suspicion(msgspec.Struct, frozen=True):
    """What counts against a lane: the deaths of its replicators in succession, without progress of the lane."""

    position: int
    """The source offset at which the lane was."""
    deaths: int
    alone: int = 0
    """Number of the last deaths in the flow in which the lane was alone on its replicator and had not run for long."""


class Lived(NamedTuple):
    """What is known about a lane at the death of its replicator."""

    position: int
    """The highest known source offset of the lane."""
    ran_s: float
    """For how many seconds the lane was seen copying. Negative if it could not copy yet, for example because it was
    waiting for a previous holder."""
    has_all: bool = False
    """Whether the lane was last seen with nothing to copy."""


Suspicions = Mapping[LaneId, Suspicion]


class Arrangement(NamedTuple):
    """How suspects are placed."""

    alone: frozenset[LaneId] = frozenset()
    """The lanes that get a replicator to themselves."""
    held: frozenset[LaneId] = frozenset()
    """The lanes that do not run at the moment."""


def after_death(
    known: Suspicions, lanes: Mapping[LaneId, Lived], *, others_died: bool = False
) -> dict[LaneId, Suspicion]:
    """Return what counts against each lane after the death of a replicator that had exactly these lanes. `others_died`
    says whether a replicator without these lanes died within `TOGETHER_S` before."""
    halted = to_halt(known)
    found = {
        lane: each if lane in lanes or lane in halted else msgspec.structs.replace(each, alone=0)
        for lane, each in known.items()
    }
    for lane, lived in lanes.items():
        before = known.get(lane)
        if lived.ran_s < 0:
            continue  # it cannot have caused this death, which says nothing about the earlier ones
        if lived.has_all:
            found.pop(lane, None)
            continue
        is_quick = lived.ran_s < SURVIVED_S
        if before is None or not is_quick or lived.position > before.position:
            before = Suspicion(lived.position, 0)
        alone = before.alone + 1 if is_quick and len(lanes) == 1 and not others_died else 0
        found[lane] = Suspicion(before.position, before.deaths + 1, alone)
    return found


def is_cleared(suspicion: Suspicion, lived: Lived) -> bool:
    """Return whether a report on a running lane shows that the lane does not end its replicator."""
    return lived.has_all or lived.position > suspicion.position or lived.ran_s >= SURVIVED_S


def to_halt(known: Suspicions) -> frozenset[LaneId]:
    """Return the lanes that are to be halted."""
    return frozenset(lane for lane, each in known.items() if each.alone >= MOST_ALONE and each.deaths > MOST_ALONE)


def arrange(known: Suspicions, hosted: Collection[LaneId]) -> Arrangement:
    """Return how the suspects are placed, so that the next death shows more. `hosted` are the lanes that replicators
    have at the moment.

    If one lane has caused the most deaths in succession, it is one of those that were in all of them.
    """
    halted = to_halt(known)
    deaths = {lane: suspicion.deaths for lane, suspicion in known.items() if lane not in halted}
    most = max(deaths.values(), default=0)
    if most < _CHOICE:
        return Arrangement()
    suspects = sorted(lane for lane, count in deaths.items() if count == most)
    if len(suspects) == 1:
        others = frozenset(lane for lane, count in deaths.items() if _CHOICE <= count < most)
        return Arrangement(frozenset(suspects), others.difference(hosted))
    waiting = [lane for lane in suspects if lane not in hosted]
    free = max(0, (len(suspects) + 1) // 2 - (len(suspects) - len(waiting)))
    return Arrangement(held=frozenset(waiting[free:]))
