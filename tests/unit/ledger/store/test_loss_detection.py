"""A ledger that loses its end: every store notices and ends, and no later start uses the rest."""

import asyncio
from collections.abc import AsyncGenerator

import pytest

from mirrord.ledger.codec import encode_entry, encode_state
from mirrord.ledger.errors import LedgerUnavailable, LedgerWentBack
from mirrord.ledger.facts.core import Entry, SourceRun
from mirrord.ledger.fold import writer_text
from mirrord.ledger.state_topic_records import LedgerEnd, state_key
from mirrord.ledger.store.history import LedgerReading, read_gaps
from mirrord.ledger.store.lease import LeaseKeeper
from mirrord.ledger.store.log_interface import StateRow
from mirrord.ledger.store.memory_log import Fault, MemoryLedger
from mirrord.ledger.store.store import LedgerStore, open_flow
from mirrord.model.names import TopicId
from mirrord.model.runs import Run
from mirrord.runtime.clock import SystemClock
from tests.fixtures.ledger import FLOW, HOLDER, GatedLog, opened, plain
from tests.fixtures.ledger_contract import LANE

SECONDS = 20


class Processes:
    """A ledger, and stores that can be prevented from looking at it."""

    def __init__(self) -> None:
        self.ledger = MemoryLedger()
        self.logs: list[GatedLog] = []
        self.stores: list[LedgerStore] = []

    async def open(self, *, read_only: bool = False, known: LedgerEnd | None = None) -> LedgerStore:
        log = GatedLog(self.ledger)
        store = LedgerStore(log, SystemClock(), deadline_seconds=2)
        store.remember(known)
        self.logs.append(log)
        self.stores.append(store)
        await store.open(read_only=read_only)
        return store

    async def start(self) -> LedgerStore:
        store = await self.open()
        await open_flow(store, FLOW)
        return store

    def hold(self, *stores: LedgerStore) -> None:
        for store in stores or self.stores:
            self.logs[self.stores.index(store)].gate.clear()

    def release(self) -> None:
        for log in self.logs:
            log.gate.set()
        self.ledger.wake()

    def lose(self, end: int, *ordinals: int) -> None:
        """An unclean election, after which another process appended these runs."""
        self.ledger.truncate(end)
        runs = [SourceRun(LANE, 0, (Run(ordinal, 100 + ordinal),)) for ordinal in ordinals]
        entries = [Entry(1, 0, (run,), writer_text("other", number)) for number, run in enumerate(runs, 1)]
        self.ledger.entries.extend(encode_entry(entry) for entry in entries)
        self.ledger.wake()

    def rebuild(self) -> None:
        """`mirrord rebuild`: another ledger topic, and the recorded end that names it."""
        self.ledger.topic_id = TopicId("made anew")
        self.ledger.entries[:] = [encode_entry(Entry(0, 0, (FLOW,), writer_text("rebuild", 0)))]
        self.ledger.epoch_starts = {0: 0}
        recorded = LedgerEnd(self.ledger.topic_id, self.ledger.end, 0)
        self.ledger.rows.append(StateRow(state_key(recorded), encode_state(recorded)))
        self.ledger.wake()

    async def until_lost(self, *stores: LedgerStore) -> None:
        async with asyncio.timeout(SECONDS):
            for store in stores:
                with pytest.raises(LedgerWentBack, match="`mirrord rebuild`"):
                    await store.until(lambda: False)


@pytest.fixture
async def processes() -> AsyncGenerator[Processes]:
    found = Processes()
    yield found
    found.release()
    for store in found.stores:
        await store.close()


async def leased(processes: Processes) -> tuple[LedgerStore, LeaseKeeper]:
    """A store whose process holds the lease, and one lane."""
    store = await processes.start()
    keeper = LeaseKeeper(store, HOLDER, 60_000, SystemClock())
    epoch = await keeper.acquire()
    await store.append(epoch, [opened()])
    return store, keeper


