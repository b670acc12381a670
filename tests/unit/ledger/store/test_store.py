"""The ledger store on topics in memory, and what it does when requests fail."""

import asyncio
from collections.abc import AsyncGenerator, Generator
from types import SimpleNamespace

import pytest

from mirrord.ledger.errors import LedgerCorrupt, LedgerUnavailable, LedgerWentBack
from mirrord.ledger.facts.core import (
    CopyForgotten,
    HoleFound,
    LaneHalted,
    LaneResumed,
    LaneTaken,
    LeaseTaken,
    SourceRun,
    TargetRun,
    Verdict,
    VerdictGiven,
)
from mirrord.ledger.state import FlowState
from mirrord.ledger.store import store as store_module
from mirrord.ledger.store.append_queue import ENTRY_BYTES
from mirrord.ledger.store.memory_log import Fault, MemoryLedger, MemoryLog
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.names import LaneKey
from mirrord.model.runs import Run
from mirrord.runtime import outage_log
from mirrord.runtime.clock import SystemClock
from tests.fixtures.attic import MemoryAttic, no_room, scarce
from tests.fixtures.ledger import FLOW, HOLDER, GatedLog, lane_id, opened, plain
from tests.fixtures.ledger_contract import LANE, LedgerContract, MakeStore, OpenStore, progress, start_flow


@pytest.fixture
def ledger() -> MemoryLedger:
    return MemoryLedger()


@pytest.fixture
def make_store(ledger: MemoryLedger) -> MakeStore:
    return lambda: LedgerStore(MemoryLog(ledger), SystemClock(), deadline_seconds=2)


@pytest.fixture
async def open_store(make_store: MakeStore) -> AsyncGenerator[OpenStore]:
    stores: list[LedgerStore] = []

    async def make() -> LedgerStore:
        stores.append(make_store())
        await stores[-1].open()
        return stores[-1]

    yield make
    for store in stores:
        await store.close()


class TestInMemory(LedgerContract):
    pass


HALT = LaneHalted(LANE, 1, "poison", "a batch was refused", 5, 6)


@pytest.mark.parametrize("fault", [Fault.FAILS, Fault.ANSWER_LOST, Fault.LATE])
async def test_a_repeated_append_binds_once_and_reports_the_result(
    ledger: MemoryLedger, open_store: OpenStore, fault: Fault
) -> None:
    store = await open_store()
    await start_flow(store)
    ledger.append_faults.append(fault)
    facts = [LaneTaken(LANE, 2, "r2"), VerdictGiven(LANE, 2, (Verdict(0, 9, "control"),)), opened()]
    with pytest.raises(LedgerUnavailable):
        await store.append(1, facts)
    if fault is Fault.LATE:
        ledger.release()
    assert await store.append(1, facts) == (True, True, False)
    ledger.release()
    await store.read_to_end()
    assert store.state.lanes[LANE].verdicts.counts == {"control": 9}
    assert plain((await open_store()).state) == plain(store.state)


async def test_an_entry_that_comes_too_late_does_not_bind(ledger: MemoryLedger, open_store: OpenStore) -> None:
    store = await open_store()
    await start_flow(store)
    ledger.append_faults.append(Fault.LATE)
    with pytest.raises(LedgerUnavailable):
        await store.append(1, [SourceRun(LANE, 1, (Run(0, 5),))])
    assert await store.append(1, [SourceRun(LANE, 1, (Run(0, 6),))]) == (True,)
    ledger.release()
    await store.read_to_end()
    assert store.state.lanes[LANE].source_runs.last == Run(0, 6)
    # Its facts are new ones now.
    assert await store.append(1, [SourceRun(LANE, 1, (Run(0, 5),))]) == (True,)
    assert store.state.lanes[LANE].source_runs.last == Run(0, 5)


