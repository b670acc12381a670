"""One lane's wish for source data, and what its source has said."""

import asyncio
import time
from collections.abc import Callable
from typing import Protocol

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.protocol.fetch import Position
from mirrord.replication.host.flow_control.fetch_priority import Urgency
from mirrord.replication.lane.assignment import SourceTold
from mirrord.replication.lane.signals import Chunk, FetchFrom
from mirrord.replication.lane.source.last_stable_offset import StableEnd


class Keeper(Protocol):
    """Who asks a broker for a tap's wish."""

    def drop(self, tap: "Tap") -> None:
        """Ask for it no more."""
        ...

    def heard(self, tap: "Tap") -> float:
        """When an answer last came to a request that the tap is part of; 0 while there is none."""
        ...

    def throttled_s(self, tap: "Tap") -> float:
        """For how long the broker returns nothing for it, because a quota is used up."""
        ...


class Tap:
    """One lane's wish for source data. `deliver` gets the chunk; it may wish for the next one at once."""

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
        """What a fetch may bring for this partition."""
        self.far_batches = far_batches
        """The number of batches that it may bring from a broker that is far away, if that is more."""
        self.batch_bytes = 0
        """Of a batch that was fetched lately."""
        self.deliver = deliver
        self.wish: FetchFrom | None = None
        self.position = Position(0)
        """The wish as it is sent to a broker."""
        self.preferred_replica = -1
        """The broker that the leader wants to be asked instead of itself (KIP-392); -1: none."""
        self.high_watermark = -1
        """As the lane has last received it."""
        self.source_end = -1
        """The newest word on the high watermark, for people; -1 when what was heard may be wrong by now."""
        self.source_start = -1
        """Where the log begins, by the newest word; for people."""
        self.stable = StableEnd()
        """Whether an open transaction holds the partition."""
        self.heard = self.asked = 0.0
        """When that was told to this very tap, and when it became part of a request; both monotonic."""
        self.round = -1
        """The lane's round at its last wish."""
        self.hot_until = 0.0
        """Until then more is expected soon, on the event loop's clock."""
        self.local_start = -1
        """What lies below is in remote storage; -1: the broker has to be asked."""
        self.is_remote = False
        """The wish is for what lies there."""
        self.look_after = 0.0
        """No question about it before then, on the event loop's clock."""
        self.apart = False
        """It is fetched alone: an answer for it, or for others beside it, was too large."""
        self.too_large = ""
        """What is said of its own answer; empty while it is not known to be too large."""
        self.urgency = Urgency()
        self.feed: Keeper | None = None
        """Where the wish is kept, if it is at a broker's."""
        self.timer: asyncio.TimerHandle | None = None

    @property
    def is_at_end(self) -> bool:
        """Its position is known to be the end of what can be fetched."""
        end = self.stable.offset if self.stable.offset >= 0 else self.source_end
        return 0 <= end <= self.position.offset

    def told(self) -> SourceTold:
        """What the source has said, for people. May be called from another thread."""
        feed = self.feed
        # A session's answer that does not name a partition says that nothing has changed there (KIP-227).
        heard = self.heard if feed is None else max(self.heard, feed.heard(self))
        self.urgency.note(self.source_start, self.position.offset, self.source_end)
        return SourceTold(self.source_end, max(0.0, time.monotonic() - heard), self.source_start)
