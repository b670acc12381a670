"""The options of `kafka_batches`, its pieces and its columns, without Spark."""

import json
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from hypothesis import given
from hypothesis import strategies as st

from mirrord.jobs.arrow_columns import BatchColumns, RecordColumns, spark_schema
from mirrord.jobs.kafka_batches_options import LogRange, parse
from mirrord.jobs.splitting import estimated_bytes, split
from mirrord.kafka.client.range_reader import ReadBatch
from mirrord.kafka.protocol.record_batch import HEADER, Header, HeaderTuple, patch
from mirrord.model.errors import ConfigError
from mirrord.model.names import TopicPartition

ENOUGH = {"bootstrap": "eu1:9092", "topics": "orders"}
ORDERS = TopicPartition("orders", 0)


def fault(**options: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(options)
    return str(caught.value)


def test_defaults() -> None:
    options = parse({**ENOUGH, "topics": "orders, payments"})
    assert options.cluster.bootstrap == ("eu1:9092",)
    assert (options.topics, options.ranges) == (("orders", "payments"), ())
    assert (options.records, options.committed, options.split_bytes) == (False, True, 64 << 20)


def test_ranges() -> None:
    options = parse({"bootstrap": "eu1:9092", "ranges": json.dumps({"orders": {"1": [5, 9], "0": [0, 3]}})})
    assert options.ranges == (LogRange(ORDERS, 0, 3), LogRange(TopicPartition("orders", 1), 5, 9))


def test_security_as_in_conf_toml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written = '{ protocol = "SASL_SSL", mechanism = "PLAIN", username = "a", password = "env:SECRET", ca = "file:ca" }'
    security = parse({**ENOUGH, "security": written}).cluster.security
    assert (security.protocol, security.username) == ("SASL_SSL", "a")
    assert security.password is not None
    assert security.password.reference == "env:SECRET"
    assert security.ca is not None
    assert security.ca.reference == f"file:{tmp_path}/ca"


def test_a_cluster_of_a_configuration(tmp_path: Path) -> None:
    conf = tmp_path / "conf.toml"
    conf.write_text(
        '[clusters.eu]\nbootstrap = "eu:1"\n[clusters.us]\nbootstrap = "us:1"\n'
        '[[flows]]\nfrom = "eu"\nto = "us"\ntopics = [".*"]\n'
    )
    options = parse({"conf": str(conf), "cluster": "us", "topics": "orders"})
    assert (options.alias, options.cluster.bootstrap) == ("us", ("us:1",))
    assert 'has no cluster "uss"; did you mean "us"?' in fault(conf=str(conf), cluster="uss", topics="orders")


def test_all_faults_are_reported_at_once() -> None:
    lines = fault(topics="a b", isolation="comitted", splitt="3", records="yes").splitlines()
    assert lines[0] == "kafka_batches: 5 faults"
    assert {line.split(": ")[1] for line in lines[1:]} == {"topics", "isolation", "splitt", "records", "bootstrap"}
    assert 'did you mean "read_committed"?' in "".join(lines)
    assert 'did you mean "split"?' in "".join(lines)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        ({**ENOUGH, "ranges": '{"orders": {"0": [0, 1]}}'}, "topics: both are set; exactly one"),
        ({"bootstrap": "eu1:9092"}, "topics: missing; exactly one"),
        ({"bootstrap": "eu1:9092", "ranges": '{"orders": {"0": [9, 1]}}'}, "(orders-0 has 9 and 1)"),
        ({"bootstrap": "eu1:9092", "ranges": '{"orders": [9, 1]}'}, "allowed: JSON such as"),
        ({"bootstrap": "eu1:9092", "ranges": "{}"}, "allowed: JSON such as"),
        ({"bootstrap": "eu1", "topics": "orders"}, 'bootstrap: found "eu1"; allowed: host:port'),
        ({**ENOUGH, "split": "1KiB"}, 'split: found "1KiB"; allowed: from "64KiB" to "1024GiB"'),
        ({**ENOUGH, "cluster": "eu"}, "cluster: has no effect without conf"),
        ({**ENOUGH, "conf": "c.toml", "cluster": "eu"}, "bootstrap: has no effect with conf"),
        ({**ENOUGH, "security": '{ password = "plain" }'}, "security.password: found ***"),
    ],
)
def test_a_fault(options: dict[str, str], line: str) -> None:
    assert line in fault(**options)


