"""Records of the state topic that cannot be read: which ones may be skipped, and what is in force then."""

from collections.abc import AsyncGenerator

import pytest

from mirrord.ledger.codec import VERSION, decode_state, encode_state
from mirrord.ledger.errors import LedgerCorrupt
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.commands import StateRecordSkipped
from mirrord.ledger.facts.core import LaneTaken, LeaseRenewed, LeaseTaken, SourceRun
from mirrord.ledger.state_topic_records import (
    LEASE_KEY,
    LEDGER_END_KEY,
    Tenure,
    flow_key,
    lane_key,
    progress_key,
    runs_key,
)
from mirrord.ledger.store.history import LedgerReading
from mirrord.ledger.store.log_interface import StateRow
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.ledger.store.seal import NO_SEAL, Seal, SigningKey
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.runs import Run
from mirrord.operations.state_skip import order_state_skip
from mirrord.runtime.clock import SystemClock
from tests.fixtures.ledger import HOLDER, lane_id, opened, plain
from tests.fixtures.ledger_contract import LANE, OpenStore, progress, start_flow
from tests.fixtures.memory_stores import opening

ADA = Origin("ada@host", "a disk was damaged", 1_700_000_000_000)
UNREADABLE = b"\x09\x94"
KEY, ANOTHER = SigningKey("a" * 32), SigningKey("b" * 32)


@pytest.fixture
def ledger() -> MemoryLedger:
    return MemoryLedger()


@pytest.fixture
async def open_store(ledger: MemoryLedger) -> AsyncGenerator[OpenStore]:
    async with opening(ledger) as make:
        yield make


def damage(ledger: MemoryLedger, key: str, seal: Seal = NO_SEAL) -> int:
    """Append a record that cannot be read, and return its offset."""
    value = seal.sign_row(key, UNREADABLE) if seal.is_used else UNREADABLE
    ledger.rows.append(StateRow(key, value))
    ledger.wake()
    return len(ledger.rows) - 1


async def skip(ledger: MemoryLedger, offset: int, seal: Seal = NO_SEAL) -> str:
    return await order_state_skip(lambda: MemoryLog(ledger, seal), offset, ADA)


async def begin(store: LedgerStore, lanes: int = 2) -> None:
    """Open lanes that have copied."""
    await start_flow(store, lanes)
    for number in range(lanes):
        await store.append(1, [SourceRun(lane_id(number), 1, (Run(0, 0),))])
        await store.save(progress(number, 5))


async def facts(ledger: MemoryLedger) -> list[object]:
    entries = LedgerReading(MemoryLog(ledger)).entries(follow=False)
    return [
        fact
        async for read in entries
        if not isinstance(read.entry, LedgerCorrupt)
        for fact, bound in zip(read.entry.facts, read.bound or (), strict=False)
        if bound
    ]


async def test_the_line_names_the_command_and_the_previous_record_is_in_force_again(
    ledger: MemoryLedger, open_store: OpenStore
) -> None:
    store = await open_store()
    await begin(store)
    ledger.rows.append(StateRow(progress_key(LANE), b"hello"))
    offset = damage(ledger, progress_key(LANE))
    line = (
        f"memory.state, offset {offset}: a state record 'progress/.*' cannot be read: .*; "
        f"`mirrord ledger skip --state --offset {offset}` skips exactly this record"
    )
    with pytest.raises(LedgerCorrupt, match=line):
        await store.read_to_end()
    with pytest.raises(LedgerCorrupt, match=line):
        await open_store()
    said = await skip(ledger, offset)
    assert said.startswith(f"done: the record at offset {offset} of memory.state is no longer in force, and the record")
    later = await open_store()
    assert later.state.progress == {lane_id(each): progress(each, 5) for each in range(2)}
    assert (await facts(ledger))[-1] == StateRecordSkipped(offset, progress_key(LANE), ADA)
    assert (await skip(ledger, offset)).startswith("nothing to do: a newer record has replaced")


@pytest.mark.parametrize("key", [LEASE_KEY, LEDGER_END_KEY, progress_key(lane_id(7))])
async def test_a_record_that_only_saves_time_is_removed_if_it_has_no_predecessor(
    ledger: MemoryLedger, open_store: OpenStore, key: str
) -> None:
    store = await open_store()
    await begin(store)
    offset = damage(ledger, key)
    assert "is no longer in force, and is removed" in await skip(ledger, offset)
    assert plain((await open_store()).state)["progress"] == plain(store.state)["progress"]


@pytest.mark.parametrize("key", [progress_key(LANE), LEDGER_END_KEY])
async def test_a_lane_does_not_go_on_without_its_only_progress_record(
    ledger: MemoryLedger, open_store: OpenStore, key: str
) -> None:
    """A compaction may have removed the previous one, and an unfinished rebuild removes all."""
    await begin(await open_store())
    ledger.rows[:] = [None if row and row.key == progress_key(LANE) else row for row in ledger.rows]
    offset, end = damage(ledger, key), ledger.end
    with pytest.raises(EnvironmentFault, match=f"must not be skipped: .* the lane {LANE} has copied.*mirrord rebuild"):
        await skip(ledger, offset)
    assert (len(ledger.rows), ledger.end) == (offset + 1, end)


