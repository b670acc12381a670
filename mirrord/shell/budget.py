"""How many bytes of records a replicator holds, and how fast it may take more: received frames until their last batch
is answered, with what Python needs for the batches in them, and what fetches that are under way may bring.

Who was refused comes before who asks later: a broker whose partitions catch up must not keep the others' from moving.
"""

import asyncio
import time
from collections.abc import Callable

from mirrord.shell.frames import Frame

BATCH_BYTES = 384
"""Of Python's objects for one batch. It is more than a batch has that holds a single small record."""


class Rate:
    """Lets so many bytes a second pass, in the long run exactly; after a pause a second's worth at once."""

    def __init__(self, bytes_per_s: int, now: Callable[[], float] = time.monotonic) -> None:
        self.bytes_per_s = float(bytes_per_s)
        self._now = now
        self._left = self.bytes_per_s
        self._at = now()

    def spend(self, size: int) -> None:
        """So many have passed. They may be more than there were left: then the next ones wait longer."""
        self._fill()
        self._left -= size

    def wait_s(self) -> float:
        """How long until more may pass; 0: now."""
        self._fill()
        return max(0.0, -self._left / self.bytes_per_s)

    def _fill(self) -> None:
        now = self._now()
        self._left = min(self.bytes_per_s, self._left + (now - self._at) * self.bytes_per_s)
        self._at = now


class Budget:
    """Counts bytes; whoever wants to fetch asks first."""

    def __init__(self, limit_bytes: int, rate_bytes_per_s: int | None = None) -> None:
        self.limit_bytes = limit_bytes
        self.held_bytes = 0
        """Of frames in use."""
        self.promised_bytes = 0
        """What requests under way may bring."""
        self.on_room: Callable[[], None] | None = None
        """Called when bytes come free after somebody was refused. It must not fetch at once: a lane may be deciding."""
        self._waiting: dict[object, None] = {}
        """Who was refused, in that order."""
        self._whole_rate = rate_bytes_per_s
        self._rate = None if rate_bytes_per_s is None else Rate(rate_bytes_per_s)
        self._timer: asyncio.TimerHandle | None = None

    @property
    def most_bytes(self) -> int:
        """What one request should bring at most: a second's worth."""
        return self.limit_bytes if self._rate is None else int(self._rate.bytes_per_s)

    def share(self, parts: int) -> None:
        """The flow's rate is divided among so many replicators."""
        if self._rate is not None and self._whole_rate is not None:
            self._rate.bytes_per_s = self._whole_rate / max(parts, 1)

    def promise(self, size: int, who: object) -> bool:
        """Whether a request for so many bytes may go out; if so they are counted until `settle`.

        Who is refused keeps its place until it asks again or says that it wants nothing any more (`leave`).
        """
        fits = self._fits(size)
        if next(iter(self._waiting), who) is not who:
            self._waiting[who] = None
            if fits:
                self._tell()  # the first one takes it, or leaves
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
        """It wants nothing now, or has got it."""
        if who in self._waiting:
            del self._waiting[who]
            self._tell()

    def settle(self, size: int) -> None:
        """The request that these bytes were promised to is over."""
        self.promised_bytes -= size
        self._tell()

    def hold(self, frame: Frame) -> "HeldFrame":
        """Count a frame's bytes for as long as anything refers to what this returns."""
        self.held_bytes += len(frame.buffer)
        if frame.pool is not None:
            # Buffers that are kept for later are memory as well.
            frame.pool.keep_within(max(0, self.limit_bytes - self.held_bytes))
        if self._rate is not None:
            self._rate.spend(frame.end - frame.start)
        return HeldFrame(frame, self)

    def give_back(self, size: int) -> None:
        """A frame is free again."""
        self.held_bytes -= size
        self._tell()

    def _tell(self) -> None:
        if self._waiting and self.on_room is not None:
            self.on_room()

    def _came_back(self) -> None:
        self._timer = None
        self._tell()


class HeldFrame:
    """A received frame in use. Its buffer goes back to the pool when the last batch in it is forgotten.

    That is why a batch refers to its frame, and why a produce request refers to its batches until it is answered: the
    transport may still be reading the bytes.
    """

    __slots__ = ("_budget", "beside_bytes", "frame")

    def __init__(self, frame: Frame, budget: Budget) -> None:
        self.frame = frame
        self.beside_bytes = 0
        """What is held for the batches in it, beside the buffer."""
        self._budget = budget

    def count(self, batches: int) -> None:
        """So many batches are in it, about."""
        size = batches * BATCH_BYTES
        self.beside_bytes += size
        self._budget.held_bytes += size

    def __del__(self) -> None:
        self._budget.give_back(len(self.frame.buffer) + self.beside_bytes)
        self.frame.release()