@given(st.integers(0, 1 << 40), st.integers(0, 10_000), st.integers(0, 1 << 30), st.integers(1, 1 << 20))
def test_pieces_are_the_whole(start: int, length: int, size_bytes: int, split_bytes: int) -> None:
    whole = LogRange(ORDERS, start, start + length)
    pieces = list(split(whole, size_bytes, split_bytes))
    assert all(piece.start < piece.end for piece in pieces)
    assert [piece.start for piece in pieces[1:]] == [piece.end for piece in pieces[:-1]]
    if length:
        assert (pieces[0].start, pieces[-1].end) == (whole.start, whole.end)
        assert len(pieces) <= max(1, -(-size_bytes // split_bytes))


def test_an_estimate_by_samples() -> None:
    assert estimated_bytes(LogRange(ORDERS, 0, 1000), [(0, 9, 500), (500, 509, 1500)]) == 100_000
    assert estimated_bytes(LogRange(ORDERS, 0, 1000), []) == 0


def batch_of(count: int, codec: int = 0, base: int = 100) -> ReadBatch:
    builder = DefaultRecordBatchBuilder(2, codec, 0, -1, -1, -1, 1 << 20)
    for number in range(count):
        builder.append(number, 1_700_000_000_000 + number, b"k", b"%d" % number, [("h", b"x"), ("none", None)])
    data = bytearray(builder.build())
    patch(data, 0, HEADER.unpack_from(data, 0), 7, 1, 2**31 - 2)
    fields: HeaderTuple = HEADER.unpack_from(data)
    HEADER.pack_into(data, 0, *(base, *fields[1:]))
    return ReadBatch(Header(*fields)._replace(base_offset=base), data, 0, len(data))


def test_the_columns_are_those_of_the_schema() -> None:
    batches, records = BatchColumns("orders", 3), RecordColumns("orders", 3, 101, 104)
    batches.take(batch_of(5, codec=1))
    records.take(batch_of(5, codec=1))
    for columns, schema in ((batches, spark_schema(records=False)), (records, spark_schema(records=True))):
        names = [name.strip("`") for name in schema.replace("key:string,value:binary", "").split() if "`" in name]
        assert columns.arrow().schema.names == names
    (row,) = batches.arrow().to_pylist()
    assert (row["base_offset"], row["last_offset"], row["record_count"], row["codec"]) == (100, 104, 5, "gzip")
    assert (row["producer_id"], row["base_sequence"]) == (7, 2**31 - 2)
    rows = records.arrow().to_pylist()
    assert [row["offset"] for row in rows] == [101, 102, 103]
    # After the last sequence comes the first one.
    assert [row["sequence"] for row in rows] == [2**31 - 1, 0, 1]
    assert rows[0]["headers"] == [{"key": "h", "value": b"x"}, {"key": "none", "value": None}]


def test_equal_records_have_equal_checksums_whatever_header_they_have() -> None:
    first, other = batch_of(5), batch_of(5, base=7)
    patched = bytearray(other.buffer)
    patch(patched, 0, HEADER.unpack_from(patched, 0), 99, 3, 12)
    columns = BatchColumns("orders", 0)
    columns.take(first)
    columns.take(ReadBatch(Header(*HEADER.unpack_from(patched)), patched, 0, len(patched)))
    one, two = columns.arrow().to_pylist()
    assert one["records_crc"] == two["records_crc"]
    assert one["crc"] != two["crc"]