async def test_a_repetition_that_was_overtaken_is_sent_as_a_new_entry(
    ledger: MemoryLedger, open_store: OpenStore
) -> None:
    store = await open_store()
    await start_flow(store, lanes=2)
    ledger.append_faults.extend([Fault.FAILS, Fault.ANSWER_LOST])
    with pytest.raises(LedgerUnavailable):
        await store.append(1, [LaneTaken(LANE, 2, "r2")])
    results = await asyncio.gather(
        store.append(1, [LaneTaken(lane_id(1), 2, "r2")]),
        store.append(1, [LaneTaken(LANE, 2, "r2")]),
        return_exceptions=True,
    )
    assert all(isinstance(result, LedgerUnavailable) for result in results)
    assert await store.append(1, [LaneTaken(lane_id(1), 2, "r2")]) == (True,)
    assert await store.append(1, [LaneTaken(LANE, 2, "r2")]) == (True,)


async def test_the_same_facts_later_are_new_facts(ledger: MemoryLedger, open_store: OpenStore) -> None:
    store = await open_store()
    await start_flow(store)
    await store.append(1, [HALT])
    ledger.append_faults.append(Fault.ANSWER_LOST)
    with pytest.raises(LedgerUnavailable):
        await store.append(1, [LaneResumed(LANE, 1)])
    await store.read_to_end()
    await store.append(1, [HALT])
    assert await store.append(1, [LaneResumed(LANE, 1)]) == (True,)
    assert store.state.lanes[LANE].halted is None


async def test_an_append_whose_caller_left_is_kept_for_when_it_asks_again(
    ledger: MemoryLedger, open_store: OpenStore
) -> None:
    store = await open_store()
    await start_flow(store)
    caller = asyncio.create_task(store.append(1, [LaneTaken(LANE, 2, "r2")]))
    await ledger.until_changed(ledger.version)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await store.read_to_end()
    assert await store.append(1, [LaneTaken(LANE, 2, "r2")]) == (True,)
    assert len(ledger.entries) == 4


async def test_an_unreachable_ledger_is_said_in_time_and_used_on_later(
    ledger: MemoryLedger, make_store: MakeStore, open_store: OpenStore
) -> None:
    store = await open_store()
    await start_flow(store)
    ledger.is_reachable = False
    for request in (store.append(1, [opened(1)]), store.save(progress(0, 1)), store.read_to_end(), store.trim()):
        with pytest.raises(LedgerUnavailable):
            await request
    with pytest.raises(LedgerUnavailable):
        await make_store().open()
    ledger.is_reachable = True
    assert await store.append(1, [opened(1)]) == (True,)
    await store.save(progress(0, 1))


