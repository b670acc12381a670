"""The backlog of a catch-up: topics of records as applications write them, in batches of one size, with one codec.

Values are lines of JSON with repeated names and varying numbers, so they compress like real data. The number of records
that makes a batch of the wanted size is determined with the codec itself. The actual size of the batches is measured
afterwards.
"""

import random
from typing import Any, Literal, NamedTuple

import cramjam
from confluent_kafka import Producer

from bench.harness.clusters import Admin
from bench.harness.load import Topic, send
from mirrord.model.errors import EnvironmentFault

Codec = Literal["none", "lz4", "zstd"]

SAMPLES = 2_048
_SEED = 1
_FLUSH_S = 300
_FIELDS = ("customer", "warehouse", "currency", "region", "carrier", "channel", "status", "note")
_WORDS = ("pending", "shipped", "returned", "express", "standard", "north", "south", "online", "retail", "priority")


class Backlog(NamedTuple):
    """One topic."""

    name: str
    codec: Codec
    batch_bytes: int
    """Approximate stored size of a batch. 0: each record is a batch."""
    partitions: int
    stored_bytes: int
    """Approximate total size."""
    value_bytes: int = 1_000
    transaction_records: int = 0
    """Number of records in a transaction, spread over all partitions. 0: there are no transactions."""
    like_transactions: bool = False
    """Whether batches without transactions have as many records as a transaction has in a partition."""

    @property
    def topic(self) -> str:
        """Name of the topic."""
        return f"catch-up.{self.name.replace(', ', '-').replace(' ', '-')}"

    def scaled(self, share: float) -> "Backlog":
        """Return the same backlog with less data, but enough for a copy to reach its full speed before it ends."""
        return self._replace(stored_bytes=int(self.stored_bytes * max(share, 0.2)))


TRANSACTION_RECORDS = 100
_GB = 1_000_000_000
BASE = Backlog("lz4, 64 KiB, 4 partitions", "lz4", 64 << 10, 4, 2 * _GB)
BACKLOGS = (
    BASE,
    BASE._replace(name="none, 64 KiB, 4 partitions", codec="none"),
    BASE._replace(name="zstd, 64 KiB, 4 partitions", codec="zstd"),
    BASE._replace(name="lz4, 16 KiB, 4 partitions", batch_bytes=16 << 10),
    BASE._replace(name="lz4, 1 KiB, 4 partitions", batch_bytes=1 << 10, value_bytes=100, stored_bytes=_GB),
    BASE._replace(name="lz4, one record, 4 partitions", batch_bytes=0, value_bytes=100, stored_bytes=_GB // 5),
    BASE._replace(name="lz4, 64 KiB, 1 partition", partitions=1),
    BASE._replace(name="lz4, 64 KiB, 32 partitions", partitions=32),
    BASE._replace(
        name="lz4, transactions of 100 records", transaction_records=TRANSACTION_RECORDS, stored_bytes=_GB // 5
    ),
    BASE._replace(name="lz4, the same without transactions", like_transactions=True, stored_bytes=_GB // 5),
)
"""Variations around the first one, not all combinations."""


class Filled(NamedTuple):
    """What was written."""

    records: int
    records_per_batch: int


def values(value_bytes: int) -> list[bytes]:
    """Return lines of JSON of about this length."""
    chance = random.Random(_SEED)
    return [_value(chance, value_bytes) for _ in range(SAMPLES)]


def fill(bootstrap: str, backlog: Backlog) -> Filled:
    """Create the topic and write it. Raises EnvironmentFault."""
    Admin(bootstrap).create([Topic(backlog.topic, backlog.partitions, backlog.codec)])
    lines = values(backlog.value_bytes)
    stored_bytes = _stored(lines[:500], backlog.codec) / 500
    per_batch = _records_per_batch(backlog, stored_bytes)
    batches = max(1, round(backlog.stored_bytes / (stored_bytes * per_batch + 61)))
    producer = Producer(_settings(bootstrap, backlog, per_batch))
    if backlog.transaction_records:
        producer.init_transactions(30)
        batches -= batches % backlog.partitions
    for batch in range(batches):
        begins = batch % backlog.partitions == 0
        if backlog.transaction_records and begins:
            producer.begin_transaction()
        for at in range(per_batch):
            send(
                producer,
                backlog.topic,
                value=lines[(batch * per_batch + at) % SAMPLES],
                partition=batch % backlog.partitions,
            )
        producer.poll(0)
        if backlog.transaction_records and (batch + 1) % backlog.partitions == 0:
            producer.commit_transaction(30)
    if producer.flush(_FLUSH_S):
        raise EnvironmentFault(f"{backlog.topic} cannot be filled")
    return Filled(batches * per_batch, per_batch)


def _records_per_batch(backlog: Backlog, stored_bytes: float) -> int:
    if backlog.transaction_records or backlog.like_transactions:
        return TRANSACTION_RECORDS // backlog.partitions
    return max(1, round(backlog.batch_bytes / stored_bytes))


def _settings(bootstrap: str, backlog: Backlog, per_batch: int) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "compression.type": backlog.codec,
        "linger.ms": 1_000 if per_batch > 1 else 0,
        "batch.num.messages": per_batch,
        "batch.size": 4 << 20,
        "queue.buffering.max.kbytes": 512 << 10,
        "queue.buffering.max.messages": 1_000_000,
    }
    if backlog.transaction_records:
        settings |= {"transactional.id": backlog.topic}
    return settings


def _value(chance: random.Random, value_bytes: int) -> bytes:
    fields = [f'"id":"{chance.randrange(16**12):012x}"']
    while len(",".join(fields)) < value_bytes - 20:
        name = _FIELDS[len(fields) % len(_FIELDS)]
        fields.append(f'"{name}":"{chance.choice(_WORDS)}","{name}_code":{chance.randrange(10**8)}')
    return f"{{{','.join(fields)}}}".encode()


def _stored(lines: list[bytes], codec: Codec) -> int:
    # A record takes about eight bytes in addition to its value.
    plain = b"".join(b"\0" * 8 + line for line in lines)
    match codec:
        case "none":
            return len(plain)
        case "lz4":
            return len(bytes(cramjam.lz4.compress(plain)))
        case "zstd":
            return len(bytes(cramjam.zstd.compress(plain, level=3)))
