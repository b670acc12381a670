"""Reads a flow's ledger, appends facts and reports which of them took effect, and writes snapshots.

A store reads both topics and folds entries as it reads them. `append` returns when its facts have been read back in the
order of the ledger, so every other reader sees the same result. The state is read-only. It must always be accessed
through `LedgerStore.state`, because a store replaces its state if entries are trimmed before it reads them.
"""

import asyncio
import secrets
from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress

import structlog

from mirrord.ledger.codec import encode_state
from mirrord.ledger.errors import LOST, LedgerCorrupt, LedgerUnavailable, LedgerWentBack, NotOurs, UnknownKey
from mirrord.ledger.facts.archive import MapCompacted
from mirrord.ledger.facts.core import AnyFact, Entry, FlowOpened, LeaseRenewed, Progress
from mirrord.ledger.fold import fold
from mirrord.ledger.prune import Resting, drop_removed, prune, prune_like
from mirrord.ledger.snapshot import snapshots
from mirrord.ledger.snapshot_restore import restore
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import (
    LEASE_KEY,
    PROGRESS_PREFIX,
    FlowSnapshot,
    LaneSnapshot,
    LedgerEnd,
    StateRecord,
    progress_key,
    state_key,
)
from mirrord.ledger.state_topic_rows import Kept, NothingKept, StateTopicRows, decode_row
from mirrord.ledger.store.append_queue import FactBindings, Outbox
from mirrord.ledger.store.cluster_ids import check_clusters
from mirrord.ledger.store.entry_gate import NOTHING, Admitted, EntryGate, SkippedRecords
from mirrord.ledger.store.log_interface import LedgerLog, LedgerRow, LogEnds, LogTrimmed, StateRow
from mirrord.ledger.store.loss_detection import LedgerWatch
from mirrord.ledger.store.seal import NO_SEAL
from mirrord.ledger.store.state_writes import Saves
from mirrord.model.errors import MirrordError
from mirrord.model.names import LaneId
from mirrord.model.run_memory import ALL_OF_IT, RunMemory
from mirrord.runtime.clock import Clock
from mirrord.runtime.outage_log import OutageLog
from mirrord.runtime.subscriptions import subscribe

DEADLINE_SECONDS = 10.0
TRIM_ENTRIES = 20_000
"""A new snapshot is due when more than this number of entries follow the latest snapshot."""
KEPT_ENTRIES = 1_000
"""Number of entries before the snapshot that a trim does not delete, for readers that lag slightly."""
LOAD_TRIES, RETRY_SECONDS = 5, 0.5
READABLE_SECONDS = 3.0
"""Time without an error until a ledger counts as readable: one topic may be readable while the other one is not."""
SAVED_TOGETHER = 100

OnEntry = Callable[[int, Entry, FactBindings], None]
OnRecord = Callable[[StateRecord], None]
OnLeap = Callable[[], None]
OnEnd = Callable[[], None]

log = structlog.get_logger()


