"""Heartbeats, checkpoints and offset syncs, byte for byte as MirrorMaker 2's own classes write them.

The bytes come from those classes: tests/golden/mm2/Records.java.
"""

import json
from pathlib import Path

import pytest

from mirrord.kafka.protocol.errors import Malformed, Truncated, UnknownLayout, WireError
from mirrord.kafka.protocol.mm2_records import Checkpoint, Heartbeat, OffsetSync

Kind = Heartbeat | Checkpoint | OffsetSync
GOLDEN: dict[str, dict[str, str]] = json.loads((Path(__file__).parents[3] / "golden/mm2/records.json").read_text())
MOST = (1 << 63) - 1
RECORDS: dict[str, Kind] = {
    "heartbeat": Heartbeat("A", "B", 1_700_000_000_000),
    "heartbeat of odd names": Heartbeat("", "zürich-\N{ROCKET}", -MOST - 1),
    "checkpoint": Checkpoint("billing", "A.orders", 3, 1234, 1231),
    "checkpoint with metadata": Checkpoint("grüppe", "A.orders", (1 << 31) - 1, MOST, 0, "né"),
    "offset sync": OffsetSync("orders", 3, 1000, 997),
    "offset sync of large numbers": OffsetSync("t" * 249, (1 << 31) - 1, MOST, -1),
}


def test_every_vector_is_compared() -> None:
    assert GOLDEN.keys() == RECORDS.keys()


@pytest.mark.parametrize("name", RECORDS)
def test_bytes_are_those_of_kafkas_own_classes(name: str) -> None:
    record = RECORDS[name]
    assert record.key.hex() == GOLDEN[name]["key"]
    assert record.value.hex() == GOLDEN[name]["value"]
    assert type(record).decode(record.key, record.value) == record


@pytest.mark.parametrize("record", RECORDS.values())
def test_what_follows_the_last_field_is_ignored(record: Kind) -> None:
    assert type(record).decode(record.key + b"more", record.value + b"more") == record


@pytest.mark.parametrize("record", RECORDS.values())
def test_every_beginning_of_a_record_is_refused(record: Kind) -> None:
    for length in range(len(record.key)):
        with pytest.raises(Truncated):
            type(record).decode(record.key[:length], record.value)
    for length in range(len(record.value)):
        with pytest.raises(Truncated):
            type(record).decode(record.key, record.value[:length])


@pytest.mark.parametrize("record", RECORDS.values())
def test_tombstones_and_records_without_a_key_are_refused(record: Kind) -> None:
    for key, value in ((record.key, None), (None, record.value)):
        with pytest.raises(Malformed, match="a record without a"):
            type(record).decode(key, value)


def test_other_versions_are_not_taken_for_this_one() -> None:
    for record in (RECORDS["heartbeat"], RECORDS["checkpoint"]):
        with pytest.raises(UnknownLayout, match="version 1"):
            type(record).decode(record.key, b"\x00\x01" + record.value[2:])


def test_text_that_is_none_is_refused() -> None:
    beat = Heartbeat("A", "B", 1)
    for key in (b"\xff\xff" + b"\x00\x01B", b"\x00\x01\xff" + b"\x00\x01B"):
        with pytest.raises(Malformed):
            Heartbeat.decode(key, beat.value)


def test_what_cannot_be_written_is_refused() -> None:
    assert Heartbeat("a" * 32_767, "b", 1).key
    for name in ("a" * 32_768, "\ud800"):
        with pytest.raises(WireError):
            _ = Heartbeat(name, "b", 1).key
        with pytest.raises(WireError):
            _ = Checkpoint("group", "topic", 0, 1, 1, name).value