async def appended(store: LedgerStore, *ordinals: int) -> None:
    for ordinal in ordinals:
        assert await store.append(1, [SourceRun(LANE, 0, (Run(ordinal, 2 * ordinal),))]) == (True,)


async def test_all_notice_and_stop_at_once(processes: Processes) -> None:
    store, keeper = await leased(processes)
    others = [await processes.open(), await processes.open(read_only=True)]
    joined = LeaseKeeper(others[0], HOLDER, 60_000, SystemClock())
    await joined.join(1)
    assert joined.is_valid
    await appended(store, 10, 20)
    for other in others:
        await other.read_to_end()
    kept = store.state.next_offset - 2
    processes.hold()
    processes.lose(kept, 30, 31, 32)
    processes.release()
    await processes.until_lost(store, *others)
    assert not keeper.is_valid
    assert not joined.is_valid
    assert keeper.lost.is_set()
    assert joined.lost.is_set()
    for reader in processes.stores:
        assert [run.ordinal for run in reader.state.lanes[LANE].source_runs] == [10, 20]
    with pytest.raises(LedgerWentBack):
        await store.append(1, [SourceRun(LANE, 0, (Run(40, 80),))])
    with pytest.raises(LedgerWentBack):
        await processes.open()
    await keeper.close()
    await joined.close()


async def test_a_question_for_the_end_is_not_answered_by_a_log_that_grew_again(processes: Processes) -> None:
    """The renewal of a lease asks for the end; the reader itself has not looked yet."""
    store, keeper = await leased(processes)
    await appended(store, 10, 20)
    before = keeper.valid_until
    processes.lose(store.state.next_offset - 2, 30, 31, 32)
    with pytest.raises(LedgerWentBack):
        await store.read_to_end()
    assert keeper.valid_until < before
    await keeper.close()


async def test_another_leader_with_all_entries_changes_nothing(processes: Processes) -> None:
    store, keeper = await leased(processes)
    other = await processes.open()
    for _ in range(3):
        processes.ledger.elect()
        await appended(store, 10)
        processes.ledger.elect()
        await store.read_to_end()
        await other.read_to_end()
        assert store.end_to_save is not None
        await store.save(store.end_to_save)
    await store.trim(kept_entries=0)
    processes.ledger.elect()
    later = await processes.open()
    await later.read_to_end()
    assert plain(later.state) == plain(store.state) == plain(other.state)
    assert keeper.is_valid
    await keeper.close()


async def test_a_process_that_read_what_was_lost_warns_those_that_had_not(processes: Processes) -> None:
    store, keeper = await leased(processes)
    behind = await processes.open()
    await behind.read_to_end()
    processes.hold(behind)
    await appended(store, 10)
    processes.hold()
    # The store that is behind finds nothing wrong with its own position.
    processes.lose(behind.state.next_offset, 30)
    processes.release()
    await processes.until_lost(store, behind)
    with pytest.raises(LedgerWentBack):
        await processes.open(read_only=True)
    await keeper.close()


async def test_a_later_store_of_the_process_knows_what_the_former_one_read(processes: Processes) -> None:
    """The state topic could not be written, and no recorded end in it reaches as far."""
    store, keeper = await leased(processes)
    await appended(store, 10)
    await keeper.close()
    await store.close()
    processes.lose(store.state.next_offset - 1, 30)
    fresh = await processes.open(read_only=True)
    assert fresh.failure is None
    with pytest.raises(LedgerWentBack, match=r"lost what it held below offset 4"):
        await processes.open(known=store.known)
    with pytest.raises(LedgerWentBack, match=r"lost what it held below offset 4"):
        await processes.open()


async def test_after_a_rebuild_what_was_known_of_the_former_ledger_is_void(processes: Processes) -> None:
    store, keeper = await leased(processes)
    await keeper.close()
    await store.save(LedgerEnd(processes.ledger.topic_id, 1, 0))
    assert store.known is not None
    known = LedgerEnd(type(store.known.topic_id)("former"), 1000, 7)
    assert (await processes.open(known=known)).failure is None