class LedgerStore:
    """The view that one process has of a flow's ledger.

    LedgerUnavailable means that an operation was not confirmed in time. Any other ledger error (LedgerCorrupt,
    LedgerWentBack) ends the store: all pending and later calls raise that error.
    """

    def __init__(
        self,
        topics: LedgerLog,
        clock: Clock,
        *,
        deadline_seconds: float = DEADLINE_SECONDS,
        memory: RunMemory = ALL_OF_IT,
        trims: bool = True,
        ignored: Container[int] = (),
    ) -> None:
        """Create an unopened store. `memory` holds the runs; `spill_file.run_memory` returns it for a flow. Without
        `trims`, the store cannot trim the ledger, and does not remember which snapshots the state topic holds. It reads
        the state topic as if it did not have the records at the offsets `ignored`."""
        self._ignored = ignored
        self._log = topics
        self._clock = clock
        self._deadline = deadline_seconds
        self._memory = memory
        self._state = FlowState(memory=memory)
        self._kept = Kept() if trims else NothingKept()
        self._resting = Resting()
        self._gate = EntryGate(topics.topic, NO_SEAL)
        self.skipped = SkippedRecords(topics.topic, reports=trims)
        """The records of both topics that mirrord did not write."""
        self._cut = 0
        self._holds_moved_runs = False
        self._ends: LogEnds | None = None
        self._outbox = Outbox(secrets.token_hex(6))
        self._saves = Saves(topics, deadline_seconds)
        self._watch = LedgerWatch(topics)
        self._proof: asyncio.Task[None] | None = None
        self._read_only = False
        self._changed = asyncio.Event()
        self._on_entry: list[OnEntry] = []
        self._on_record: list[OnRecord] = []
        self._on_leap: list[OnLeap] = []
        self._on_end: list[OnEnd] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._failure: MirrordError | None = None
        self._renewal: LeaseRenewed | None = None

    @property
    def renewal(self) -> LeaseRenewed | None:
        """The newest renewal of the lease; None if there is none."""
        return self._renewal

    @property
    def state(self) -> FlowState:
        """The state of the flow, folded up to the last entry that was read."""
        return self._state

    @property
    def failure(self) -> MirrordError | None:
        """The error that ended the store; None while the store is usable."""
        return self._failure

    @property
    def recorded_end(self) -> LedgerEnd:
        """The end of the ledger, as the leader of the ledger topic most recently reported it."""
        if self._ends is None:
            raise RuntimeError("the store is not open")
        return LedgerEnd(self._ends.topic_id, self._ends.end, self._ends.leader_epoch)

    @property
    def end_to_save(self) -> LedgerEnd | None:
        """`recorded_end`, or None if the state topic has a higher end or the end of a different ledger topic."""
        return self.recorded_end if self._watch.may_save(self.recorded_end) else None

    @property
    def known(self) -> LedgerEnd | None:
        """The end in `LedgerWatch.known`: how far the ledger extends. The next store of this process needs it."""
        return self._watch.known

    def remember(self, known: LedgerEnd | None) -> None:
        """Take over the known end of the ledger (`known`) from an earlier store. Must be called before `open`."""
        self._watch.remembered = known

    @property
    def has_moved_runs(self) -> bool:
        """Whether snapshots may still contain runs that `mirrord compact` has moved to files."""
        return self._holds_moved_runs

    @property
    def is_long(self) -> bool:
        """Whether a trim is due: many entries follow the latest snapshot, or `has_moved_runs` is true."""
        return self._holds_moved_runs or self._state.next_offset - self._cut > TRIM_ENTRIES

    async def open(self, *, read_only: bool = False, create: bool = True) -> None:
        """Read the snapshots and the entries after them. From then on, keep reading.

        With `read_only`, nothing is created and nothing can be appended. Without `create`, the ledger must already
        exist. Raises LedgerMissing, LedgerUnavailable, LedgerCorrupt or LedgerWentBack.
        """
        self._read_only = read_only
        await self._log.open(create=create and not read_only)
        try:
            await self._start()
        except BaseException as error:
            if isinstance(error, LedgerWentBack):
                self._keep_proof()
                await self._end_proof()
            await self._log.close()
            raise
        work = [self._read()] if read_only else [self._read(), self._send_entries(), self._saves.send()]
        self._tasks = [asyncio.create_task(coroutine) for coroutine in work]
        for task in self._tasks:
            task.add_done_callback(self._task_ended)

    async def close(self) -> None:
        """Stop reading. Callers that are still waiting get LedgerUnavailable."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        self._end(LedgerUnavailable("the ledger was closed"))
        await self._end_proof()
        await self._log.close()

    async def append(self, lease_epoch: int, facts: Iterable[AnyFact]) -> FactBindings:
        """Append facts under a lease epoch. When they have been read back, return for each fact whether it took effect.

        Facts that are appended in one iteration of the event loop share an entry. Raises LedgerUnavailable if the
        outcome is not known in time. The facts may then be in the ledger, or may be appended later. It is safe to
        append the same facts again under the same epoch. They take effect once, with the result of the first append.
        """
        self._check()
        append = self._outbox.add(lease_epoch, tuple(facts))
        assert append.waiter is not None  # noqa: S101
        try:
            async with asyncio.timeout(self._deadline):
                return await append.waiter
        except TimeoutError:
            if append.bound is not None:  # it arrived together with the timeout
                return append.bound
            self._outbox.give_up(append)
            raise LedgerUnavailable(f"no answer from {self._log.topic} within {self._deadline:g} s") from None
        except BaseException:
            self._outbox.give_up(append)
            raise

    async def save(self, *records: StateRecord) -> None:
        """Write records to the state topic in order and wait for their replication. Raises LedgerUnavailable."""
        await self._save([StateRow(state_key(record), encode_state(record)) for record in records])
        for record in records:
            self._kept.note(state_key(record), record)

    async def remove(self, records: Sequence[LaneId]) -> None:
        """Remove records about the ends of source partitions from the state topic. Raises LedgerUnavailable."""
        await self._save([StateRow(progress_key(record), None) for record in records])

    async def read_to_end(self) -> None:
        """Read both topics up to their current ends. Raises LedgerUnavailable or LedgerWentBack."""
        self._check()
        try:
            async with asyncio.timeout(self._deadline):
                ends = await self._watch.ends(self._outbox.acknowledged_end)
                await self.until(
                    lambda: self._state.next_offset >= ends.end and self._log.state_position >= ends.state_end
                )
            self._check()  # a record of the state topic that cannot be read also moves the position
        except TimeoutError:
            raise LedgerUnavailable(f"{self._log.topic} was not read within {self._deadline:g} s") from None
        except LedgerWentBack as error:
            self._end(error)
            raise
        self._ends = ends

    async def until(self, met: Callable[[], bool]) -> None:
        """Wait until a condition on the state is true. The condition is checked after each read."""
        while not met():
            self._check()
            await self._changed.wait()

    def on_entry(self, callback: OnEntry) -> Callable[[], None]:
        """Call `callback(offset, entry, bound)` for each entry that is folded. Return a function that unsubscribes."""
        return subscribe(self._on_entry, callback)

    def on_record(self, callback: OnRecord) -> Callable[[], None]:
        """Call `callback` with each record that is read from the state topic. Return a function that unsubscribes."""
        return subscribe(self._on_record, callback)

    def on_leap(self, callback: OnLeap) -> Callable[[], None]:
        """Call `callback` if entries were trimmed before this store read them. The store continues from the snapshots
        and calls no other callbacks for those entries. Return a function that unsubscribes."""
        return subscribe(self._on_leap, callback)

    def on_end(self, callback: OnEnd) -> Callable[[], None]:
        """Call `callback` when the store ends, after `failure` has been set. Return a function that unsubscribes."""
        return subscribe(self._on_end, callback)

    def prune(self, lane: LaneId, source_log_start: int, target_log_start: int) -> int:
        """Drop a lane's runs whose records both logs have deleted. Return their number. Snapshots then omit them."""
        return prune(self._state, lane, source_log_start, target_log_start)

    async def trim(self, kept_entries: int = KEPT_ENTRIES) -> None:
        """Write snapshots, then delete the entries that they contain. Only the lease holder may call this method.

        If a trim is interrupted, the ledger stays readable, and the next trim completes it. Raises LedgerUnavailable.
        """
        await self.read_to_end()
        forgotten = list(self._state.forgotten_lanes)
        if forgotten:
            await self._save([StateRow(progress_key(lane), None) for lane in forgotten])
        cut = snapshots(self._state, self._kept, self.recorded_end)
        for records in cut.groups(SAVED_TOGETHER):
            await self.save(*records)
        await self.save(cut.flow)
        if self._state.tenure != cut.tenure:
            return
        await self._log.delete_below(max(0, cut.offset - kept_entries))
        self._cut = cut.offset
        self._holds_moved_runs = False
        stale = cut.stale(self._kept)
        if stale:
            await self._save([StateRow(key, None) for key in stale])
        for key in stale:
            self._kept.note(key, None)
        for lane in forgotten:
            self._state.forgotten_lanes.pop(lane, None)
        log.info(
            "ledger_trimmed", topic=self._log.topic, offset=cut.offset, pieces=len(cut.pieces), lanes=len(cut.lanes)
        )

    async def _start(self) -> None:
        """Read the snapshots, and the entries after them up to the current end."""
        while True:
            try:
                ends = await self._load()
                # If a record cannot be read, the order to skip it may be anywhere behind it.
                while self._gate.read_to < ends.end:
                    self._take(await self._log.read())
            except LogTrimmed:
                continue
            self._gate.check()
            self._watch.check_state(self._state)
            return

    async def _load(self) -> LogEnds:
        """Start from the newest snapshots. Retry if they are replaced and the ledger is trimmed while they are read."""
        for attempt in range(1, LOAD_TRIES + 1):
            rows = StateTopicRows(self._memory, self._log.seal, self._log.state_topic)
            async for row in self._log.load_state():
                if row.offset not in self._ignored:
                    rows.take(row)
            read = rows.read()
            records = read.records
            self._ends = ends = await self._log.ends()
            await self._watch.check_recorded_ends(records.values(), ends)
            try:
                state = restore(read, self._memory)
                if state.next_offset < ends.start:
                    raise LedgerCorrupt(
                        f"{self._log.topic} begins at offset {ends.start}, its snapshots end at {state.next_offset}:"
                        f" {LOST}"
                    )
                self._log.seek(state.next_offset)
            except LedgerCorrupt:
                if attempt == LOAD_TRIES:
                    raise
                await self._clock.sleep(RETRY_SECONDS)
                continue
            renewal = records.get(LEASE_KEY)
            self._renewal = renewal if isinstance(renewal, LeaseRenewed) else None
            self._kept = read.kept(self._kept)
            self._state, self._cut = state, state.next_offset
            self._resting = Resting()
            seal, cut = self._log.seal, state.next_offset
            self._gate = EntryGate(self._log.topic, seal, cut, is_signed=cut > 0 and not seal.adopts)
            for key, why in rows.foreign.items():
                self.skipped.skip_row(key, why)
            self._watch.begin(state, self._renewal, ends)
            return ends
        raise AssertionError

    async def _read(self) -> None:
        behind = False
        events = "ledger_unreadable", "ledger_readable"
        outages = OutageLog(events, READABLE_SECONDS, self._clock.monotonic, topic=self._log.topic)
        while self._failure is None:
            try:
                if behind:
                    log.warning("ledger_trimmed_ahead", topic=self._log.topic, offset=self._state.next_offset)
                    await self._load()
                    self._leap()
                    behind = False
                rows = await self._log.read()
                if self._failure is None:
                    self._take(rows)
                    self._gate.check()
                outages.succeeded()
            except LogTrimmed:
                behind = True
            except LedgerUnavailable as error:
                outages.failed(str(error))
                await self._clock.sleep(RETRY_SECONDS)
            except MirrordError as error:
                self._end(error)

    def _leap(self) -> None:
        own = self._state.writers.get(self._outbox.writer)
        if own is not None:
            self._outbox.skipped(own.number)
        for callback in tuple(self._on_leap):
            callback()
        self._wake()

    def _take(self, rows: Iterable[LedgerRow | StateRow]) -> None:
        for row in rows:
            if isinstance(row, LedgerRow):
                self._take_entry(row)
            else:
                self._take_record(row)
        self.skipped.report()
        self._resting.look(self._state)
        self._wake()

    def _take_entry(self, row: LedgerRow) -> None:
        if row.offset >= self._gate.read_to:
            self._watch.take(row)
        for admitted in self._gate.take(row):
            self._take_admitted(admitted)

    def _take_admitted(self, admitted: Admitted) -> None:
        row, entry = admitted
        if isinstance(entry, LedgerCorrupt):
            self.skipped.skip_entry(row.offset, entry)
            entry = NOTHING
        if not self._outbox.may_stand_at(row.offset, entry):
            self._watch.replaced(row.offset)
        bound = fold(self._state, entry, row.offset)
        if any(binds and isinstance(fact, MapCompacted) for fact, binds in zip(entry.facts, bound, strict=True)):
            self._holds_moved_runs = True
        self._outbox.folded(entry, bound)
        for callback in tuple(self._on_entry):
            callback(row.offset, entry, bound)

    def _take_record(self, row: StateRow) -> None:
        if row.value is None:
            self._kept.note(row.key, None)
            self._state.source_ends.pop(LaneId(row.key.removeprefix(PROGRESS_PREFIX)), None)
            return
        try:
            record = decode_row(row, self._log.seal.row(row.key, row.value), self._log.state_topic)
        except (NotOurs, UnknownKey) as why:
            self.skipped.skip_row(row.key, why)
            return
        if isinstance(record, Progress):
            self._state.accept_progress(record)
        elif isinstance(record, LeaseRenewed):
            self._renewal = record
        self._watch.hear(record)
        self._kept.note(row.key, record)
        if isinstance(record, FlowSnapshot):
            drop_removed(self._state, record)
        elif isinstance(record, LaneSnapshot):
            prune_like(self._state, record)
        for callback in tuple(self._on_record):
            callback(record)

    async def _send_entries(self) -> None:
        await self._log.prepare()
        while self._failure is None:
            await self._outbox.wanted.wait()
            entries = self._outbox.take(self._clock.wall_ms())
            if not entries:
                continue
            try:
                offsets = await self._log.append([entry.data for entry in entries])
            except LedgerUnavailable as error:
                self._outbox.fail(entries, error)
                continue
            replaced = self._outbox.acknowledged(entries, offsets, self._state.next_offset)
            if replaced is not None:
                self._watch.replaced(replaced)

    async def _save(self, rows: list[StateRow]) -> None:
        self._check()
        await self._saves.save(rows)

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if isinstance(error, MirrordError):
            self._end(error)
        elif error is not None:
            log.error("ledger_failed", topic=self._log.topic, exc_info=error)
            self._end(LedgerUnavailable(f"{self._log.topic} is no longer being read: {error!r}"))

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _end(self, error: MirrordError) -> None:
        if self._failure is not None:
            return
        self._failure = error
        if not isinstance(error, LedgerUnavailable):
            log.error("ledger_failed", topic=self._log.topic, error=str(error))
        if isinstance(error, LedgerWentBack):
            self._keep_proof()
        self._outbox.fail_all(error)
        self._saves.fail_all(error)
        for callback in tuple(self._on_end):
            callback()
        self._wake()

    def _keep_proof(self) -> None:
        """In the background, save the end that proves a loss, so that every process that opens the ledger finds it."""
        self._watch.note_loss()
        if not self._read_only:
            self._proof = asyncio.create_task(self._watch.keep_proof())

    async def _end_proof(self) -> None:
        if self._proof is not None:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._deadline):
                    await self._proof


async def open_flow(store: LedgerStore, opened: FlowOpened) -> None:
    """Record in a new ledger that it belongs to this flow. Raises ForeignFlow if it belongs to different clusters."""
    if not store.state.flow:
        await store.append(0, (opened,))
    check_clusters(store.state, opened)
