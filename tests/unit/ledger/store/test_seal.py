"""Ledgers with signatures: what is accepted, skipped and refused, how a ledger is signed, and how keys are replaced."""

import asyncio
from collections.abc import AsyncGenerator, Callable

import pytest

from mirrord.config.ledger import LedgerConfig
from mirrord.config.loader import load_text
from mirrord.config.security import Secret
from mirrord.ledger.codec import SIGNED, encode_entry, encode_state
from mirrord.ledger.errors import LedgerCorrupt, NotOurs, NotSigned, SignedLedger, TooNew
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.commands import LedgerSigned, RecordSkipped
from mirrord.ledger.facts.core import LaneTaken, LeaseReleased, LeaseRenewed
from mirrord.ledger.state_topic_records import LEASE_KEY, progress_key, state_key
from mirrord.ledger.store.history import LedgerReading, read_gaps
from mirrord.ledger.store.kafka_log import seal_of
from mirrord.ledger.store.log_interface import StateRow
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.ledger.store.seal import Seal, SigningKey
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.operations.ledger_signing import sign_ledger
from mirrord.operations.ledger_skip import order_skip
from mirrord.runtime.clock import SystemClock
from tests.fixtures.ledger import HOLDER, entry, opened, plain
from tests.fixtures.ledger_contract import LANE, progress, start_flow

ONE, TWO, THREE = (SigningKey(letter * 32) for letter in "abc")
ADA = Origin("ada@host", "why", 1_700_000_000_000)
Open = Callable[..., "asyncio.Future[LedgerStore]"]
LEDGER, STATE = "mirrord.eu-us.ledger", "mirrord.eu-us.state"


def seal(*keys: SigningKey, adopts: bool = False, flow: str = "eu-us", topic_id: str = "memory-ledger") -> Seal:
    made = Seal(f"mirrord.{flow}.ledger", f"mirrord.{flow}.state", keys, adopts=adopts)
    made.topic_id = topic_id
    return made


@pytest.fixture
def ledger() -> MemoryLedger:
    return MemoryLedger()


@pytest.fixture
async def open_store(ledger: MemoryLedger) -> AsyncGenerator[Callable[..., object]]:
    stores: list[LedgerStore] = []

    async def make(*keys: SigningKey) -> LedgerStore:
        store = LedgerStore(MemoryLog(ledger, seal(*keys)), SystemClock(), deadline_seconds=2)
        await store.open()
        stores.append(store)
        return store

    yield make
    for store in stores:
        await store.close()


def sign(ledger: MemoryLedger, *keys: SigningKey) -> "asyncio.Task[str]":
    def open_log(*, adopts: bool) -> MemoryLog:
        return MemoryLog(ledger, seal(*keys, adopts=adopts))

    return asyncio.ensure_future(sign_ledger(open_log, HOLDER, 100, ADA))


async def test_all_that_is_written_is_signed_and_can_be_read_with_the_key(ledger: MemoryLedger, open_store) -> None:
    store = await open_store(ONE)
    await start_flow(store)
    await store.save(progress(0, 5))
    await store.trim(kept_entries=0)
    await store.append(1, [LaneTaken(LANE, 2, "r2")])
    assert {value[0] for value in ledger.entries if value} == {SIGNED}
    assert {row.value[0] for row in ledger.rows if row and row.value} == {SIGNED}
    later = await open_store(TWO, ONE)
    assert plain(later.state) == plain(store.state)
    assert (later.skipped.count, store.skipped.count) == (0, 0)
    assert await read_gaps(LedgerReading(MemoryLog(ledger, seal(ONE))))


async def test_records_without_a_valid_signature_are_skipped(ledger: MemoryLedger, open_store) -> None:
    store = await open_store(ONE)
    await start_flow(store)
    forged = encode_entry(entry(LaneTaken(LANE, 2, "evil")))
    for bad in (
        forged,
        seal(ONE, flow="us-eu").sign_entry(forged),
        seal(ONE, topic_id="another").sign_entry(forged),
        seal(ONE).sign_row(LEASE_KEY, forged),
        seal(ONE).sign_entry(forged)[:-1] + b"\x00",
        bytes([SIGNED]) + b"\x93\x01\x02\x03",
    ):
        ledger.entries.append(bad)
    renewed = LeaseRenewed(1, 99, 3)
    for row in (
        StateRow(LEASE_KEY, encode_state(renewed)),
        StateRow(LEASE_KEY, seal(ONE).sign_row(progress_key(LANE), encode_state(renewed))),
        StateRow(LEASE_KEY, seal(ONE, flow="us-eu").sign_row(LEASE_KEY, encode_state(renewed))),
        StateRow(LEASE_KEY, seal(TWO).sign_row(LEASE_KEY, encode_state(renewed))),
    ):
        ledger.rows.append(row)
    ledger.wake()
    await store.save(progress(0, 5))
    await store.read_to_end()
    for each in (store, await open_store(ONE)):
        assert each.state.lanes[LANE].grant == 1
        assert each.renewal is None
        assert each.skipped.count == 7


