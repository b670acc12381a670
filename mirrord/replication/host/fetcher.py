"""Fetches source data over a few connections per broker, with many partitions in each request.

There is an idle and a hot connection to each broker, each with a fetch session (KIP-227) and at most one request in
flight. The idle connection fetches partitions without new records, with a long max wait. The hot connection fetches
partitions that have had records within the last second or have just been added. Its max wait is short, because a
partition that is added while a request is in flight has to wait for the response. Idle partitions are not in the hot
session, because a broker examines the whole session for every request. Other connections fetch records in remote
storage (`flow_control.remote_reads`) and oversized batches (`flow_control.oversized_fetch`). Lanes do not notice a lost
connection, because the fetch requests are sent again. Broker errors are passed to the lanes.
"""

import asyncio
import time
from collections.abc import Sequence
from functools import partial

from mirrord.kafka.client.cluster_metadata import ClusterView
from mirrord.kafka.client.connection import Connection
from mirrord.kafka.client.partition_queries import Asks
from mirrord.kafka.client.quota_throttle import Throttle
from mirrord.kafka.client.range_reader import SLOW_S
from mirrord.kafka.client.receive_buffers import Frame
from mirrord.kafka.client.reconnecting_link import Backoff, Link
from mirrord.kafka.client.request_pipeline import ConnectionLost
from mirrord.kafka.protocol.api_versions import FETCH, FETCH_BY_TOPIC_ID
from mirrord.kafka.protocol.errors import ErrorCode, WireError
from mirrord.kafka.protocol.fetch import FetchLimits, FetchPosition, FetchResponse, decode, encode
from mirrord.kafka.protocol.fetch_session import FetchSession
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.kafka.protocol.record_batch import HEADER_LENGTH, first_batch_bytes
from mirrord.model.errors import EnvironmentFault
from mirrord.replication.host.flow_control.fetch_size import (
    LEAST_LANE_BYTES,
    LEAST_REQUEST_BYTES,
    FetchRoom,
    FetchSize,
    lane_bytes,
)
from mirrord.replication.host.flow_control.memory_budget import MemoryBudget
from mirrord.replication.host.flow_control.oversized_fetch import OversizedFetch, passed, too_large
from mirrord.replication.host.flow_control.remote_reads import SHARE, LocalLogStarts, RemoteReads
from mirrord.replication.host.flow_control.retry_pause import RetryPause
from mirrord.replication.host.partition_fetch import OUT_OF_RANGE, PartitionFetch, find_bounds, prefer
from mirrord.replication.lane.signals import Chunk, FetchFrom

IDLE_WAIT_MS = 500
HOT_WAIT_MS = 5
LONGEST_HOT_WAIT_MS = 40
"""While no records arrive, the max wait of requests on the hot connection doubles up to this value."""
HOT_S = 1.0
"""How long, in seconds, a partition that has returned records is expected to return more."""
MOST_GROWTH = 4.0
NETWORK = int(ErrorCode.NETWORK_EXCEPTION)


