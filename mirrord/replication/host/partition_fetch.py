"""Holds one lane's request for source records, and the offsets that the source last reported for its partition.

The functions in this module handle two kinds of responses that contain no records: those in which the leader redirects
the client to another replica, and those that report that the fetch position is out of range.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

import structlog

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.partition_queries import Asks
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.fetch import FetchPosition
from mirrord.replication.host.flow_control.fetch_priority import FetchPriority
from mirrord.replication.lane.assignment import SourceBounds
from mirrord.replication.lane.signals import Chunk, FetchFrom
from mirrord.replication.lane.source.last_stable_offset import StableEnd

OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)
NOT_AVAILABLE = int(ErrorCode.OFFSET_NOT_AVAILABLE)

log = structlog.get_logger()


class Keeper(Protocol):
    """The object that sends a lane's fetch request to a broker. Implemented by `FetchFeed`."""

    def drop(self, tap: "PartitionFetch") -> None:
        """Stop fetching this partition."""
        ...

    def heard(self, tap: "PartitionFetch") -> float:
        """Return when the latest response for this partition arrived, or 0 if there has been no response."""
        ...

    def throttled_s(self, tap: "PartitionFetch") -> float:
        """Return for how many more seconds the broker throttles fetches of this partition because of a quota."""
        ...


class PartitionFetch:
    """One lane's request for source data. `deliver` receives the chunk, and may request the next one immediately."""

    __slots__ = (
        "apart",
        "asked",
        "batch_bytes",
        "deliver",
        "far_batches",
        "feed",
        "heard",
        "high_watermark",
        "hot_until",
        "is_remote",
        "lane_bytes",
        "local_start",
        "look_after",
        "partition",
        "position",
        "preferred_replica",
        "round",
        "source_end",
        "source_start",
        "stable",
        "timer",
        "too_large",
        "urgency",
        "wish",
    )

    def __init__(
        self, partition: PartitionId, lane_bytes: int, deliver: Callable[[Chunk], None], *, far_batches: int = 0
    ) -> None:
        self.partition = partition
        self.lane_bytes = lane_bytes
        """Number of bytes that a fetch may return for this partition."""
        self.far_batches = far_batches
        """Maximum number of batches that a fetch from a distant broker may return. Their total size may exceed
        `lane_bytes`."""
        self.batch_bytes = 0
        """Size in bytes of the first batch in the latest response that contained records. 0 if there has been no such
        response."""
        self.deliver = deliver
        self.wish: FetchFrom | None = None
        self.position = FetchPosition(0)
        """The offset and the leader epochs that the fetch request contains for this partition."""
        self.preferred_replica = -1
        """The replica to which the leader redirects this client (KIP-392), or -1 if there is none."""
        self.high_watermark = -1
        """The high watermark in the latest response that was delivered to the lane."""
        self.source_end = -1
        """The latest known high watermark, which the status shows. -1 if it is unknown or may be outdated because of an
        error."""
        self.source_start = -1
        """The latest known log start offset, which is used to forecast when the source will delete records."""
        self.stable = StableEnd()
        """The last stable offset, which shows whether an open transaction blocks the partition."""
        self.heard = self.asked = 0.0
        """Two times on the monotonic clock. `heard`: when a response last contained this partition. `asked`: when the
        partition was last added to a request."""
        self.round = -1
        """The lane's round at the time of its latest fetch request."""
        self.hot_until = 0.0
        """The time until which more records are expected, because the partition has just returned some. It is a time on
        the event loop's clock."""
        self.local_start = -1
        """Records below this offset are in remote storage. -1 if the broker has to be asked first."""
        self.is_remote = False
        """Whether the fetch request is for records in remote storage."""
        self.look_after = 0.0
        """The time before which the broker is not asked about remote storage again. It is a time on the event loop's
        clock."""
        self.apart = False
        """Whether the partition is fetched separately, because a response that included the partition was too large."""
        self.too_large = ""
        """The error message if a response for this partition alone was too large. Otherwise empty."""
        self.urgency = FetchPriority()
        self.feed: Keeper | None = None
        """The object that currently sends this fetch request to a broker. None while the request is not being sent."""
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_at_end(self) -> bool:
        """Whether the fetch position is known to be at the end of the records that can be fetched."""
        end = self.stable.offset if self.stable.offset >= 0 else self.source_end
        return 0 <= end <= self.position.offset

    def last_bounds(self) -> SourceBounds:
        """Return the log start offset and the high watermark that the source last reported for the partition. They are
        part of the lane's report. Another thread may call this method."""
        feed = self.feed
        # If a response in a fetch session omits a partition, nothing has changed in this partition (KIP-227).
        heard = self.heard if feed is None else max(self.heard, feed.heard(self))
        self.urgency.note(self.source_start, self.position.offset, self.source_end)
        return SourceBounds(self.source_end, max(0.0, time.monotonic() - heard), self.source_start)


def prefer(cluster: str, tap: PartitionFetch, replica: int) -> None:
    """Record that the leader redirects this client to another replica and returns no records itself.

    A `replica` of -1 means that the leader no longer redirects this client.
    """
    if replica == tap.preferred_replica:
        return
    if replica >= 0:
        where = f"{tap.partition.topic}-{tap.partition.partition}"
        log.warning("fetch_redirected", cluster=cluster, partition=where, replica=replica)
    tap.preferred_replica = replica


def find_bounds(asks: Asks, tap: PartitionFetch, wish: FetchFrom) -> None:
    """Handle a fetch position that is out of range: ask the leader for the log start offset and the high watermark, and
    deliver the answer to the lane as a chunk without records."""

    def answered(error: int, high_watermark: int, log_start: int) -> None:
        if tap.wish is not wish:
            return
        if not error and log_start <= wish.position <= high_watermark:
            error = NOT_AVAILABLE  # the leader lagged for a moment
        empty = bytearray()
        tap.deliver(Chunk(wish.question, error or OUT_OF_RANGE, high_watermark, -1, log_start, (), empty, 0, 0))

    asks.bounds(tap.partition, -1, answered)
