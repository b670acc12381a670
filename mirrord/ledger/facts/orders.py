"""Facts that record operator commands."""

from mirrord.ledger.facts.base import Fact, Origin


class CopyingPaused(Fact, frozen=True, tag="copying_paused"):
    """An operator has paused a flow, a topic or a partition. Its lanes are drained, and no replicator hosts them until
    a `CopyingResumed` names the same flow, topic or partition. If the author is "policy", mirrord has halted a
    partition whose lane ended its replicators.

    The fact takes effect unless exactly the same pause is already in force. The topic is identified by its name on the
    source, not by its id, so the pause also applies to a recreated topic and to partitions that are added later.
    """

    topic: str
    """Source topic to pause. Empty means the whole flow."""
    partition: int
    """Partition to pause. -1 means all partitions, including future ones."""
    origin: Origin


class CopyingResumed(Fact, frozen=True, tag="copying_resumed"):
    """An operator has lifted a pause (`CopyingPaused`). The fact takes effect if exactly this flow, topic or partition
    is paused."""

    topic: str
    """Source topic to resume. Empty means the whole flow."""
    partition: int
    """Partition to resume. -1 means the whole topic or flow."""
    origin: Origin


class LanePinned(Fact, frozen=True, tag="lane_pinned"):
    """An operator has pinned a partition to the replicator with the number `slot`.

    A pin is a preference. If no replicator has this number, or if the replicator with this number cannot take the lane,
    the lane is placed like any other.
    """

    topic: str
    """Name of the source topic."""
    partition: int
    """Number of the partition."""
    slot: int
    """Number of the replicator."""
    origin: Origin


class LaneUnpinned(Fact, frozen=True, tag="lane_unpinned"):
    """An operator has removed the pin of a partition. The partition is then placed like any other. The fact takes
    effect if the partition was pinned."""

    topic: str
    """Name of the source topic."""
    partition: int
    """Number of the partition."""
    origin: Origin


class HostDrained(Fact, frozen=True, tag="host_drained"):
    """An operator has drained a replicator: its lanes move to other replicators, and it gets no new lanes. A replicator
    that replaces it is not drained."""

    replicator: str
    """Name of the replicator."""
    origin: Origin


class HostRestored(Fact, frozen=True, tag="host_restored"):
    """The drain of a replicator has ended. Either an operator has resumed the replicator, so that it gets lanes again,
    or the replicator's process has exited.

    The fact takes effect if an operator had drained the replicator (`HostDrained`).
    """

    replicator: str
    """Name of the replicator."""
    origin: Origin


OrderFact = CopyingPaused | CopyingResumed | LanePinned | LaneUnpinned | HostDrained | HostRestored
