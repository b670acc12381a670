"""Valid samples, from which inputs are made by damaging them."""

import json
from collections.abc import Iterator
from pathlib import Path

# aiokafka's compiled classes have no type information.
from aiokafka.record.default_records import (  # pyright: ignore[reportMissingTypeStubs]
    DefaultRecordBatchBuilder,
)
from aiokafka.record.legacy_records import (  # pyright: ignore[reportMissingTypeStubs]
    LegacyRecordBatchBuilder,
)

GOLDEN = Path(__file__).parents[2] / "tests" / "golden"
CODECS = range(5)
OLD_CODECS = range(4)
RECORDS = 12


def wire(file: str) -> dict[str, bytes]:
    """Return the golden messages of Kafka's protocol, by name."""
    found: dict[str, str] = json.loads((GOLDEN / "wire" / file).read_text())
    return {name: bytes.fromhex(text) for name, text in found.items()}


def batches() -> Iterator[bytes]:
    """Yield a batch of each codec."""
    for codec in CODECS:
        builder = DefaultRecordBatchBuilder(
            magic=2,
            compression_type=codec,
            is_transactional=codec % 2,
            producer_id=7,
            producer_epoch=1,
            base_sequence=3,
            batch_size=1 << 20,
        )
        for offset in range(RECORDS):
            builder.append(offset, 1_700_000_000_000 + offset, b"key", b"value" * offset, [("name", b"header")])
        yield bytes(builder.build())


def old_messages() -> Iterator[bytes]:
    """Yield messages of the formats 0 and 1 with each codec."""
    for magic in (0, 1):
        for codec in OLD_CODECS if magic else OLD_CODECS[:-1]:  # format 0 does not have LZ4
            builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
            for offset in range(RECORDS):
                builder.append(offset, timestamp=1_700_000_000_000, key=b"key", value=b"value" * offset)
            yield bytes(builder.build())


def ledger_entries() -> list[bytes]:
    """Return the entries of the golden ledgers of all versions."""
    files = sorted((GOLDEN / "ledger").glob("*.ledger"))
    return [bytes.fromhex(line) for file in files for line in file.read_text().splitlines()]


def state_rows() -> list[tuple[str, bytes]]:
    """Return the records of the golden state topics of all versions, with their keys."""
    rows: list[tuple[str, bytes]] = []
    for file in sorted((GOLDEN / "ledger").glob("*.state")):
        for line in file.read_text().splitlines():
            key, _, value = line.partition(" ")
            rows.append((key, bytes.fromhex(value)))
    return rows


def configurations(suffix: str) -> list[bytes]:
    """Return the sample configurations whose names end like this."""
    return [file.read_bytes() for file in sorted((GOLDEN.parents[1] / "conf").rglob(f"*{suffix}"))]
