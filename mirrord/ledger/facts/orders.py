"""What people ask for, as the ledger holds it."""

from mirrord.ledger.facts.base import Fact, Origin


class CopyingPaused(Fact, frozen=True, tag="copying_paused"):
    """Lanes of this name are drained and hosted by nobody until `CopyingResumed` names the same. Binds unless it stands
    already.

    Names are the source's, not ids: a partition that is added, or a topic that is created again, is paused as well.
    """

    topic: str
    """Empty: all of the flow."""
    partition: int
    """-1: all partitions, those to come included."""
    origin: Origin


class CopyingResumed(Fact, frozen=True, tag="copying_resumed"):
    """Takes back the `CopyingPaused` of the same name; binds when there is one."""

    topic: str
    partition: int
    origin: Origin


class LanePinned(Fact, frozen=True, tag="lane_pinned"):
    """The partition is to be hosted by the replicator of this number, as long as there is one."""

    topic: str
    partition: int
    slot: int
    origin: Origin


class LaneUnpinned(Fact, frozen=True, tag="lane_unpinned"):
    """Placement is free again; binds when the lane was pinned."""

    topic: str
    partition: int
    origin: Origin


class HostDrained(Fact, frozen=True, tag="host_drained"):
    """This replicator, and no replacement of it, gives its lanes to others and gets none."""

    replicator: str
    origin: Origin


class HostRestored(Fact, frozen=True, tag="host_restored"):
    """The replicator may get lanes again, or has ended; binds when it was drained."""

    replicator: str
    origin: Origin


OrderFact = CopyingPaused | CopyingResumed | LanePinned | LaneUnpinned | HostDrained | HostRestored
