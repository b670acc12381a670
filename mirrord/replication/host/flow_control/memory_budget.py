"""Limits how many bytes of records a replicator holds, and how many bytes per second it fetches.

A received frame (a response from a source broker) counts toward the limit until the target has answered the produce
requests for all batches in the frame. The Python objects for the batches count as well, and so do the bytes that
responses to fetch requests in flight may contain.

A caller that was refused is served before callers that ask later. Otherwise, the requests to a single broker, whose
partitions are catching up, could take all of the memory, and the partitions of other brokers would make no progress.
"""

import asyncio
import time
from collections.abc import Callable

from mirrord.kafka.client.receive_buffers import Frame

BATCH_BYTES = 384
"""Size of the Python objects for one batch, in bytes. This is more than the encoded size of a batch with a single small
record."""


class Rate:
    """A rate limit in bytes per second.

    In the long term, the average stays within the limit. After a pause, up to one second's worth of bytes may be
    received at once.
    """

    def __init__(self, bytes_per_s: int, now: Callable[[], float] = time.monotonic) -> None:
        self.bytes_per_s = float(bytes_per_s)
        self._now = now
        self._left = self.bytes_per_s
        self._at = now()

    def spend(self, size: int) -> None:
        """Count received bytes. If they exceed what the rate currently allows, later bytes have to wait longer."""
        self._fill()
        self._left -= size

    def wait_s(self) -> float:
        """Return the number of seconds until more bytes are allowed, or 0 if they are allowed now."""
        self._fill()
        return max(0.0, -self._left / self.bytes_per_s)

    def _fill(self) -> None:
        now = self._now()
        self._left = min(self.bytes_per_s, self._left + (now - self._at) * self.bytes_per_s)
        self._at = now


class MemoryBudget:
    """Counts the bytes that a replicator holds. A caller asks for permission (`promise`) before it fetches."""

    def __init__(self, limit_bytes: int, rate_bytes_per_s: int | None = None) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        """Bytes of the frames in use, and of the Python objects for their batches."""
        self.promised_bytes = 0
        """Bytes that responses to requests in flight may contain."""
        self.on_room: Callable[[], None] | None = None
        """Called when bytes become free after a caller was refused. The function must not fetch at once, because it may
        be called in the middle of a lane's step."""
        self._waiting: dict[object, None] = {}
        """The callers that were refused, in the order in which they will be served."""
        self._whole_rate = rate_bytes_per_s
        self._rate = None if rate_bytes_per_s is None else Rate(rate_bytes_per_s)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def most_bytes(self) -> int:
        """Largest number of bytes that one request should ask for: the number of bytes that the rate limit allows per
        second or, without a rate limit, the whole memory limit."""
        return self.limit_bytes if self._rate is None else int(self._rate.bytes_per_s)

    def share(self, parts: int) -> None:
        """Limit this replicator to the rate limit of the flow divided by `parts`, the number of replicators."""
        if self._rate is not None and self._whole_rate is not None:
            self._rate.bytes_per_s = self._whole_rate / max(parts, 1)

    def promise(self, size: int, who: object) -> bool:
        """Return whether the caller `who` may send a request for `size` bytes. If so, these bytes are counted until
        `settle` is called.

        A caller that is refused keeps its place in the queue until it asks again, or calls `leave` because it no longer
        wants to fetch.
        """
        fits = self._fits(size)
        if next(iter(self._waiting), who) is not who:
            self._waiting[who] = None
            if fits:
                self._tell()  # the first caller in the queue takes the bytes, or leaves
            return False
        if not fits:
            self._waiting[who] = None
            return False
        self.promised_bytes += size
        self.leave(who)
        return True

    def _fits(self, size: int) -> bool:
        taken = self.held_bytes + self.promised_bytes
        if taken and taken + size > self.limit_bytes:
            return False
        wait_s = 0.0 if self._rate is None else self._rate.wait_s()
        if wait_s > 0 and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(wait_s, self._came_back)
        return wait_s <= 0

    def leave(self, who: object) -> None:
        """Remove a caller from the queue, because it no longer wants to fetch or has received permission to do so."""
        if who in self._waiting:
            del self._waiting[who]
            self._tell()

    def settle(self, size: int) -> None:
        """Release the bytes that were promised to a request that has ended."""
        self.promised_bytes -= size
        self._tell()

    def hold(self, frame: Frame) -> "HeldFrame":
        """Count a frame's bytes against the limit for as long as the returned object is referenced."""
        self.held_bytes += len(frame.buffer)
        if frame.pool is not None:
            # Buffers that are kept for later use occupy memory as well.
            frame.pool.keep_within(max(0, self.limit_bytes - self.held_bytes))
        if self._rate is not None:
            self._rate.spend(frame.end - frame.start)
        return HeldFrame(frame, self)

    def give_back(self, size: int) -> None:
        """Stop counting the bytes of a frame that is no longer in use."""
        self.held_bytes -= size
        self._tell()

    def _tell(self) -> None:
        if self._waiting and self.on_room is not None:
            self.on_room()

    def _came_back(self) -> None:
        self._timer = None
        self._tell()


class HeldFrame:
    """A received frame in use. Its buffer returns to the pool when the last batch in it is released.

    To make this possible, a batch refers to its frame, and a produce request refers to its batches until it has been
    answered. Until then, the transport may still be reading the bytes of the buffer.
    """

    __slots__ = ("_budget", "beside_bytes", "frame")

    def __init__(self, frame: Frame, budget: MemoryBudget) -> None:
        self.frame = frame
        self.beside_bytes = 0
        """Size of the Python objects for the batches in the frame, in bytes. It does not include the buffer."""
        self._budget = budget

    def count(self, batches: int) -> None:
        """Add the memory for the Python objects of this number of batches to the budget. The number of batches may be
        approximate."""
        size = batches * BATCH_BYTES
        self.beside_bytes += size
        self._budget.held_bytes += size

    def __del__(self) -> None:
        self._budget.give_back(len(self.frame.buffer) + self.beside_bytes)
        self.frame.release()
