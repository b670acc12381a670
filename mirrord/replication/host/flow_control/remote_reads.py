"""Fetches records that are in a broker's remote storage (tiered storage, KIP-405).

A broker answers a fetch that needs remote storage once the remote storage has answered or a maximum wait has elapsed.
Before Kafka 3.8, this maximum is the max wait of the request. Since Kafka 3.8, it is the broker config
`remote.fetch.max.wait.ms`. All other partitions in the same request have to wait as well. Therefore, mirrord fetches
each partition that needs remote storage in a separate request, which has a long max wait and uses a connection that is
reserved for remote storage.
"""

import asyncio
from collections.abc import Callable, Iterable, Sized
from functools import partial
from typing import Generic, Protocol, TypeVar

from mirrord.kafka.client.partition_queries import Asks
from mirrord.kafka.client.range_reader import LOOK_S
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.replication.host.flow_control.retry_pause import RetryPause
from mirrord.replication.host.partition_fetch import PartitionFetch

CONNECTIONS = 4
"""Number of connections to one broker that fetch one partition per request. A broker handles one request per connection
at a time, so this many fetches can run in parallel."""
SHARE = 2
"""A request for remote records asks for the usual number of bytes divided by this number."""
LOOK_PATIENCE_S = 0.25
"""Maximum time in seconds for which a fetch is delayed while the broker is asked where the local part of the log
begins."""
EMPTY_PAUSE_S = 0.1
"""Pause in seconds after an empty response from remote storage."""
UNSUPPORTED = int(ErrorCode.UNSUPPORTED_VERSION)


class RemoteChannel(Protocol):
    """A connection with at most one request in progress."""

    busy: bool
    connecting: bool
    pause: RetryPause

    @property
    def taps(self) -> Sized:
        """The partitions that the request in progress asks for."""
        ...

    def ask(self, taps: set[PartitionFetch], wait_ms: int) -> bool:
        """Send a fetch request for these partitions. Return False if there is no memory for the response or no
        connection yet."""
        ...

    def drop(self, tap: PartitionFetch) -> None:
        """Ignore any data that arrives for this partition."""
        ...


AnyChannel = TypeVar("AnyChannel", bound=RemoteChannel)


class LocalLogStarts:
    """Determines where the local logs of partitions start. A fetch below the local log start needs records from remote
    storage."""

    def __init__(self, asks: Asks, place: Callable[[PartitionFetch], None]) -> None:
        """`place` passes the fetch request for a partition to the `FetchFeed` of the right broker."""
        self._asks = asks
        self._place = place
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[PartitionFetch, asyncio.TimerHandle] = {}
        self._has_remote = False
        """Whether any fetch has already needed remote storage."""

    def locate(self, tap: PartitionFetch, position: int) -> bool:
        """Set `tap.is_remote`, which says whether the record at `position` is in remote storage. Return False if the
        broker has to be asked first. In that case, `place` is called after the broker has answered.

        Until a fetch has needed remote storage, no fetch waits for the broker's answer, because most clusters have no
        remote storage.
        """
        if tap.is_remote and position >= tap.local_start:
            tap.local_start = -1  # local retention may have moved the start by now
        if tap.local_start < 0:
            if self._has_remote:
                tap.is_remote = False
                patience = self._loop.call_later(LOOK_PATIENCE_S, self._answered, tap, False, 0, 0)
                tap.timer = self._waiting[tap] = patience
                self._look(tap, empty=False)
                return False
            tap.local_start = 0
            self._look(tap, empty=False)
        tap.is_remote = position < tap.local_start
        self._has_remote = self._has_remote or tap.is_remote
        return True

    def came_empty(self, tap: PartitionFetch) -> None:
        """Handle an empty response to a fetch from remote storage: after a pause, ask the broker again where the local
        log starts, and fetch the partition again. The response is empty if remote storage returned nothing within the
        max wait."""
        tap.is_remote, tap.local_start = False, -1
        tap.timer = self._loop.call_later(EMPTY_PAUSE_S, self._place, tap)

    def suspect(self, taps: Iterable[PartitionFetch], *, empty: bool) -> None:
        """Ask the broker where the local logs of these partitions start, because their next records may be in remote
        storage.

        The broker is not asked about partitions that are known to be at the end of the log, or about which it was asked
        recently. `empty` says whether the partitions received no records.
        """
        now = self._loop.time()
        for tap in [tap for tap in taps if now >= tap.look_after and not tap.is_at_end and not tap.is_remote]:
            self._look(tap, empty=empty)

    def _look(self, tap: PartitionFetch, *, empty: bool) -> None:
        tap.look_after = self._loop.time() + LOOK_S
        self._asks.local_start(tap.partition, partial(self._answered, tap, empty))

    def _answered(self, tap: PartitionFetch, empty: bool, error: int, local_start: int) -> None:
        wish, timer = tap.wish, self._waiting.pop(tap, None)
        if not error:
            tap.local_start = max(local_start, 0)
        elif error == UNSUPPORTED and empty and wish is not None:
            tap.local_start = wish.position + 1  # the broker cannot say, so try remote storage for one fetch
        else:
            tap.local_start = max(tap.local_start, 0)
        if wish is None:
            return
        if timer is not None and tap.timer is timer:
            timer.cancel()
            self._place(tap)
        elif tap.feed is not None and not tap.is_remote and wish.position < tap.local_start:
            tap.feed.drop(tap)
            self._place(tap)


class RemoteReads(Generic[AnyChannel]):
    """Fetches partitions of one broker over separate connections, one partition in each request."""

    def __init__(self, connect: Callable[[int], AnyChannel], leave: Callable[[AnyChannel], None]) -> None:
        """`connect` creates the connection with a given number. `leave` removes a connection from the queue for memory
        (`MemoryBudget.leave`)."""
        self.channels: list[AnyChannel] = []
        self.waiting: dict[PartitionFetch, None] = {}
        """Partitions whose fetch requests have not been sent yet, oldest first."""
        self._connect = connect
        self._leave = leave

    def drop(self, tap: PartitionFetch) -> None:
        """Stop fetching this partition."""
        self.waiting.pop(tap, None)
        for channel in self.channels:
            channel.drop(tap)

    def pump(self, wait_ms: int) -> None:
        """Send all requests that can be sent now."""
        free = [
            channel for channel in self.channels if not channel.busy and not channel.taps and not channel.pause.is_on
        ]
        connecting = sum(channel.connecting for channel in self.channels)
        while len(self.waiting) > connecting:
            if not free:
                if len(self.channels) == CONNECTIONS:
                    return
                free.append(self._connect(len(self.channels)))
                self.channels.append(free[0])
            channel, tap = free.pop(0), next(iter(self.waiting))
            if channel.ask({tap}, wait_ms):
                del self.waiting[tap]
            elif channel.busy:
                connecting += 1
            else:
                # There is no memory for the response. Only one connection waits for it: if another one were the first
                # in the queue, this one would be refused again and again, and the other one would not be asked.
                for other in free:
                    self._leave(other)
                return
        for channel in free:
            self._leave(channel)