async def test_an_unreachable_ledger_is_reported_once(
    ledger: MemoryLedger, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    reported: list[str] = []
    failures = 0
    read = MemoryLog.read

    async def failing(log: MemoryLog) -> object:
        nonlocal failures
        if 0 < failures < 10:
            failures += 1
            raise LedgerUnavailable("made to fail")
        return await read(log)

    def tell(event: str, **_: object) -> None:
        reported.append(event)

    monkeypatch.setattr(MemoryLog, "read", failing)
    monkeypatch.setattr(store_module, "RETRY_SECONDS", 0)
    monkeypatch.setattr(store_module, "READABLE_SECONDS", 0.0)
    monkeypatch.setattr(outage_log, "log", SimpleNamespace(warning=tell, info=tell))
    store = await open_store()
    await start_flow(store)
    failures = 1
    assert await store.append(1, [opened(1)]) == (True,)
    assert await store.append(1, [opened(2)]) == (True,)
    assert failures == 10
    assert reported == ["ledger_unreadable", "ledger_readable"]


async def test_an_append_that_is_never_read_back_ends_in_time(ledger: MemoryLedger) -> None:
    topics = GatedLog(ledger)
    store = LedgerStore(topics, SystemClock(), deadline_seconds=1.0)
    await store.open()
    topics.gate.clear()
    with pytest.raises(LedgerUnavailable, match=r"no answer from memory.ledger within 1 s"):
        await store.append(0, [FLOW])
    topics.gate.set()
    await store.read_to_end()
    assert await store.append(0, [FLOW]) == (True,)
    assert ledger.end == 1
    await store.close()


async def test_large_appends_are_split(ledger: MemoryLedger, open_store: OpenStore) -> None:
    store = await open_store()
    await start_flow(store, lanes=8)
    before = ledger.end
    runs = tuple(Run(number * 2, 10**12 + number * 3) for number in range(20_000))
    appends = [store.append(1, [SourceRun(lane_id(number), 1, runs)]) for number in range(8)]
    assert await asyncio.gather(*appends) == [(True,)] * 8
    assert 2 < ledger.end - before <= 8
    assert all(len(entry or b"") <= ENTRY_BYTES for entry in ledger.entries)


@pytest.mark.parametrize("fault", [Fault.FAILS, Fault.ANSWER_LOST])
@pytest.mark.parametrize("step", range(5))
@pytest.mark.parametrize("which", ["save", "delete"])
async def test_a_trim_that_ends_halfway_leaves_a_readable_ledger(
    ledger: MemoryLedger, open_store: OpenStore, fault: Fault, step: int, which: str
) -> None:
    store = await open_store()
    await start_flow(store, lanes=3)
    for round_number in range(3):
        for number in range(6):
            runs = tuple(Run(round_number * 1000 + number * 10 + step, number * 20 + 3 * step) for step in range(3))
            await store.append(1, [SourceRun(lane_id(number % 3), 1, runs)])
        if round_number == 1:
            await store.trim(kept_entries=0)
    (ledger.save_faults if which == "save" else ledger.delete_faults).extend([*[None] * step, fault])
    try:
        await store.trim(kept_entries=0)
    except LedgerUnavailable:
        assert plain((await open_store()).state) == plain(store.state)
    ledger.save_faults.clear()
    ledger.delete_faults.clear()
    await store.append(1, [SourceRun(LANE, 1, (Run(5000, 9000),))])
    assert plain((await open_store()).state) == plain(store.state)
    await store.trim(kept_entries=0)
    assert plain((await open_store()).state) == plain(store.state)
    assert not ledger.entries
    ledger.compact()
    assert plain((await open_store()).state) == plain(store.state)
    assert len([row for row in ledger.rows if row is not None]) == 1 + 3


async def test_a_reader_that_fell_behind_starts_over_from_the_snapshots(
    ledger: MemoryLedger, open_store: OpenStore
) -> None:
    store = await open_store()
    await start_flow(store)
    topics = GatedLog(ledger)
    behind = LedgerStore(topics, SystemClock(), deadline_seconds=2)
    await behind.open()
    topics.gate.clear()
    own = asyncio.create_task(behind.append(1, [LaneTaken(LANE, 2, "r2")]))
    await asyncio.wait_for(store.until(lambda: store.state.lanes[LANE].grant == 2), 20)
    await store.trim(kept_entries=0)
    await store.append(1, [opened(1)])
    topics.gate.set()
    with pytest.raises(LedgerUnavailable, match="trimmed before an append was read back"):
        await own
    await behind.read_to_end()
    assert plain(behind.state) == plain(store.state)
    assert await behind.append(1, [LaneTaken(LANE, 3, "r2")]) == (True,)
    await behind.close()


async def test_a_ledger_that_lost_its_tail_is_refused(
    ledger: MemoryLedger, make_store: MakeStore, open_store: OpenStore
) -> None:
    store = await open_store()
    await start_flow(store)
    await store.read_to_end()
    await store.save(store.recorded_end)
    ledger.truncate(2)
    with pytest.raises(LedgerWentBack):
        await store.append(1, [opened(1)])
    # It has grown again beyond what was known, under another leader.
    ledger.entries.extend([ledger.entries[0]] * 5)
    with pytest.raises(LedgerWentBack, match=r"lost what it held below offset 3 when its leader changed"):
        await make_store().open()


async def test_a_ledger_without_the_snapshots_that_it_needs_is_refused(
    ledger: MemoryLedger, make_store: MakeStore, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await open_store()
    await start_flow(store)
    await store.trim(kept_entries=0)
    ledger.rows.clear()
    monkeypatch.setattr("mirrord.ledger.store.store.RETRY_SECONDS", 0)
    with pytest.raises(LedgerCorrupt, match=r"begins at offset 3, its snapshots end at 0: .*`mirrord rebuild`"):
        await make_store().open()


@pytest.mark.parametrize("entry", [b"\x07\x90", b"\x01\x94\x01", b"\x7f\x90"])
async def test_a_corrupt_entry_ends_the_store(
    ledger: MemoryLedger, make_store: MakeStore, open_store: OpenStore, entry: bytes
) -> None:
    store = await open_store()
    await start_flow(store)
    waiting = asyncio.create_task(store.until(lambda: False))
    ledger.entries.append(entry)
    ledger.wake()
    with pytest.raises(LedgerCorrupt):
        await waiting
    assert isinstance(store.failure, LedgerCorrupt)
    for request in (store.append(1, [opened(1)]), store.save(progress(0, 1)), store.trim()):
        with pytest.raises(LedgerCorrupt):
            await request
    with pytest.raises(LedgerCorrupt):
        await make_store().open()


async def test_a_missing_offset_ends_the_store(ledger: MemoryLedger, open_store: OpenStore) -> None:
    store = await open_store()
    ledger.start += 1
    store._log.seek(1)  # type: ignore[reportPrivateUsage]
    ledger.entries.append(b"")
    ledger.wake()
    with pytest.raises(LedgerCorrupt, match=r"lacks the offsets 0 to 0"):
        await store.until(lambda: False)


async def test_a_forgotten_copy_is_gone_with_the_next_trim(ledger: MemoryLedger, open_store: OpenStore) -> None:
    store = await open_store()
    await start_flow(store)
    await store.save(progress(0, 1))
    await store.trim(kept_entries=0)
    assert any(LANE in row.key for row in ledger.rows if row is not None)
    ids = LaneKey.parse(LANE)
    await store.append(1, [CopyForgotten("orders", ids.source_topic_id, "eu.orders", ids.target_topic_id)])
    ledger.delete_faults.append(Fault.FAILS)
    with pytest.raises(LedgerUnavailable):
        await store.trim(kept_entries=0)
    again = await open_store()
    assert again.state.lanes == {}
    assert again.state.progress == {}
    await store.trim(kept_entries=0)
    ledger.compact()
    assert not any(LANE in row.key for row in ledger.rows if row is not None)
    assert (await open_store()).state.forgotten_topics == {"orders": None}


async def test_readers_that_never_trim_drop_forgotten_lanes_too(ledger: MemoryLedger, open_store: OpenStore) -> None:
    store = await open_store()
    await start_flow(store)
    await store.trim(kept_entries=0)
    reader = await open_store()
    ids = LaneKey.parse(LANE)
    await store.append(1, [CopyForgotten("orders", ids.source_topic_id, "eu.orders", ids.target_topic_id)])
    await reader.until(lambda: LANE in reader.state.forgotten_lanes)
    ledger.delete_faults.append(Fault.FAILS)
    with pytest.raises(LedgerUnavailable):
        await store.trim(kept_entries=0)
    restored = await open_store()
    assert LANE in restored.state.forgotten_lanes
    await store.trim(kept_entries=0)  # the lane is in the removed part; its snapshot follows
    await reader.read_to_end()
    assert LANE in reader.state.forgotten_lanes
    await store.trim(kept_entries=0)
    for each in (reader, restored):
        await each.read_to_end()
        assert not each.state.forgotten_lanes


async def test_pruned_runs_are_gone_with_the_next_trim(ledger: MemoryLedger, open_store: OpenStore) -> None:
    store = await open_store()
    await start_flow(store)
    runs = tuple(Run(number * 10, number * 20) for number in range(10))
    await store.append(1, [SourceRun(LANE, 1, runs), TargetRun(LANE, 1, 0, 0, 1)])
    assert store.prune(LANE, source_log_start=150, target_log_start=45) == 4
    await store.trim(kept_entries=0)
    later = await open_store()
    assert plain(later.state) == plain(store.state)
    assert later.state.lanes[LANE].source_runs.offset_of(40) == 80
    assert later.state.lanes[LANE].source_runs.offset_of(39) is None


async def test_other_readers_forget_what_the_holder_has_pruned(ledger: MemoryLedger, open_store: OpenStore) -> None:
    holder = await open_store()
    await start_flow(holder)
    reader = await open_store()
    hole = [HoleFound(LANE, 1, 30, 39, 50, 60), SourceRun(LANE, 1, (Run(50, 30), Run(60, 50)))]
    lost = SourceRun(LANE, 1, (Run(70, 55),), (Verdict(55, 60, "truncated"),))
    run = SourceRun(LANE, 1, (Run(0, 0),))
    await holder.append(1, [run, TargetRun(LANE, 1, 0, 0, 1), TargetRun(LANE, 1, 40, 30, 1), *hole, lost])
    await reader.read_to_end()
    lane = reader.state.lanes[LANE]
    assert holder.prune(LANE, source_log_start=50, target_log_start=49)  # ordinal 59 can still be read
    await holder.trim(kept_entries=0)
    await reader.read_to_end()
    assert (len(lane.source_runs), len(lane.holes), len(lane.truncations)) == (3, 1, 1)
    assert holder.prune(LANE, source_log_start=65, target_log_start=62)
    await holder.trim(kept_entries=0)
    await reader.read_to_end()
    assert (len(lane.source_runs), lane.holes, lane.truncations) == (1, (), ())
    assert plain(reader.state) == plain(holder.state) == plain((await open_store()).state)


@pytest.fixture
def short_of_memory() -> Generator[None]:
    with scarce():
        yield


@pytest.mark.usefixtures("short_of_memory")
async def test_a_snapshot_holds_what_memory_has_let_go(ledger: MemoryLedger) -> None:
    stores: list[LedgerStore] = []

    async def opened_store(attic: MemoryAttic) -> LedgerStore:
        stores.append(LedgerStore(MemoryLog(ledger), SystemClock(), deadline_seconds=2, memory=no_room(attic)))
        await stores[-1].open()
        return stores[-1]

    attic = MemoryAttic()
    store = await opened_store(attic)
    await start_flow(store)
    for number in range(10):
        runs = tuple(Run(number * 100 + step * 5, number * 100 + step * 7) for step in range(20))
        await store.append(1, [SourceRun(LANE, 1, runs), TargetRun(LANE, 1, 0, 0, 1)])
    assert len(attic.held) > 8
    # A new holder writes all pieces again, under its own keys, and then no longer needs the old ones.
    await store.append(2, [LeaseTaken(2, HOLDER, 6000)])
    for _ in range(2):
        await store.trim(kept_entries=0)
        attic = MemoryAttic()
        later = await opened_store(attic)
        assert plain(later.state) == plain(store.state)
        assert len(attic.held) > 8
        store = later
        await store.append(2, [LaneTaken(LANE, 2, "r")])
    for each in stores:
        await each.close()


async def test_a_read_only_store_only_reads(make_store: MakeStore, open_store: OpenStore) -> None:
    writer = await open_store()
    await start_flow(writer)
    reader = make_store()
    await reader.open(read_only=True)
    assert plain(reader.state) == plain(writer.state) != plain(FlowState())
    await writer.append(1, [opened(1)])
    await reader.read_to_end()
    assert plain(reader.state) == plain(writer.state)
    await reader.close()
