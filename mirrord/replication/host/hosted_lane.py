"""A lane together with the state that its replicator keeps for it."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from msgspec.structs import replace

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.ledger.facts.core import Progress
from mirrord.replication.host.flow_control.fetch_size import LEAST_LANE_BYTES
from mirrord.replication.host.flow_control.oversized_fetch import RETRY_S
from mirrord.replication.host.lane_rebuilds import LaneRebuilds
from mirrord.replication.host.move_trace import MoveTrace
from mirrord.replication.host.partition_fetch import PartitionFetch
from mirrord.replication.host.producer import TargetOutlet
from mirrord.replication.lane.assignment import LaneAssignment, Parting
from mirrord.replication.lane.limits import FAR, NEAR, Limits
from mirrord.replication.lane.signals import Input, LaneRecord
from mirrord.replication.lane.state import Lane

LANE_FETCH_BYTES = 4 << 20
"""Largest amount of data that one fetch returns for one lane, in bytes."""
FAR_BATCHES = 4_096
"""Largest number of batches in one fetch from a distant broker. Such a fetch may return more bytes than
`LANE_FETCH_BYTES`. The number of batches is limited because the lane processes all of them without a pause, which takes
50 ms for this many batches.
"""
SHAPED_FETCH_BYTES = LEAST_LANE_BYTES
"""Largest amount of data that one fetch returns for a lane with record policies, in bytes. All fetched records are
decoded and passed to the policies, so a fetch with many small records takes many turns of the event loop."""


def limits_of(in_flight_bytes: int, request_timeout_s: float) -> Limits:
    """Return the limits of one lane, derived from the replicator's limit on bytes in flight.

    A lane gets only a part of the replicator's limit, so that several lanes can make progress at the same time.
    """
    held = max(1 << 20, min(NEAR.bytes, in_flight_bytes // 8))
    near, far = replace(NEAR, bytes=held), replace(FAR, bytes=min(FAR.bytes, 3 * held))
    return Limits(near=near, far=far, request_timeout_s=request_timeout_s)


Begin = Callable[["HostedLane", Coroutine[Any, Any, None]], None]
"""A function that runs a coroutine for a lane as a background task. The task is cancelled when the `LaneHost` closes.
If the coroutine fails, the lane halts."""


class HostedLane:
    """A lane together with the state that its `LaneHost` keeps for it."""

    def __init__(
        self,
        tell: "Callable[[HostedLane, Input], None]",
        assignment: LaneAssignment,
        lane: Lane,
        replicator: str,
        rebuilds: LaneRebuilds,
        *,
        is_shaped: bool,
    ) -> None:
        """`is_shaped` says whether record policies filter or change the lane's records."""
        self.assignment = assignment
        self.lane = lane
        self.rebuilds = rebuilds
        self.tell: Callable[[Input], None] = partial(tell, self)
        self.replicator = replicator
        """The replicator's name and a number: `<name>/3`, for example. The number increases with each lane that is
        assigned to the replicator, so it is different if the same lane returns later."""
        key = assignment.key
        self.source = PartitionId(assignment.source_topic, key.source_topic_id, key.partition)
        self.target = PartitionId(assignment.target_topic, key.target_topic_id, key.partition)
        fetch_bytes, far_batches = (SHAPED_FETCH_BYTES, 0) if is_shaped else (LANE_FETCH_BYTES, FAR_BATCHES)
        self.tap = PartitionFetch(self.source, fetch_bytes, self.tell, far_batches=far_batches)
        self.outlet: TargetOutlet | None = None
        self.outlet_round = -1
        self.connections = 0
        self.started = self.forgotten = False
        self.ledger_trouble = ""
        """Why the latest append to the ledger failed. Empty if it succeeded."""
        self.saved: Progress | None = None
        """The progress record that the state topic is known to hold."""
        self.unread_note = ""
        """A line for the status if records that must be compared cannot be read. Otherwise empty."""
        self.touched = True  # whether the progress record may differ from the saved one
        self.journey = MoveTrace(lane.id) if assignment.former == "left" else None
        self.left: asyncio.Future[Parting] = asyncio.get_running_loop().create_future()
        """A future that is completed as soon as this replicator no longer runs the lane. Its result says whether the
        lane was drained cleanly."""

    def hear(self, signal: Input | None) -> None:
        """Pass news from the ledger to the lane if it has started."""
        if signal is not None and self.started:
            self.tell(signal)

    def end(self) -> None:
        """Ignore all further signals. The lane and everything that was kept for it can then be freed without the
        garbage collector, because nothing in them refers to this object any more."""
        self.tell = self.tap.deliver = _ignore

    @property
    def record(self) -> LaneRecord:
        """The lane's state according to the ledger."""
        if self.lane.record is None:
            raise RuntimeError("a lane that the ledger does not know asks what its logs contain")
        return self.lane.record

    def note(self, source: str, target: str) -> str:
        """Return why the lane is waiting, or an empty string if it is not. Another thread may call this method.

        `source` and `target` are the aliases of the clusters. Possible reasons are: the ledger accepts nothing, a batch
        is too large to be fetched, a quota of a cluster is used up, or the source directs consumers to another replica.
        """
        if (replica := self.tap.preferred_replica) >= 0:
            return (
                f"the leader at {source} sends consumers to replica {replica} and does not return records itself: "
                "replica.selector.class of its brokers must choose the leader for clients without a rack"
            )
        if self.tap.too_large:
            return (
                f"the batch at offset {self.tap.position.offset} of {source} is too large to be fetched, and the fetch "
                f"is retried every {RETRY_S:g} s: {self.tap.too_large}"
            )
        outlet, feed = self.outlet, self.tap.feed
        if self.ledger_trouble:
            return f"the ledger currently accepts nothing, and the append is retried: {self.ledger_trouble}"
        if outlet is not None and self.lane.buffered_bytes and (wait_s := outlet.throttle.left_s):
            return f"a quota of {target} is used up: its broker accepts nothing for {wait_s:.1f} s"
        if feed is not None and (wait_s := feed.throttled_s(self.tap)):
            return f"a quota of {source} is used up: its broker returns nothing for {wait_s:.1f} s"
        return ""


def _ignore(_: Input) -> None:
    pass