async def test_a_replayed_entry_has_no_effect(ledger: MemoryLedger, open_store) -> None:
    store = await open_store(ONE)
    await start_flow(store)
    before = plain(store.state) | {"next_offset": 0}
    ledger.entries.extend(list(ledger.entries))
    ledger.wake()
    await store.read_to_end()
    assert plain(store.state) | {"next_offset": 0} == before


async def test_a_key_that_is_not_configured_stops_readers(ledger: MemoryLedger, open_store) -> None:
    """A reader that skipped what a new key has signed could take the flow from the daemon that has this key."""
    store = await open_store(ONE)
    await start_flow(store)
    new = await open_store(TWO, ONE)
    assert await new.append(1, [LaneTaken(LANE, 2, "r2")]) == (True,)
    with pytest.raises(LedgerCorrupt, match=rf"not configured \(id {TWO.id.hex()}\): add it to `keys`"):
        await store.read_to_end()
    offset = ledger.end - 1
    with pytest.raises(LedgerCorrupt, match="not configured"):
        await open_store(ONE)
    # An operator who knows that nobody has this key may skip the record.
    assert await order_skip(MemoryLog(ledger, seal(ONE)), offset, ADA) == "ordered"
    assert (await open_store(ONE)).state.lanes[LANE].grant == 1


async def test_only_a_signed_order_skips(ledger: MemoryLedger, open_store) -> None:
    await start_flow(await open_store(ONE))
    offset = ledger.end
    ledger.entries.append(seal(ONE).sign_entry(b"\x09\x94"))
    ledger.entries.append(encode_entry(entry(RecordSkipped(offset, ADA))))
    ledger.entries.append(seal(TWO).sign_entry(encode_entry(entry(RecordSkipped(offset, ADA)))))
    with pytest.raises(LedgerCorrupt, match=f"offset {offset}: "):
        await open_store(ONE)
    await order_skip(MemoryLog(ledger, seal(ONE)), offset, ADA)
    with pytest.raises(LedgerCorrupt, match=f"offset {offset + 2}: .*not configured"):
        await open_store(ONE)


async def test_a_newer_entry_within_a_signature_is_never_skipped(ledger: MemoryLedger, open_store) -> None:
    await start_flow(await open_store(ONE))
    ledger.entries.append(seal(ONE).sign_entry(b"\x3f\x90"))
    ledger.entries.append(seal(ONE).sign_entry(encode_entry(entry(RecordSkipped(ledger.end - 1, ADA)))))
    with pytest.raises(TooNew):
        await open_store(ONE)


async def test_a_program_without_the_key_stops(ledger: MemoryLedger, open_store) -> None:
    await start_flow(await open_store(ONE))
    with pytest.raises(SignedLedger, match="is signed, but `key`"):
        await open_store()
    with pytest.raises(ConfigError, match="must not be skipped"):
        await order_skip(MemoryLog(ledger, seal()), 0, ADA)
    ledger.rows.append(StateRow("x", seal(ONE).sign_row("x", b"")))
    with pytest.raises(SignedLedger):
        await open_store()


