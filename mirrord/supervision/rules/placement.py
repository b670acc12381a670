"""How many replicators a flow gets, which of them hosts a new lane, and which lanes move to balance the load.

Placement is sticky: a hosted lane stays where it is unless the loads have drifted far apart. The load of a replicator
is the sum of its lanes' weights. The caller decides what a lane weighs: one each, or the bytes that it copies.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mirrord.config.schema import ReplicatorsConfig
from mirrord.model.names import LaneId

HYSTERESIS = 0.2
"""Loads that are measured in bytes are balanced only when their gap exceeds this share of their mean."""
_LARGEST = 0.9
"""Largest share of the gap that a moving lane may weigh. A heavier lane would only reverse the gap."""


def replicators_wanted(config: ReplicatorsConfig, lanes: int, cores: int) -> int:
    """Return how many replicators this number of lanes gets on this number of cores, not counting spares.

    "auto" means one per core. `partitions_per_replicator` is a hard limit: if it needs more replicators than `count`,
    there are more. There are never more replicators than lanes.
    """
    count = cores if config.count == "auto" else config.count
    if config.partitions_per_replicator != "auto":
        needed = -(-lanes // config.partitions_per_replicator)
        count = needed if config.count == "auto" else max(count, needed)
    return min(max(count, 1), lanes)


@dataclass(frozen=True)
class Weights:
    """The weight of each lane."""

    by_lane: Mapping[LaneId, float] = field(default_factory=dict[LaneId, float])
    """Weight by lane. If it is empty, all lanes weigh the same."""
    unknown: float = 1.0
    """Weight of a lane that is not listed."""

    def of(self, lane: LaneId) -> float:
        """Return a lane's weight, above 0."""
        return self.by_lane.get(lane, self.unknown)

    def sum(self, lanes: Iterable[LaneId]) -> float:
        """Return the load of a replicator with these lanes."""
        return sum(map(self.of, lanes))

    def apart(self, loads: Collection[float]) -> bool:
        """Whether the loads are uneven enough for lanes to move."""
        gap, mean = max(loads) - min(loads), sum(loads) / len(loads)
        return gap > HYSTERESIS * mean if self.by_lane else gap > 0


EQUAL = Weights()


@dataclass
class PlacementCandidate:
    """A replicator that may take more lanes."""

    name: str
    load: float
    lanes: int


def place(
    lanes: Iterable[LaneId], rooms: Sequence[PlacementCandidate], most: int | None, weights: Weights = EQUAL
) -> dict[LaneId, str]:
    """Choose a replicator for each lane while there is room; no replicator gets more than `most` lanes. Updates the
    rooms."""
    placed: dict[LaneId, str] = {}
    for lane in lanes:
        free = [room for room in rooms if most is None or room.lanes < most]
        if not free:
            break
        room = min(free, key=lambda each: (each.load, each.lanes, each.name))
        room.load += weights.of(lane)
        room.lanes += 1
        placed[lane] = room.name
    return placed


def moves(lanes: Collection[LaneId], gap: float, most: int, weights: Weights = EQUAL) -> list[LaneId]:
    """Return the lanes that should leave a replicator for another one whose load is lower by `gap`, heaviest first.

    Each move reduces the gap between the two by at least a tenth, so the moves come to an end.
    """
    leaving: list[LaneId] = []
    for lane in sorted(lanes, key=lambda each: (weights.of(each), each), reverse=True):
        if len(leaving) == most:
            break
        weight = weights.of(lane)
        if weight <= gap * _LARGEST:
            leaving.append(lane)
            gap -= 2 * weight
    return leaving