class SourceFetcher:
    """Fetches source data for all lanes of one replicator."""

    def __init__(self, view: ClusterView, asks: Asks, budget: MemoryBudget, *, read_committed: bool) -> None:
        self.view = view
        self.asks = asks
        self.budget = budget
        self.read_committed = read_committed
        self._loop = asyncio.get_running_loop()
        self._feeds: dict[int, FetchFeed] = {}
        self._homeless: set[PartitionFetch] = set()
        """Partitions that are to be fetched but have no known leader."""
        self._search: asyncio.TimerHandle | None = None
        self._pause = Backoff(5.0)
        self.room = FetchRoom(budget, self._feeds)
        self.local_starts = LocalLogStarts(asks, self._place)
        self.apart = OversizedFetch(view.alias, self._place)
        view.on_change.append(self._find_homes)
        budget.on_room = self._room

    def close(self) -> None:
        """Close all fetch connections."""
        for feed in self._feeds.values():
            feed.close()

    def want(self, tap: PartitionFetch, wish: FetchFrom) -> None:
        """Fetch the next chunk of a partition. A newer fetch request for the partition replaces an older one."""
        self.stop(tap)
        tap.wish = wish
        if wish.round != tap.round:
            tap.round = wish.round
            tap.source_end = -1  # the partition was not fetched in the meantime
            tap.stable.forget()
        if wish.refresh:
            self.view.refresh()
        if wish.delay_s > 0:
            tap.timer = self._loop.call_later(wish.delay_s, self._place, tap)
        else:
            self._place(tap)

    def stop(self, tap: PartitionFetch) -> None:
        """Cancel the fetch request for a partition. If a response still arrives, it is discarded."""
        tap.wish = None
        self._homeless.discard(tap)
        if tap.timer is not None:
            tap.timer.cancel()
            tap.timer = None
        if tap.feed is not None:
            tap.feed.drop(tap)

    def ask_end(self, tap: PartitionFetch) -> None:
        """Ask for the high watermark of a partition that is not being fetched. The lane's lag is derived from it."""
        asked = time.monotonic()

        def answered(error: int, high_watermark: int, log_start: int) -> None:
            if tap.wish is None:
                tap.source_end = -1 if error else high_watermark
                if not error:
                    tap.source_start, tap.heard = log_start, asked

        self.asks.bounds(tap.partition, -1, answered)

    def _place(self, tap: PartitionFetch) -> None:
        tap.timer = None
        leader = self.view.leader(tap.partition)
        if leader is None:
            tap.source_end = -1
            self._homeless.add(tap)
            if self._search is None:
                self._search = self._loop.call_later(self._pause.next_s(), self._look_again)
            return
        if tap.wish is not None and not self.local_starts.locate(tap, tap.wish.position):
            return
        feed = self._feeds.get(leader.node)
        if feed is None:
            feed = self._feeds[leader.node] = FetchFeed(self, leader.node)
        if tap.wish is not None:
            size = feed.lane_bytes(tap)
            tap.position = FetchPosition(tap.wish.position, leader.epoch, tap.wish.last_epoch, size)
            feed.add(tap)

    def _look_again(self) -> None:
        self._search = None
        if self._homeless:
            self.view.refresh()

    def _find_homes(self) -> None:
        taps, self._homeless = self._homeless, set()
        for feed in self._feeds.values():
            for tap in feed.waiting_taps():
                leader = self.view.leader(tap.partition)
                if leader is None or leader.node != feed.node:
                    feed.drop(tap)
                    taps.add(tap)
        for tap in taps:
            self._place(tap)
        if not self._homeless:
            self._pause.reset()

    def _room(self) -> None:
        for feed in self._feeds.values():
            feed.pump_soon()


