"""Groups batches into produce requests.

For each partition in a request, a broker keeps only one batch and silently drops any others, so a request holds at most
one batch per lane. Batches of several lanes share a request. The batches of one lane are spread over consecutive
requests, in their original order.

If a lane has no batch in a waiting request, a small batch of this lane is added to the next request to be sent. The
batch thus overtakes waiting batches of lanes that are catching up, so a lane without lag does not have to wait for
them.
"""

from collections import deque
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")

REQUEST_BYTES = 1 << 20
"""Largest size of a request with several batches; a single batch may be larger."""

SMALL_SHARE = 16
"""A batch may overtake waiting batches if its size is at most `REQUEST_BYTES` divided by this number. Together, such
batches may at most double the maximum size of the request."""


class Packer(Generic[ItemT]):
    """Requests that are being filled, in the order in which they will be sent.

    Adding a batch takes one dictionary lookup and store, a few integer comparisons, and one append.
    """

    __slots__ = ("_first", "_last", "_limit", "_open", "_sizes", "_small", "waiting")

    def __init__(self, request_bytes: int = REQUEST_BYTES) -> None:
        self._limit = request_bytes
        self._small = request_bytes // SMALL_SHARE
        self.waiting: deque[list[ItemT]] = deque()
        """The batches of each waiting request. Other code may read this queue, but only `take` removes requests."""
        self._sizes: deque[int] = deque()
        self._first = 0
        """Number of the next request to be sent. Each new request gets the next higher number."""
        self._open = 0
        """Requests with a lower number than this accept no further batches, except small ones that overtake others."""
        self._last: dict[object, int] = {}
        """For each lane, the number of the latest request that holds one of its batches."""

    def __len__(self) -> int:
        """Return the number of waiting requests."""
        return len(self.waiting)

    def add(self, lane: object, size: int, item: ItemT) -> None:
        """Add a batch of `size` bytes after all other batches of its lane."""
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
            # A batch that does not fit closes the request, so that the request need not be examined again for later
            # batches.
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

    def take(self) -> list[ItemT]:
        """Remove the next request, and return its batches. Raises IndexError if no request is waiting."""
        request = self.waiting.popleft()
        self._sizes.popleft()
        self._first += 1
        self._open = max(self._open, self._first)
        return request

    def forget(self, lane: object) -> None:
        """Forget a lane for which no more batches will be added."""
        self._last.pop(lane, None)
