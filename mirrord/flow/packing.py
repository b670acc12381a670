"""Which batch goes into which produce request.

A broker keeps one batch per partition of a request and drops a second one in silence, so a request holds at most one
batch of a lane. Batches of several lanes share a request; a lane's batches are spread over requests that follow each
other, in their order.

A small batch of a lane of which nothing waits goes with the very next request, also past what lanes that catch up have
waiting: a live lane must not wait behind them.
"""

from collections import deque
from typing import Generic, TypeVar

Item = TypeVar("Item")

REQUEST_BYTES = 1 << 20
"""How large a request of several batches may grow; a single batch may be larger."""

SMALL_SHARE = 16
"""A batch of at most this part of a request may go ahead; all of them together may make the request twice as long."""


class Packer(Generic[Item]):
    """Requests that are being filled, in the order in which they will be sent.

    Per batch one dictionary look-up and store, a few integer comparisons and one append.
    """

    __slots__ = ("_first", "_last", "_limit", "_open", "_sizes", "_small", "waiting")

    def __init__(self, request_bytes: int = REQUEST_BYTES) -> None:
        self._limit = request_bytes
        self._small = request_bytes // SMALL_SHARE
        self.waiting: deque[list[Item]] = deque()
        """The requests' batches: to be looked at, and to be taken by `take` alone."""
        self._sizes: deque[int] = deque()
        self._first = 0
        """Number of the request that is sent next. Numbers ascend for ever."""
        self._open = 0
        """Requests below this number take no further batch."""
        self._last: dict[object, int] = {}
        """By lane: the number of the last request that holds a batch of it."""

    def __len__(self) -> int:
        """How many requests wait."""
        return len(self.waiting)

    def add(self, lane: object, size: int, item: Item) -> None:
        """Put a batch of this many bytes behind all other batches of its lane."""
        number = self._open
        last = self._last.get(lane, -1)
        first, sizes = self._first, self._sizes
        if last < first and size <= self._small and sizes and sizes[0] + size <= 2 * self._limit:
            self.waiting[0].append(item)
            sizes[0] += size
            self._last[lane] = first
            return
        if last >= number:
            number = last + 1
        at = number - first
        while at < len(sizes) and sizes[at] + size > self._limit:
            # What does not fit once closes a request for good: no later batch has to look at it again.
            if number == self._open:
                self._open = number + 1
            number += 1
            at += 1
        if at == len(sizes):
            self.waiting.append([item])
            sizes.append(size)
        else:
            self.waiting[at].append(item)
            sizes[at] += size
        self._last[lane] = number

    def take(self) -> list[Item]:
        """The next request's batches. Raises IndexError when none waits."""
        request = self.waiting.popleft()
        self._sizes.popleft()
        self._first += 1
        self._open = max(self._open, self._first)
        return request

    def forget(self, lane: object) -> None:
        """The lane is gone: nothing of it will be added again."""
        self._last.pop(lane, None)
