"""Records in the ledger's topics that mirrord did not write, that cannot be read, or that a newer version wrote."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from structlog.testing import capture_logs

from mirrord.ledger.codec import VERSION, decode_entry, encode_entry, encode_state, is_framed
from mirrord.ledger.errors import LedgerCorrupt, LedgerWentBack, NotOurs, TooNew
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.commands import RecordSkipped
from mirrord.ledger.facts.core import LaneTaken, LeaseRenewed
from mirrord.ledger.gaps import Gaps
from mirrord.ledger.state_topic_records import LEASE_KEY, progress_key
from mirrord.ledger.store.history import LedgerReading, read_gaps
from mirrord.ledger.store.log_interface import StateRow
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.model.errors import ConfigError
from mirrord.operations.ledger_skip import order_skip
from tests.fixtures.ledger import entry
from tests.fixtures.ledger_contract import LANE, OpenStore, progress, start_flow
from tests.fixtures.memory_stores import opening

ADA = Origin("ada@host", "a tool wrote to it", 1_700_000_000_000)
FOREIGN = [
    None,
    b"",
    b"\xff",
    b"hello",
    b'{"a": 1}',
    b"\x00\x00\x00\x00\x07avro",
    b"\x0a\x03abc",
    bytes([9]),
    "9\u0710".encode(),
    b"\xff\x94\x01\x02\x90\xa0",
]
UNREADABLE = [b"\x09\x94", b"\x09\x94\x01\x02\x91\x93\xa1x\x01\x02\xa0", b"\x09\xdc\x00"]
TOO_NEW = bytes([VERSION + 1]) + encode_entry(entry())[1:]


@pytest.fixture
def ledger() -> MemoryLedger:
    return MemoryLedger()


@pytest.fixture
async def open_store(ledger: MemoryLedger) -> AsyncGenerator[OpenStore]:
    async with opening(ledger) as make:
        yield make


@pytest.mark.parametrize("data", FOREIGN)
async def test_a_record_of_another_client_is_skipped_and_reported(
    ledger: MemoryLedger, open_store: OpenStore, data: bytes | None
) -> None:
    store = await open_store()
    await start_flow(store)
    with pytest.raises(NotOurs):
        decode_entry(data)
    with capture_logs() as logs:
        ledger.entries.extend([data, data])
        ledger.wake()
        assert await store.append(1, [LaneTaken(LANE, 2, "r2")]) == (True,)
        assert (await open_store()).state.lanes[LANE].grant == 2
    ranges = [(line["first"], line["last"]) for line in logs if line["event"] == "ledger_records_skipped"]
    assert ranges == [(ledger.end - 3, ledger.end - 2)] * 2
    assert store.skipped.count == 2
    assert store.skipped.remark().startswith("2 records in the ledger's topics skipped")


async def test_a_foreign_record_in_place_of_an_acknowledged_entry_is_a_loss(
    ledger: MemoryLedger, open_store: OpenStore
) -> None:
    store = await open_store()
    await start_flow(store)
    store._outbox._standing[ledger.end] = 99
    ledger.entries.append(b"hello")
    ledger.wake()
    with pytest.raises(LedgerWentBack):
        await store.read_to_end()


@pytest.mark.parametrize("data", UNREADABLE)
async def test_a_record_that_cannot_be_read_stops_the_flow_until_it_is_skipped(
    ledger: MemoryLedger, open_store: OpenStore, data: bytes
) -> None:
    store = await open_store()
    await start_flow(store)
    offset = ledger.end
    assert is_framed(data)
    ledger.entries.extend([data, encode_entry(entry(LaneTaken(LANE, 2, "r2")))])
    ledger.wake()
    line = f"memory.ledger, offset {offset}: a ledger record cannot be read: .*`mirrord ledger skip --offset {offset}`"
    with pytest.raises(LedgerCorrupt, match=line):
        await store.read_to_end()
    with pytest.raises(LedgerCorrupt, match=line):
        await open_store()
    assert await order_skip(MemoryLog(ledger), offset, ADA) == "ordered"
    assert await order_skip(MemoryLog(ledger), offset, ADA) == "already ordered"
    later = await open_store()
    assert later.state.lanes[LANE].grant == 2
    assert later.skipped.count == 1
    # A second record that cannot be read needs an order of its own.
    ledger.entries.append(data)
    with pytest.raises(LedgerCorrupt, match=f"offset {ledger.end - 1}: "):
        await open_store()


@pytest.mark.parametrize("stop", [TOO_NEW, bytes([VERSION + 5]) + b"\x91\xc0"])
async def test_an_entry_of_a_newer_version_is_never_skipped(
    ledger: MemoryLedger, open_store: OpenStore, stop: bytes
) -> None:
    await start_flow(await open_store())
    offset = ledger.end
    ledger.entries.append(stop)
    ledger.entries.append(encode_entry(entry(RecordSkipped(offset, ADA))))
    with pytest.raises(TooNew, match=rf"has version {stop[0]}, .*; start the newer version"):
        await open_store()
    with pytest.raises(ConfigError, match="must not be skipped"):
        await order_skip(MemoryLog(ledger), offset, ADA)


async def test_only_a_record_that_cannot_be_read_may_be_skipped(ledger: MemoryLedger, open_store: OpenStore) -> None:
    store = await open_store()
    await start_flow(store)
    ledger.entries.append(b"hello")
    end = ledger.end
    with pytest.raises(ConfigError, match="can be read; only"):
        await order_skip(MemoryLog(ledger), 0, ADA)
    with pytest.raises(ConfigError, match="was not written by mirrord"):
        await order_skip(MemoryLog(ledger), end - 1, ADA)
    for offset in (-1, end):
        with pytest.raises(ConfigError, match=f"has no offset {offset}; it has the offsets 0 to {end - 1}"):
            await order_skip(MemoryLog(ledger), offset, ADA)
    assert ledger.end == end
    # An order has no effect on an entry that can be read.
    ledger.entries.append(encode_entry(entry(RecordSkipped(0, ADA))))
    assert (await open_store()).state.flow


async def test_history_shows_skipped_records_and_gaps_need_an_order(
    ledger: MemoryLedger, open_store: OpenStore
) -> None:
    await start_flow(await open_store())
    first = ledger.end
    ledger.entries.extend([b"hello", UNREADABLE[0]])

    async def shown() -> list[tuple[int, bool]]:
        entries = LedgerReading(MemoryLog(ledger)).entries(follow=False)
        return [(each.offset, each.skipped) async for each in entries if isinstance(each.entry, LedgerCorrupt)]

    assert await shown() == [(first, True), (first + 1, False)]
    with pytest.raises(LedgerCorrupt):
        await read_gaps(LedgerReading(MemoryLog(ledger)))
    await order_skip(MemoryLog(ledger), first + 1, ADA)
    assert await shown() == [(first, True), (first + 1, True)]
    assert isinstance(await read_gaps(LedgerReading(MemoryLog(ledger))), Gaps)


@pytest.mark.parametrize(
    "row",
    [
        StateRow(LEASE_KEY, b"hello"),
        StateRow(progress_key(LANE), b""),
        StateRow("not text: b'\\xff'", b"hello"),
        StateRow("elsewhere", encode_state(LeaseRenewed(1, 2, 3))),
    ],
)
async def test_a_foreign_record_of_the_state_topic_is_skipped(
    ledger: MemoryLedger, open_store: OpenStore, row: StateRow
) -> None:
    store = await open_store()
    await start_flow(store)
    await store.save(progress(0, 5), LeaseRenewed(1, 7, 3))
    ledger.rows.append(row)
    ledger.wake()
    await store.read_to_end()
    later = await open_store()
    assert later.renewal == store.renewal == LeaseRenewed(1, 7, 3)
    assert later.state.progress == store.state.progress == {LANE: progress(0, 5)}
    assert (later.skipped.count, store.skipped.count) == (1, 1)


async def test_a_newer_state_record_stops_even_under_an_unknown_key(
    ledger: MemoryLedger, open_store: OpenStore
) -> None:
    await start_flow(await open_store())
    ledger.rows.append(StateRow("elsewhere", bytes([VERSION + 1]) + b"\x91\x01"))
    with pytest.raises(TooNew, match="state record 'elsewhere' has version"):
        await open_store()


async def test_many_readers_go_on_at_once_after_the_order(ledger: MemoryLedger, open_store: OpenStore) -> None:
    await start_flow(await open_store())
    ledger.entries.append(UNREADABLE[0])
    offset = ledger.end - 1
    await order_skip(MemoryLog(ledger), offset, ADA)
    stores = await asyncio.gather(*(open_store() for _ in range(3)))
    assert {store.state.next_offset for store in stores} == {offset + 2}
