"""Determines how many replicators a flow gets, which replicator hosts a new lane, and which lanes move to balance the
load.

A hosted lane keeps its replicator unless the loads of the replicators differ too much. The load of a replicator is the
sum of the weights of its lanes. The caller sets the weights: either all lanes have the same weight, or a lane's weight
is its number of bytes per second.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mirrord.config.schema import ReplicatorsConfig
from mirrord.model.names import LaneId

HYSTERESIS = 0.2
"""Lanes move only if the difference between the highest and the lowest load exceeds this share of the mean load. The
limit applies if loads are measured in bytes."""
_LARGEST = 0.9
"""Maximum weight of a lane that moves, as a share of the difference between two loads. A heavier lane would only
reverse the difference."""


def replicators_wanted(config: ReplicatorsConfig, lanes: int, cores: int) -> int:
    """Return the number of replicators for a flow with this number of lanes on this number of cores. Spare replicators
    are not included.

    If `count` is a number, it applies unless `partitions_per_replicator` requires more replicators. If only `count` is
    "auto", there are as many replicators as `partitions_per_replicator` requires. If both are "auto", there is one
    replicator per core. There are never more replicators than lanes.
    """
    count = cores if config.count == "auto" else config.count
    if config.partitions_per_replicator != "auto":
        needed = -(-lanes // config.partitions_per_replicator)
        count = needed if config.count == "auto" else max(count, needed)
    return min(max(count, 1), lanes)


@dataclass(frozen=True)
class Weights:
    """The weights of lanes, from which the loads of replicators are computed."""

    by_lane: Mapping[LaneId, float] = field(default_factory=dict[LaneId, float])
    """The weight of each known lane. If it is empty, all lanes have the same weight."""
    unknown: float = 1.0
    """The weight of a lane that is missing from `by_lane`, unless `by_lane` is empty."""

    def of(self, lane: LaneId) -> float:
        """Return a lane's weight, which is greater than 0. A replicator's load is the sum of its lanes' weights."""
        return self.by_lane.get(lane, self.unknown)

    def sum(self, lanes: Iterable[LaneId]) -> float:
        """Return the load of a replicator with these lanes."""
        return sum(map(self.of, lanes))

    def apart(self, loads: Collection[float]) -> bool:
        """Return whether the loads differ so much that lanes should move."""
        gap, mean = max(loads) - min(loads), sum(loads) / len(loads)
        return gap > HYSTERESIS * mean if self.by_lane else gap > 0


EQUAL = Weights()


@dataclass
class PlacementCandidate:
    """A replicator that may get more lanes, with its load and its number of lanes."""

    name: str
    load: float
    lanes: int


def place(
    lanes: Iterable[LaneId], rooms: Sequence[PlacementCandidate], most: int | None, weights: Weights = EQUAL
) -> dict[LaneId, str]:
    """Choose a replicator in `rooms` for each of the lanes, until every replicator in `rooms` has `most` lanes. Add
    each placed lane to the load and the number of lanes of its replicator."""
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
    """Return at most `most` lanes that should move to a replicator with a lower load, the heaviest first. `gap` is the
    difference between the two loads.

    Each move reduces this difference, so that repeated calls do not move lanes back and forth.
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