class FetchFeed:
    """Fetches partitions from one broker."""

    def __init__(self, source: SourceFetcher, node: int) -> None:
        self.source = source
        self.node = node
        self._loop = asyncio.get_running_loop()
        view = source.view
        self._idle = Channel(self, view.link(node, "fetch-idle"))
        self._hot = Channel(self, view.link(node, "fetch-hot"))
        self._hot_wait_ms = HOT_WAIT_MS
        self._new: set[PartitionFetch] = set()
        """Partitions whose fetch requests have not been sent yet."""
        self._cold: set[PartitionFetch] = set()
        """Partitions that the next request on the idle connection takes over from the hot connection."""
        self._remote = RemoteReads(self._remote_channel, source.budget.leave)
        self._alone = RemoteReads(self._alone_channel, source.budget.leave)
        self._scheduled = False

    def add(self, tap: PartitionFetch) -> None:
        """Include a partition in the next request."""
        tap.feed = self
        self._queue(tap)
        self.pump_soon()

    def drop(self, tap: PartitionFetch) -> None:
        """Stop fetching this partition."""
        tap.feed = None
        self._new.discard(tap)
        self._cold.discard(tap)
        self._hot.drop(tap)
        self._idle.drop(tap)
        self._remote.drop(tap)
        self._alone.drop(tap)

    def lane_bytes(self, tap: PartitionFetch) -> int:
        """Return how many bytes one fetch may return for the lane of this partition."""
        if tap.is_remote:
            return min(tap.lane_bytes, self.source.room.request_bytes // SHARE)
        asking = len(self._hot.taps) + len(self._new)
        return lane_bytes(tap, self._hot.request_bytes(), asking, is_far=self._hot.size.is_far)

    def heard(self, tap: PartitionFetch) -> float:
        """Return when the latest response for this partition arrived, or 0 if there has been no response."""
        for channel in self._channels:
            if channel.heard > tap.asked and channel.taps.get(channel.key(tap)) is tap:
                return channel.heard
        return 0.0

    def throttled_s(self, tap: PartitionFetch) -> float:
        """Return for how many more seconds the broker throttles fetches of this partition because of a quota."""
        asked = (channel for channel in self._channels if channel.taps.get(channel.key(tap)) is tap)
        return next(asked, self._hot).throttle.left_s

    def waiting_taps(self) -> list[PartitionFetch]:
        """Return the partitions whose fetch requests have not been sent yet."""
        return [*self._new, *self._remote.waiting, *self._alone.waiting]

    def close(self) -> None:
        """Close the connections to this broker."""
        for channel in self._channels:
            channel.link.close()
            self.source.budget.leave(channel)

    def pump_soon(self) -> None:
        """Call `pump` in the next iteration of the event loop, so that partitions added until then share a request."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._scheduled = False
        self.pump()

    def pump(self) -> None:
        """Send all fetch requests that can be sent now."""
        for channel, new in ((self._idle, self._cold), (self._hot, self._new)):
            if not channel.busy and not new and not channel.taps:
                self.source.budget.leave(channel)
        if not self._idle.busy and (self._cold or self._idle.taps) and self._idle.ask(self._cold, IDLE_WAIT_MS):
            # If a hot request in flight includes these partitions, its data for them is discarded.
            for tap in self._cold:
                self._hot.drop(tap)
            self._cold.clear()
        if not self._hot.busy and (self._new or self._hot.taps) and self._hot.ask(self._new, self._hot_wait_ms):
            self._new.clear()
        if self._remote.channels or self._remote.waiting:
            self._remote.pump(self.source.view.longest_wait_ms)
        if self._alone.channels or self._alone.waiting:
            self._alone.pump(HOT_WAIT_MS)

    def came_round(self, channel: "Channel", *, brought: bool) -> None:
        """Handle a response. Partitions that received records have already been removed from `channel`."""
        if channel is self._hot:
            self._hot_wait_ms = HOT_WAIT_MS if brought else min(2 * self._hot_wait_ms, LONGEST_HOT_WAIT_MS)
            now = self._loop.time()
            cold = [tap for tap in channel.taps.values() if tap.hot_until <= now]
            self._cold.update(cold)
            self.source.local_starts.suspect(cold, empty=True)
        elif channel in self._alone.channels:
            for tap in channel.take_all():
                if not channel.throttle.left_s:  # a throttled answer is always empty
                    passed(tap)
                self._queue(tap)
        elif channel is not self._idle:
            for tap in channel.take_all():
                self.source.local_starts.came_empty(tap)
        elif not brought:
            self.source.local_starts.suspect(channel.taps.values(), empty=True)
        self.pump()

    def failed(self, channel: "Channel", reason: str = "", *, blocks: bool = True) -> None:
        """Fetch a channel's partitions again, because its connection failed. `reason`: why a response was too large."""
        if reason:
            channel.pause.answered()
            self.pump_soon()
        else:
            channel.pause.begin(blocks=blocks)
        taps = channel.take_all()
        self._cold.difference_update(taps)
        for tap in taps:
            tap.source_end = -1
        for tap in self.source.apart.blame(taps, reason) if reason else taps:
            self._queue(tap)
        self.source.view.refresh()

    @property
    def _channels(self) -> "Sequence[Channel]":
        return (self._idle, self._hot, *self._remote.channels, *self._alone.channels)

    def _queue(self, tap: PartitionFetch) -> None:
        if tap.is_remote:
            self._remote.waiting[tap] = None
        elif tap.apart:
            self._alone.waiting[tap] = None
        else:
            self._new.add(tap)

    def _remote_channel(self, number: int) -> "Channel":
        return Channel(self, self.source.view.link(self.node, f"fetch-remote-{number}"), remote=True)

    def _alone_channel(self, number: int) -> "Channel":
        return Channel(self, self.source.view.link(self.node, f"fetch-alone-{number}"))


class Channel:
    """One connection to a broker, with its fetch session and at most one request in flight."""

    def __init__(self, feed: FetchFeed, link: Link, *, remote: bool = False) -> None:
        self.link = link
        self.connecting = False
        self.throttle = Throttle(feed.source.view.fetches)
        self.pause = RetryPause(feed.pump_soon)
        self.busy = False
        self.taps: dict[TopicAndPartition, PartitionFetch] = {}
        """The partitions of the request in flight, or of the next request."""
        self.heard = 0.0
        """Time of the latest response that was not throttled."""
        self.size = FetchSize()
        self._feed = feed
        self._source = feed.source
        self._session = FetchSession()
        self._connection: Connection | None = None
        self._version = 0
        self._by_id = True
        self._promised = self._asked_bytes = 0
        self._growth = 1.0
        """The ratio of the memory that a response takes to its size. With small batches, the ratio is well above 1."""
        self._asked = self._wait_s = 0.0
        self._remote = remote

    def request_bytes(self) -> int:
        """Return how many bytes the next request may ask for."""
        room = self._source.room
        usual = room.request_bytes // SHARE if self._remote else self.size.wanted(room.request_bytes, room.far_bytes)
        return max(min(usual, LEAST_LANE_BYTES), int(usual / self._growth))

    def key(self, tap: PartitionFetch) -> TopicAndPartition:
        """Return a partition's key in requests over this connection: topic id or topic name, and partition number."""
        partition = tap.partition
        return (partition.topic_id if self._by_id else partition.topic, partition.partition)

    def drop(self, tap: PartitionFetch) -> None:
        """Stop fetching this partition over this connection."""
        key = self.key(tap)
        if self.taps.get(key) is tap:
            del self.taps[key]

    def take_all(self) -> list[PartitionFetch]:
        """Remove all partitions from the channel, and return them."""
        taps = list(self.taps.values())
        self.taps.clear()
        return taps

    def ask(self, taps: set[PartitionFetch], wait_ms: int) -> bool:
        """Add the partitions in `taps` to the channel, and fetch all of its partitions in one request. Return False if
        there is no connection or no memory for the response."""
        connection = self.link.live
        if connection is None:
            self._source.budget.leave(self)
            if not self.pause.is_on:
                self._connect()
            return False
        if connection is not self._connection:
            self._adopt(connection)
        size = self.request_bytes()
        promised = int(size * self._growth)
        if not self._source.budget.promise(promised, self):
            return False
        self._promised, self._asked_bytes = promised, size
        self._asked = asked = time.monotonic()
        wanted = {key: tap.position for key, tap in self.taps.items()}
        # A broker fills its response in the order of the partitions in the request.
        urgent = [tap for tap in taps if tap.urgency.is_near]
        for tap in (*urgent, *taps.difference(urgent)) if urgent else taps:
            key = self.key(tap)
            self.taps[key] = tap
            tap.asked = asked
            if tap.source_end < 0 and self._session.knows(key):
                # A session does not repeat a high watermark that it has returned for the same position. However, if one
                # request omits the partition, the next request adds it to the session as a new partition.
                wanted.pop(key, None)
                wait_ms = 0
            else:
                wanted[key] = tap.position
        self.busy = True
        self._wait_s = wait_ms / 1000
        limits = FetchLimits(wait_ms, 1, size, self._source.read_committed)
        step = self._session.next_step(wanted)
        body = encode(self._version, limits, step)
        connection.pipe.request(FETCH, self._version, [body], len(body), partial(self._answered, connection))
        return True

    def _adopt(self, connection: Connection) -> None:
        taps = self.take_all()
        self._connection = connection
        self._version = connection.version(FETCH)
        self._by_id = self._version >= FETCH_BY_TOPIC_ID
        self._session = FetchSession()
        self.size = FetchSize()
        self.taps = {self.key(tap): tap for tap in taps}

    def _connect(self) -> None:
        self.busy = self.connecting = True
        task = asyncio.get_running_loop().create_task(self.link.get())
        task.add_done_callback(self._connected)

    def _connected(self, task: asyncio.Task[Connection]) -> None:
        self.busy = self.connecting = False
        if task.cancelled():
            return
        if isinstance(task.exception(), EnvironmentFault):
            self._feed.failed(self, blocks=False)
        else:
            task.result()
            self._feed.pump()

    def _answered(self, connection: Connection, end: Frame | ConnectionLost) -> None:
        self.busy = False
        self._source.budget.settle(self._promised)
        stats = self._source.view.fetches
        if isinstance(end, ConnectionLost):
            stats.failed(NETWORK, len(self.taps))
            self._feed.failed(self, too_large(end))
            return
        try:
            response = decode(self._version, end.reader())
        except WireError as error:
            connection.pipe.close(str(error), error)
            self._feed.failed(self)
            return
        self.pause.answered()
        size, now = end.end - end.start, time.monotonic()
        if now - self._asked > self._wait_s + SLOW_S:
            self._source.local_starts.suspect(self.taps.values(), empty=False)
        self.size.answered(self._asked_bytes, size, now - self._asked)
        brought = self._hand_out(response, end)
        self.throttle.record(response.throttle_ms, connection.pipe)
        if not response.throttle_ms:
            self.heard = now  # a throttled answer is always empty (KafkaApis.handleFetchRequest)
        if brought:
            stats.took(now - self._asked)
        self._feed.came_round(self, brought=brought)

    def _hand_out(self, response: FetchResponse, frame: Frame) -> bool:
        """Pass to each lane its part of the response, and return whether the response contained any records."""
        if not self._session.answered(response):
            frame.release()
            return False
        held = self._source.budget.hold(frame)
        buffer = frame.buffer
        now = time.monotonic()
        hot_until = asyncio.get_running_loop().time() + HOT_S
        brought = False
        for fetched in response.partitions:
            if fetched.error:
                self._source.view.fetches.failed(fetched.error)
            tap = self.taps.get((fetched.topic, fetched.partition))
            if tap is None or tap.wish is None:
                continue
            if fetched.error == OUT_OF_RANGE:
                self._feed.drop(tap)
                passed(tap)
                find_bounds(self._source.asks, tap, tap.wish)
                continue
            tap.source_end, tap.heard = -1 if fetched.error else fetched.high_watermark, now
            if not fetched.error:
                tap.source_start = fetched.log_start_offset
                tap.stable.note(fetched.last_stable_offset, fetched.high_watermark, now)
            prefer(self._source.view.alias, tap, fetched.preferred_read_replica)
            if fetched.records_end > fetched.records_start:
                tap.hot_until = hot_until
                tap.batch_bytes = first_batch_bytes(buffer, fetched.records_start)
                held.count((fetched.records_end - fetched.records_start) // max(tap.batch_bytes, HEADER_LENGTH))
                brought = True
            elif not fetched.error and fetched.diverging_end < 0 and fetched.high_watermark == tap.high_watermark:
                continue  # a response also includes partitions without news if they are new to the session
            wish, tap.wish = tap.wish, None
            passed(tap)
            tap.high_watermark = fetched.high_watermark
            self._feed.drop(tap)
            tap.deliver(
                Chunk(
                    wish.question,
                    fetched.error,
                    fetched.high_watermark,
                    fetched.last_stable_offset,
                    fetched.log_start_offset,
                    fetched.aborted,
                    buffer,
                    fetched.records_start,
                    fetched.records_end,
                    held,
                    fetched.diverging_epoch,
                    fetched.diverging_end,
                    tap.position.leader_epoch,
                )
            )
        if len(buffer) >= LEAST_REQUEST_BYTES:  # small responses do not show how much memory a large one takes
            self._growth = min(MOST_GROWTH, 1 + held.beside_bytes / len(buffer))
        return brought
