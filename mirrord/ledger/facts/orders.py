"""Operator commands as facts in the ledger."""

from mirrord.ledger.facts.base import Fact, Origin


class CopyingPaused(Fact, frozen=True, tag="copying_paused"):
    """The lanes of this name are drained and not hosted until `CopyingResumed` names the same.

    The fact takes effect unless the same pause is in force already. The names are those of the source, not ids: an
    added partition or a recreated topic is paused as well.
    """

    topic: str
    """Topic to pause. Empty means the whole flow."""
    partition: int
    """Partition to pause. -1 means all partitions, including future ones."""
    origin: Origin


class CopyingResumed(Fact, frozen=True, tag="copying_resumed"):
    """Revokes the `CopyingPaused` of the same name. The fact takes effect if there is one."""

    topic: str
    """The same as in `CopyingPaused`."""
    partition: int
    """The same as in `CopyingPaused`."""
    origin: Origin


class LanePinned(Fact, frozen=True, tag="lane_pinned"):
    """The partition is pinned to the replicator with this number.

    A pin is a preference: if no replicator has the number, or that replicator cannot take the lane, the lane is placed
    like any other.
    """

    topic: str
    """Name of the source topic."""
    partition: int
    """The partition."""
    slot: int
    """Number of the replicator."""
    origin: Origin


class LaneUnpinned(Fact, frozen=True, tag="lane_unpinned"):
    """Removes the pin of a partition, which is then placed like any other. The fact takes effect if it was pinned."""

    topic: str
    """Name of the source topic."""
    partition: int
    """The partition."""
    origin: Origin


class HostDrained(Fact, frozen=True, tag="host_drained"):
    """This replicator, but no replacement of it, gives its lanes to others and gets no more."""

    replicator: str
    """Name of the replicator."""
    origin: Origin


class HostRestored(Fact, frozen=True, tag="host_restored"):
    """Ends the drain of a replicator: an operator has resumed it, so that it gets lanes again, or its process has
    ended.

    The fact takes effect if the replicator was drained.
    """

    replicator: str
    """Name of the replicator."""
    origin: Origin


OrderFact = CopyingPaused | CopyingResumed | LanePinned | LaneUnpinned | HostDrained | HostRestored