@pytest.mark.parametrize("kept", [None, 0])
async def test_an_existing_ledger_is_signed_by_an_order(ledger: MemoryLedger, open_store, kept: int | None) -> None:
    former = await open_store()
    await start_flow(former)
    await former.save(progress(0, 5))
    await former.append(1, [LeaseReleased(1)])
    if kept is not None:
        await former.trim(kept_entries=kept)
    await former.close()
    with pytest.raises(NotSigned, match="`mirrord ledger sign`"):
        await open_store(ONE)
    with pytest.raises(ConfigError, match="no key is set"):
        await sign(ledger)
    assert (await sign(ledger, ONE)).startswith("signed: the state of the ledger up to offset")
    assert await sign(ledger, ONE) == "nothing to do: the ledger is signed, or is empty"
    later = await open_store(ONE)
    assert later.state.progress == {LANE: progress(0, 5)}
    assert plain(later.state)["lanes"] == plain(former.state)["lanes"]
    assert later.state.released
    assert later.skipped.count == 0
    facts = [
        fact
        async for read in LedgerReading(MemoryLog(ledger, seal(ONE))).entries(follow=False)
        if not isinstance(read.entry, LedgerCorrupt)
        for fact in read.entry.facts
    ]
    assert LedgerSigned(ADA) in facts
    # From then on, nothing without a signature is accepted.
    ledger.entries.append(encode_entry(entry(opened(7), epoch=2)))
    assert plain((await open_store(ONE)).state)["lanes"] == plain(later.state)["lanes"]


async def test_an_interrupted_signing_leaves_a_ledger_that_is_refused(ledger: MemoryLedger, open_store) -> None:
    former = await open_store()
    await start_flow(former)
    await former.save(progress(0, 5))
    await former.append(1, [LeaseReleased(1)])
    await former.close()
    count = len(ledger.rows)
    await sign(ledger, ONE)
    rows, entries = list(ledger.rows), list(ledger.entries)
    last = max(index for index, row in enumerate(rows) if row and row.key.startswith("flow/"))
    for kept in range(count, last + 1):
        ledger.rows, ledger.entries = rows[:kept], list(entries)
        with pytest.raises(NotSigned):
            await open_store(ONE)
        assert (await sign(ledger, ONE)).startswith("signed")
        later = await open_store(ONE)
        assert plain(later.state)["lanes"] == plain(former.state)["lanes"]
        await later.close()


async def test_removing_the_signed_snapshot_does_not_bring_unsigned_entries_back(
    ledger: MemoryLedger, open_store
) -> None:
    former = await open_store()
    await start_flow(former)
    await former.append(1, [LeaseReleased(1)])
    await former.close()
    await sign(ledger, ONE)
    ledger.rows.extend(StateRow(row.key, None) for row in list(ledger.rows) if row)
    with pytest.raises(NotSigned):
        await open_store(ONE)


def test_the_key_of_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "k" * 16)
    monkeypatch.setenv("SHORT", "k" * 15)
    both = LedgerConfig(Secret("env:KEY"), (Secret("env:SHORT"),), ("old",))
    assert not seal_of("eu-us", None).is_used
    assert not seal_of("old", both).is_used
    assert seal_of("eu-us", LedgerConfig(Secret("env:KEY"))).is_used
    with pytest.raises(EnvironmentFault, match="less than 16 characters"):
        seal_of("eu-us", both)


def test_the_table_of_the_configuration() -> None:
    base = '[clusters.eu]\nbootstrap = "a:1"\n[clusters.us]\nbootstrap = "b:1"\n'
    base += '[[flows]]\nfrom = "eu"\nto = "us"\ntopics = ["x"]\n'
    found = load_text(base + '[ledger]\nkey = "env:A"\nkeys = ["env:B"]\nunsigned = ["f"]\n', "c")
    assert found.ledger == LedgerConfig(Secret("env:A"), (Secret("env:B"),), ("f",))
    assert found.clusters["us"].ledger == found.ledger
    assert load_text(base, "c").clusters["us"].ledger is None
    for table, fault in (
        ('key = "plain"', "ledger.key: found ***"),
        ('key = "env:A"\nkeys = ["secret-in-plain"]', r"ledger.keys\[0\]: found \*\*\*"),
        ('keys = ["env:A"]', "ledger.key: missing although keys is set"),
    ):
        with pytest.raises(ConfigError, match=fault if "\\" in fault else fault.replace("*", r"\*")) as raised:
            load_text(f"{base}[ledger]\n{table}\n", "c")
        assert "in-plain" not in str(raised.value)


def test_a_record_of_another_form_is_not_checked() -> None:
    assert seal(ONE).entry(b"hello") == b"hello"
    with pytest.raises(NotOurs):
        seal(ONE).row(state_key(LeaseRenewed(1, 2, 3)), bytes([SIGNED]) + b"\x90")
