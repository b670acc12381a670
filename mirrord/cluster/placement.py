"""How many replicators a flow gets, and which of them hosts a new lane.

Sticky: a lane that is hosted stays where it is. A new lane goes to the replicator that hosts the fewest.
"""

from collections.abc import Iterable, Mapping

from mirrord.model.config import ReplicatorsConfig
from mirrord.model.names import LaneId


def replicators_wanted(config: ReplicatorsConfig, lanes: int, cores: int) -> int:
    """How many replicators so many lanes get, on so many cores.

    "auto" is one per core. `partitions_per_replicator` is a limit that holds: where it asks for more replicators than
    `count`, there are more. Never more than lanes.
    """
    count = cores if config.count == "auto" else config.count
    if config.partitions_per_replicator != "auto":
        needed = -(-lanes // config.partitions_per_replicator)
        count = needed if config.count == "auto" else max(count, needed)
    return min(max(count, 1), lanes)


def place(lanes: Iterable[LaneId], loads: Mapping[str, int], most: int | None) -> dict[LaneId, str]:
    """A host for each lane, as far as there is room: `loads` is how many lanes a host has, `most` how many it may."""
    load = dict(loads)
    placed: dict[LaneId, str] = {}
    for lane in lanes:
        host = min(load, key=lambda name: (load[name], name), default=None)
        if host is None or (most is not None and load[host] >= most):
            break
        load[host] += 1
        placed[lane] = host
    return placed
