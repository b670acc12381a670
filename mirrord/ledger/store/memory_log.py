"""The two topics of a ledger in memory, for tests. Many stores share one `MemoryLedger`, and tests inject faults."""

import asyncio
import threading
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum

from mirrord.ledger.errors import LedgerUnavailable, went_back
from mirrord.ledger.store.log_interface import LedgerRow, LogEnds, LogTrimmed, StateRow, signed_rows
from mirrord.ledger.store.seal import NO_SEAL, Seal
from mirrord.model.names import TopicId

TOPIC = "memory.ledger"
STATE_TOPIC = "memory.state"
TOPIC_ID = TopicId("memory-ledger")


class Fault(Enum):
    """A kind of fault that a test injects into one request."""

    FAILS = "it has no effect, and fails"
    ANSWER_LOST = "it takes effect, and fails"
    LATE = "it fails, and takes effect when `MemoryLedger.release` is called"
    HELD = "it goes well, but only when `MemoryLedger.release` is called"


@dataclass
class MemoryLedger:
    """The ledger topic and the state topic of one flow, as brokers would store them, and the faults to inject."""

    topic_id: TopicId = TOPIC_ID
    start: int = 0
    entries: list[bytes | None] = field(default_factory=list[bytes | None])
    """The entries of the ledger topic. The first one is at offset `start`."""
    rows: list[StateRow | None] = field(default_factory=list[StateRow | None])
    """The records of the state topic, by offset. None means that compaction has removed the record."""
    epoch_starts: dict[int, int] = field(default_factory=lambda: {0: 0})
    append_faults: deque[Fault | None] = field(default_factory=deque[Fault | None])
    """The faults for the next appends, with one element for each append. None means that the append succeeds."""
    save_faults: deque[Fault | None] = field(default_factory=deque[Fault | None])
    delete_faults: deque[Fault | None] = field(default_factory=deque[Fault | None])
    is_reachable: bool = True
    version: int = 0
    """A number that increases with every change to the ledger."""
    _waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = field(
        default_factory=list[tuple[asyncio.AbstractEventLoop, asyncio.Event]]
    )
    _lock: threading.Lock = field(default_factory=threading.Lock)
    """The lock that protects `version` and `_waiting`. An audit or a compaction keeps its own lease in a separate
    thread with another event loop, so two threads may use the ledger."""
    _late: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]])
    _released: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def end(self) -> int:
        """The end offset of the ledger topic."""
        return self.start + len(self.entries)

    def release(self) -> None:
        """Let all delayed requests take effect."""
        late, self._late = self._late, []
        for effect in late:
            effect()
        self._released.set()
        self._released = asyncio.Event()
        self.wake()

    def truncate(self, end: int) -> None:
        """Simulate an unclean election: the log of the new leader ends at `end`."""
        del self.entries[end - self.start :]
        self.epoch_starts[max(self.epoch_starts) + 1] = end
        self.wake()

    def compact(self) -> None:
        """Keep only the newest record of each key in the state topic, as a broker may do at any time."""
        newest = {row.key: row for row in self.rows if row is not None}
        self.rows = [row if row and newest[row.key] is row and row.value is not None else None for row in self.rows]

    def wake(self) -> None:
        """Wake all readers, so that they read again."""
        with self._lock:
            self.version += 1
            waiting, self._waiting = self._waiting, []
        try:
            here = asyncio.get_running_loop()
        except RuntimeError:
            here = None
        for loop, event in waiting:
            if loop is here:
                event.set()
            else:
                with suppress(RuntimeError):  # the loop is closed
                    loop.call_soon_threadsafe(event.set)

    async def until_changed(self, version: int) -> None:
        """Wait until the version differs from `version`."""
        event = asyncio.Event()
        with self._lock:
            if self.version != version:
                return
            self._waiting.append((asyncio.get_running_loop(), event))
        await event.wait()

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the entry at this offset."""
        return max(epoch for epoch, start in self.epoch_starts.items() if start <= offset)

    def epoch_end(self, leader_epoch: int) -> int:
        """Return the end offset of a leader epoch."""
        later = [start for epoch, start in self.epoch_starts.items() if epoch > leader_epoch]
        return min(later, default=self.end)

    def elect(self) -> None:
        """Elect a new leader that has all entries. This begins a new leader epoch."""
        self.epoch_starts[max(self.epoch_starts) + 1] = self.end
        self.wake()

    async def perform(self, effect: Callable[[], None], faults: deque[Fault | None]) -> None:
        """Let a request take effect or fail, according to the next injected fault."""
        await asyncio.sleep(0)
        fault = faults.popleft() if faults else None
        if fault is Fault.HELD:
            await self._released.wait()
        if not self.is_reachable or fault is Fault.FAILS:
            raise LedgerUnavailable("made to fail")
        if fault is Fault.LATE:
            self._late.append(effect)
            raise LedgerUnavailable("made to be late")
        effect()
        self.wake()
        await asyncio.sleep(0)
        if fault is Fault.ANSWER_LOST:
            raise LedgerUnavailable("made to lose its answer")


class MemoryLog:
    """A client of a `MemoryLedger` that implements `LedgerLog`."""

    def __init__(self, ledger: MemoryLedger, seal: Seal = NO_SEAL) -> None:
        self.seal = seal
        self._ledger = ledger
        self._position = 0
        self._last_epoch = -1
        """Leader epoch of the entry before the read position; -1 if it is unknown."""
        self._state_position = 0

    @property
    def topic(self) -> str:
        """A name for the ledger topic in messages."""
        return TOPIC

    @property
    def state_topic(self) -> str:
        """A name for the state topic in messages."""
        return STATE_TOPIC

    @property
    def state_position(self) -> int:
        """The offset in the state topic up to which `load_state` and `read` have read."""
        return self._state_position

    async def open(self, *, create: bool) -> None:
        """Do nothing. The topics always exist."""

    async def ends(self) -> LogEnds:
        """Return the bounds of the ledger topic and the end of the state topic."""
        await self._answer()
        ledger = self._ledger
        self.seal.topic_id = ledger.topic_id
        return LogEnds(ledger.topic_id, ledger.start, ledger.end, max(ledger.epoch_starts), len(ledger.rows))

    async def epoch_end(self, leader_epoch: int) -> int:
        """Return the end offset of a leader epoch."""
        await self._answer()
        return self._ledger.epoch_end(leader_epoch)

    async def load_state(self) -> AsyncIterator[StateRow]:
        """Yield all records of the state topic."""
        await self._answer()
        self._state_position = len(self._ledger.rows)
        for offset, row in enumerate(tuple(self._ledger.rows)):
            if row is not None:
                yield row._replace(offset=offset)

    def seek(self, offset: int) -> None:
        """Make `read` continue at this offset of the ledger."""
        self._position, self._last_epoch = offset, -1

    async def read(self) -> Sequence[LedgerRow | StateRow]:
        """Wait for the next records of either topic and return them."""
        ledger = self._ledger
        while True:
            await self._answer()
            if self._position < ledger.start:
                raise LogTrimmed
            if self._position > ledger.end:
                raise went_back(TOPIC, f"ends at offset {ledger.end} but reached {self._position} before")
            if self._last_epoch >= 0 and ledger.epoch_end(self._last_epoch) < self._position:
                raise went_back(TOPIC, "lost its end when its leader changed")
            version = ledger.version
            entries = ledger.entries[self._position - ledger.start :]
            rows = list(enumerate(ledger.rows[self._state_position :], self._state_position))
            if entries or rows:
                offsets = range(self._position, self._position + len(entries))
                read = [
                    LedgerRow(offset, value, ledger.epoch_at(offset))
                    for offset, value in zip(offsets, entries, strict=True)
                ]
                self._position += len(entries)
                self._last_epoch = read[-1].leader_epoch if read else self._last_epoch
                self._state_position += len(rows)
                return [*read, *(row._replace(offset=offset) for offset, row in rows if row is not None)]
            await ledger.until_changed(version)

    async def prepare(self) -> None:
        """Do nothing. No connection has to be opened."""

    async def append(self, values: Sequence[bytes]) -> Sequence[int]:
        """Append entries to the ledger and return their offsets."""
        offsets: list[int] = []

        def effect() -> None:
            offsets.extend(range(self._ledger.end, self._ledger.end + len(values)))
            self._ledger.entries.extend(map(self.seal.sign_entry, values))

        await self._ledger.perform(effect, self._ledger.append_faults)
        return offsets

    async def save(self, rows: Sequence[StateRow]) -> None:
        """Append records to the state topic."""
        signed = signed_rows(self.seal, rows)
        await self._ledger.perform(lambda: self._ledger.rows.extend(signed), self._ledger.save_faults)

    async def delete_below(self, offset: int) -> None:
        """Remove the entries below an offset."""

        def effect() -> None:
            keep = max(offset, self._ledger.start)
            del self._ledger.entries[: keep - self._ledger.start]
            self._ledger.start = keep

        await self._ledger.perform(effect, self._ledger.delete_faults)

    async def close(self) -> None:
        """Do nothing. There is no connection to close."""

    async def _answer(self) -> None:
        await asyncio.sleep(0)
        if not self._ledger.is_reachable:
            raise LedgerUnavailable("made unreachable")
