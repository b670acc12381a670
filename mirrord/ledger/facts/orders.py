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
    """The partition must be hosted by the replicator of this number, if there is one."""

    topic: str
    """Name of the source topic."""
    partition: int
    """The partition."""
    slot: int
    """Number of the replicator."""
    origin: Origin


class LaneUnpinned(Fact, frozen=True, tag="lane_unpinned"):
    """The partition may be placed freely again. The fact takes effect if the lane was pinned."""

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
    """The replicator may get lanes again, or has ended. The fact takes effect if it was drained."""

    replicator: str
    """Name of the replicator."""
    origin: Origin


OrderFact = CopyingPaused | CopyingResumed | LanePinned | LaneUnpinned | HostDrained | HostRestored