@pytest.mark.parametrize("kind", ["flow", "lane"])
async def test_the_only_snapshot_of_a_trimmed_ledger_is_not_skipped(
    ledger: MemoryLedger, open_store: OpenStore, kind: str
) -> None:
    store = await open_store()
    await begin(store)
    await store.trim(kept_entries=0)
    # An older state of the lane under the same key must not come into force.
    await store.append(1, [LaneTaken(LANE, 2, "r2"), opened(5)])
    await store.trim(kept_entries=0)
    tenure = store.state.tenure
    offset, end = damage(ledger, flow_key(tenure) if kind == "flow" else lane_key(tenure, LANE)), ledger.end
    with pytest.raises(EnvironmentFault, match=r"must not be skipped: without it, .*mirrord rebuild"):
        await skip(ledger, offset)
    assert (len(ledger.rows), ledger.end) == (offset + 1, end)


async def test_a_newer_lane_does_not_stand_in_for_a_missing_one(ledger: MemoryLedger, open_store: OpenStore) -> None:
    """An interrupted trim has written a lane that the snapshot of the flow does not know."""
    store = await open_store()
    await begin(store)
    await store.trim(kept_entries=0)
    rows = list(ledger.rows)
    await store.append(1, [opened(5)])
    await store.trim(kept_entries=10)
    newer = lane_key(store.state.tenure, lane_id(5))
    ledger.rows[:] = [*rows, *(row for row in ledger.rows[len(rows) :] if row and row.key == newer)]
    offset = damage(ledger, lane_key(store.state.tenure, LANE))
    with pytest.raises(EnvironmentFault, match="has only 1 of 2 lanes"):
        await skip(ledger, offset)


@pytest.mark.parametrize("kind", ["flow", "lane"])
async def test_snapshots_are_not_needed_while_the_ledger_is_whole(
    ledger: MemoryLedger, open_store: OpenStore, kind: str
) -> None:
    store = await open_store()
    await begin(store)
    await store.trim(kept_entries=1_000)
    tenure = store.state.tenure
    offset = damage(ledger, flow_key(tenure) if kind == "flow" else lane_key(tenure, LANE))
    await skip(ledger, offset)
    assert plain((await open_store()).state)["lanes"] == plain(store.state)["lanes"]


async def test_parts_that_no_snapshot_needs_are_removed(ledger: MemoryLedger, open_store: OpenStore) -> None:
    store = await open_store()
    await begin(store)
    assert await store.append(2, [LeaseTaken(2, HOLDER, 6000)]) == (True,)
    await store.trim(kept_entries=0)
    for key in (runs_key(store.state.tenure, LANE, "source", 0, 1, 7), flow_key(Tenure(1))):
        assert "no snapshot needs it" in await skip(ledger, damage(ledger, key))
    assert plain((await open_store()).state)["lanes"] == plain(store.state)["lanes"]


async def test_several_records_are_skipped_one_by_one(ledger: MemoryLedger, open_store: OpenStore) -> None:
    store = await open_store()
    await begin(store)
    await store.save(LeaseRenewed(1, 7, 3))
    offsets = [damage(ledger, key) for key in (LEASE_KEY, progress_key(LANE), LEASE_KEY)]
    assert (await skip(ledger, offsets[0])).startswith("nothing to do")
    assert "is in force again" in await skip(ledger, offsets[2])
    with pytest.raises(LedgerCorrupt, match=f"--offset {offsets[1]}`"):
        await open_store()
    await skip(ledger, offsets[1])
    later = await open_store()
    assert (later.renewal, later.state.progress[LANE]) == (LeaseRenewed(1, 7, 3), progress(0, 5))


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (encode_state(LeaseRenewed(1, 7, 3)), "can be read; only records that cannot be read may be skipped"),
        (None, "can be read"),
        (b"hello", "was not written by mirrord"),
        (bytes([VERSION + 1]) + b"\x91\x01", "start the newer version"),
    ],
)
async def test_only_a_record_that_cannot_be_read_may_be_skipped(
    ledger: MemoryLedger, open_store: OpenStore, value: bytes | None, fault: str
) -> None:
    await begin(await open_store())
    ledger.rows.append(StateRow(LEASE_KEY, value))
    end = len(ledger.rows)
    with pytest.raises(ConfigError, match=fault):
        await skip(ledger, end - 1)
    for offset in (-1, end):
        with pytest.raises(ConfigError, match=f"memory.state has no record at offset {offset}"):
            await skip(ledger, offset)
    assert len(ledger.rows) == end


async def test_in_a_signed_ledger_the_previous_record_is_signed_again(ledger: MemoryLedger) -> None:
    seal = Seal("ledger", "state", (KEY,))
    store = LedgerStore(MemoryLog(ledger, seal), SystemClock(), deadline_seconds=2)
    await store.open()
    await begin(store)
    await store.close()
    # Neither a forged record nor one with another key takes the place of the previous one.
    ledger.rows.append(StateRow(progress_key(LANE), encode_state(progress(0, 9))))
    ledger.rows.append(StateRow(progress_key(LANE), Seal("ledger", "state", (ANOTHER,)).sign_row("x", UNREADABLE)))
    with pytest.raises(ConfigError, match="not configured"):
        await skip(ledger, len(ledger.rows) - 1, seal)
    offset = damage(ledger, progress_key(LANE), seal)
    await skip(ledger, offset, seal)
    row = ledger.rows[-1]
    assert row is not None
    assert decode_state(row.key, seal.row(row.key, row.value or b"")) == progress(0, 5)