async def stopped_during_a_rebuild(processes: Processes) -> tuple[LedgerStore, LeaseKeeper, LedgerStore]:
    """A holder that has read nothing of the rebuilt ledger yet, and a store that has."""
    store, keeper = await leased(processes)
    await appended(store, 10, 20)
    await store.save(store.recorded_end)
    await store.read_to_end()
    for _ in range(20):
        await asyncio.sleep(0)
    processes.hold()
    processes.rebuild()
    return store, keeper, await processes.open()


async def test_a_process_that_slept_through_a_rebuild_does_not_contradict_it(processes: Processes) -> None:
    store, keeper, fresh = await stopped_during_a_rebuild(processes)
    processes.release()
    await processes.until_lost(store)
    await store.close()
    await fresh.read_to_end()
    assert (await processes.open()).failure is None
    await keeper.close()


async def test_a_renewal_after_the_lease_has_ended_looks_before_it_saves(processes: Processes) -> None:
    store, keeper, fresh = await stopped_during_a_rebuild(processes)
    rows = len(processes.ledger.rows)
    keeper.valid_until = 0.0
    renewal = asyncio.create_task(keeper._renew())
    for _ in range(20):
        await asyncio.sleep(0)
    processes.release()
    with pytest.raises(LedgerWentBack):
        await renewal
    await store.close()
    assert len(processes.ledger.rows) == rows
    await fresh.read_to_end()
    await keeper.close()


async def test_an_append_that_was_acknowledged_and_lost_before_it_was_read(processes: Processes) -> None:
    store, keeper = await leased(processes)
    kept = store.state.next_offset
    processes.hold()
    waiting = asyncio.create_task(store.append(1, [SourceRun(LANE, 0, (Run(10, 20),))]))
    for _ in range(20):
        await asyncio.sleep(0)
    assert store._outbox.acknowledged_end == kept + 1
    processes.lose(kept, 30)
    processes.release()
    with pytest.raises(LedgerWentBack, match="lost an entry that was acknowledged at offset"):
        await waiting
    with pytest.raises(LedgerWentBack):
        await processes.open()
    await keeper.close()


async def test_an_acknowledgement_that_comes_after_another_entry_was_read_there(processes: Processes) -> None:
    store, keeper = await leased(processes)
    outbox, kept = store._outbox, store.state.next_offset
    outbox.add(1, (SourceRun(LANE, 0, (Run(10, 20),)),))
    (entry,) = outbox.take(0)
    assert outbox.acknowledged([entry], [-1], kept) is None
    assert outbox.acknowledged([entry], [kept], kept) is None
    assert outbox.acknowledged_end == kept + 1
    assert outbox.acknowledged([entry], [kept - 1], kept) == kept - 1
    await keeper.close()


async def test_a_repeated_append_may_stand_twice(processes: Processes) -> None:
    store, keeper = await leased(processes)
    facts = [SourceRun(LANE, 0, (Run(10, 20),))]
    processes.ledger.append_faults.append(Fault.LATE)
    with pytest.raises(LedgerUnavailable):
        await store.append(1, facts)
    processes.hold()
    again = asyncio.create_task(store.append(1, facts))
    for _ in range(20):
        await asyncio.sleep(0)
    processes.ledger.release()
    processes.release()
    assert await again == (True,)
    await store.read_to_end()
    assert store.failure is None
    await keeper.close()


async def test_the_verdicts_of_a_ledger_that_lost_its_end_are_not_listed(processes: Processes) -> None:
    store, keeper = await leased(processes)
    await appended(store, 10)
    await store.read_to_end()
    await store.save(store.recorded_end)
    await keeper.close()
    processes.lose(store.state.next_offset - 1, 30)
    with pytest.raises(LedgerWentBack, match=r"lost what it held below offset 4"):
        await read_gaps(LedgerReading(GatedLog(processes.ledger)))
