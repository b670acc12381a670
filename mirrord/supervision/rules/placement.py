"""How many replicators a flow gets, which of them hosts a new lane, and which lanes move to even out the load.

Sticky: a lane that is hosted stays where it is, unless the loads have come far apart. A load is the sum of its lanes'
weights; what a lane weighs is for the caller to say: one each, or what it carries.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mirrord.config.schema import ReplicatorsConfig
from mirrord.model.names import LaneId

HYSTERESIS = 0.2
"""Loads that carry bytes are evened out only when they are apart by more than this share of their mean."""
_LARGEST = 0.9
"""Of the gap: a heavier lane would only carry the gap over to the other side."""


def replicators_wanted(config: ReplicatorsConfig, lanes: int, cores: int) -> int:
    """How many replicators so many lanes get, on so many cores, without spares.

    "auto" is one per core. `partitions_per_replicator` is a limit that holds: where it asks for more replicators than
    `count`, there are more. Never more than lanes.
    """
    count = cores if config.count == "auto" else config.count
    if config.partitions_per_replicator != "auto":
        needed = -(-lanes // config.partitions_per_replicator)
        count = needed if config.count == "auto" else max(count, needed)
    return min(max(count, 1), lanes)


@dataclass(frozen=True)
class Weights:
    """What each lane weighs."""

    by_lane: Mapping[LaneId, float] = field(default_factory=dict[LaneId, float])
    """Empty: all weigh the same."""
    unknown: float = 1.0
    """What a lane weighs that is not told of."""

    def of(self, lane: LaneId) -> float:
        """A lane's weight, above 0."""
        return self.by_lane.get(lane, self.unknown)

    def sum(self, lanes: Iterable[LaneId]) -> float:
        """The load of a host with these lanes."""
        return sum(map(self.of, lanes))

    def apart(self, loads: Collection[float]) -> bool:
        """Whether the loads are so far apart that lanes should move."""
        gap, mean = max(loads) - min(loads), sum(loads) / len(loads)
        return gap > HYSTERESIS * mean if self.by_lane else gap > 0


EQUAL = Weights()


@dataclass
class Room:
    """A host that may take more lanes."""

    name: str
    load: float
    lanes: int


def place(
    lanes: Iterable[LaneId], rooms: Sequence[Room], most: int | None, weights: Weights = EQUAL
) -> dict[LaneId, str]:
    """A host for each lane, as far as there is room: none gets more than `most` lanes. The rooms are filled."""
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
    """Which of a host's lanes should leave it for another one whose load is less by `gap`, the heaviest first.

    Each brings the two closer together by a tenth at least, so that there is an end of moving.
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
