"""`mirrord rebuild` replaces only a ledger that is lost, not one that this configuration cannot read."""

import pytest

from mirrord.audit.lost_ledger import lost
from mirrord.config.loader import load_text
from mirrord.ledger.codec import VERSION, encode_entry
from mirrord.ledger.store import cluster_access
from mirrord.ledger.store.log_interface import StateRow
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.ledger.store.seal import Seal, SigningKey
from mirrord.model.errors import EnvironmentFault
from tests.fixtures.ledger import entry, opened

CONF = (
    '[clusters.eu]\nbootstrap = "127.0.0.1:1"\n[clusters.us]\nbootstrap = "127.0.0.1:1"\n'
    '[[flows]]\nfrom = "eu"\nto = "us"\ntopics = [".*"]\n'
)
KEY, ANOTHER = SigningKey("a" * 32), SigningKey("b" * 32)


def seal(*keys: SigningKey) -> Seal:
    made = Seal("ledger", "state", keys)
    made.topic_id = "memory-ledger"
    return made


async def why_lost(ledger: MemoryLedger, monkeypatch: pytest.MonkeyPatch, *keys: SigningKey) -> str:
    monkeypatch.setattr(cluster_access, "KafkaLog", lambda *_, **__: MemoryLog(ledger, seal(*keys)))
    config = load_text(CONF, "conf.toml")
    return await lost(config, config.flows[0])


DATA = encode_entry(entry(opened(1)))


@pytest.mark.parametrize(
    ("data", "keys", "why"),
    [
        (seal(KEY).sign_entry(DATA), (), "is signed, but `key`"),
        (DATA, (KEY,), "has no signature"),
        (seal(ANOTHER).sign_entry(DATA), (KEY,), "not configured"),
        (bytes([VERSION + 1]) + DATA[1:], (), "start the newer version"),
    ],
    ids=["no key", "no signature", "unknown key", "too new"],
)
async def test_a_ledger_that_cannot_be_read_with_this_configuration_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, data: bytes, keys: tuple[SigningKey, ...], why: str
) -> None:
    with pytest.raises(EnvironmentFault, match=f"{why}.*is not lost, so it is not rebuilt.*mirrord.eu-us.state first"):
        await why_lost(MemoryLedger(entries=[data]), monkeypatch, *keys)


async def test_a_damaged_ledger_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "cannot be read" in await why_lost(MemoryLedger(entries=[b"\x09\x94"]), monkeypatch)
    assert await why_lost(MemoryLedger(rows=[StateRow("x", b"hello")]), monkeypatch) == "the ledger is empty"
