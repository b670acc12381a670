"""The decoders that are fuzzed: how each is called, which errors it documents, and valid samples of its input."""

import hashlib
from array import array
from collections.abc import Callable, Iterator, Sequence

import msgspec

from bench.fuzz import samples
from mirrord.config import loader
from mirrord.config.own_file import FileDigest
from mirrord.daemon.http_api import StopOrder
from mirrord.daemon.http_bodies import NotACommand, decoded
from mirrord.kafka.protocol import (
    acls,
    configs,
    consumer_offsets,
    delete_topics,
    describe_cluster,
    fetch,
    groups,
    list_offsets,
    metadata,
    mm2_records,
    produce,
    producer_ids,
    quorum,
    quotas,
    transactions,
)
from mirrord.kafka.protocol.crc32c import checksum
from mirrord.kafka.protocol.errors import WireError
from mirrord.kafka.protocol.primitives import Reader
from mirrord.kafka.protocol.record_batch import scan
from mirrord.kafka.records import record_decoding
from mirrord.ledger.codec import decode_entry, decode_state
from mirrord.ledger.errors import LedgerCorrupt
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.fold import fold
from mirrord.ledger.snapshot_restore import restore
from mirrord.ledger.standing_orders import Order
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_rows import Kept, StateTopicRows
from mirrord.ledger.store.log_interface import StateRow
from mirrord.ledger.store.run_archive import decode_manifest
from mirrord.ledger.store.seal import Seal, SigningKey
from mirrord.model.errors import ConfigError
from mirrord.model.run_codec import Packed, pack
from mirrord.model.status import Status
from mirrord.replication.lane.assignment import Greeting, ReplicatorReport
from mirrord.supervision.upgrade.protocol import HandoverCall, Successor

CRC_AT = 17
HEADER_BYTES = 61


class Fuzzed(msgspec.Struct, frozen=True):
    """One decoder."""

    name: str
    call: Callable[[bytes], object]
    errors: tuple[type[Exception], ...]
    samples: Sequence[bytes]
    mend: Callable[[bytes], bytes] | None = None
    """Corrects the checksum of a damaged input, so that the decoder reads the data after the checksum."""


def all_decoders() -> list[Fuzzed]:
    """Return all decoders."""
    return [*_answers(), *_records(), *_ledger(), *_group_offsets(), *_mm2(), *_texts(), *_messages()]


_ONE = ["billing"]
_ANSWERS: dict[str, Callable[[int, Reader], object]] = {
    "Fetch": fetch.decode,
    "Produce": produce.decode,
    "Metadata": metadata.decode,
    "InitProducerId": lambda _, reader: producer_ids.decode_init_producer_id(reader),
    "DescribeProducers": lambda _, reader: producer_ids.decode_describe_producers(reader),
    "ListTransactions": lambda _, reader: transactions.decode_list_transactions(reader),
    "EndTxn": lambda _, reader: transactions.decode_end_txn(reader),
    "ListOffsets": lambda _, reader: list_offsets.decode_list_offsets(reader),
    "OffsetForLeaderEpoch": lambda _, reader: list_offsets.decode_epoch_ends(reader),
    "DescribeConfigs": lambda _, reader: configs.decode_describe(reader),
    "IncrementalAlterConfigs": lambda _, reader: configs.decode_alter(reader),
    "DeleteTopics": lambda _, reader: delete_topics.decode_delete_topics(reader),
    "DescribeAcls": lambda _, reader: acls.decode_describe(reader),
    "CreateAcls": lambda _, reader: acls.decode_create(reader),
    "DeleteAcls": lambda _, reader: acls.decode_delete(reader),
    "DescribeCluster": lambda _, reader: describe_cluster.decode_describe_cluster(reader),
    "DescribeClientQuotas": lambda _, reader: quotas.decode_describe(reader),
    "DescribeQuorum": lambda _, reader: quorum.decode_describe_quorum(reader),
    "FindCoordinator": lambda version, reader: groups.decode_find(version, reader, _ONE),
    "ListGroups": groups.decode_list,
    "OffsetFetch": lambda version, reader: groups.decode_fetch(version, reader, _ONE),
    "OffsetCommit": lambda _, reader: groups.decode_commit(reader),
}


def _answers() -> Iterator[Fuzzed]:
    vectors = samples.wire("vectors.json") | samples.wire("groups.json")
    for name, data in vectors.items():
        api, _, version = name.partition("Response ")
        if version and api in _ANSWERS:
            parse, number = _ANSWERS[api], int(version)

            def call(data: bytes, parse: Callable[[int, Reader], object] = parse, number: int = number) -> object:
                return parse(number, Reader(data))

            yield Fuzzed(f"{api} {version}", call, (WireError,), [data])


def _records() -> Iterator[Fuzzed]:
    new, old = list(samples.batches()), list(samples.old_messages())

    def with_crc(data: bytes) -> bytes:
        body = data[CRC_AT + 4 :]
        return data[:8] + (len(data) - 12).to_bytes(4) + data[12:CRC_AT] + checksum(body).to_bytes(4) + body

    def patched(data: bytes) -> bytes:
        return with_crc(data) if len(data) > HEADER_BYTES else data

    yield Fuzzed("scan", lambda data: scan(bytearray(data), 0, len(data)), (WireError,), new + old)
    yield Fuzzed("records", lambda data: record_decoding.decode(data, 0, len(data)), (ValueError,), new, patched)
    yield Fuzzed("old messages", lambda data: record_decoding.decode(data, 0, len(data)), (ValueError,), old)


def _ledger() -> Iterator[Fuzzed]:
    entries, rows = samples.ledger_entries(), samples.state_rows()
    seal = Seal("ledger", "state", [SigningKey("k" * 32)])
    seal.topic_id = "topic"

    def folded(data: bytes) -> object:
        return fold(FlowState(), decode_entry(data), 0)

    def restored(data: bytes) -> object:
        key, _, value = data.partition(b"\x00")
        name = key.decode(errors="replace")
        Kept().note(name, decode_state(name, value))
        found = StateTopicRows()
        found.take(StateRow(name, value))
        return restore(found.read())

    def packed(data: bytes) -> object:
        piece = Packed(data)
        return piece.unpack(), [piece.inflate(block) for block in range(len(piece.ordinals))]

    runs = [pack(array("q", range(0, 3 * n, 3)), array("q", range(5, 5 + 7 * n, 7)), []) for n in (1, 130, 700)]
    sealed = [seal.sign_entry(entry) for entry in entries[:20]]
    state = [key.encode() + b"\x00" + value for key, value in rows]
    yield Fuzzed("ledger entry", folded, (LedgerCorrupt,), entries)
    yield Fuzzed("signed entry", seal.entry, (LedgerCorrupt,), sealed)
    yield Fuzzed("state record", restored, (LedgerCorrupt,), state)
    manifest = b'{"schema":1,"flow":"eu-us","ledger":"id","generation":1,"ledger_offset":7,"files":[{"path":"p",'
    manifest += b'"size_bytes":1,'
    manifest += b'"topic":"t","partition":0,"lane":"a.0.b","side":"source","parts":[]}]}'
    yield Fuzzed("manifest of moved runs", decode_manifest, (ValueError,), [manifest])
    yield Fuzzed("packed runs", packed, (ValueError,), runs)


def _group_offsets() -> Iterator[Fuzzed]:
    found = samples.wire("groups.json")
    keys = [data for name, data in found.items() if name.startswith("key")]
    values = [data for name, data in found.items() if "OffsetCommitValue" in name]
    yield Fuzzed("__consumer_offsets key", consumer_offsets.decode_key, (WireError,), keys)
    yield Fuzzed("__consumer_offsets value", consumer_offsets.decode_value, (WireError,), values)


def _mm2() -> Iterator[Fuzzed]:
    beat = mm2_records.Heartbeat("eu", "us", 1_700_000_000_000)
    point = mm2_records.Checkpoint("group", "orders", 3, 17, 18, "metadata")
    sync = mm2_records.OffsetSync("orders", 3, 17, 18)

    def halves(decode: Callable[[bytes, bytes], object]) -> Callable[[bytes], object]:
        return lambda data: decode(data[1 : 1 + data[0]] if data else b"", data[1 + data[0] :] if data else b"")

    whole = [bytes([len(each.key)]) + each.key + each.value for each in (beat, point, sync)]
    for kind in (mm2_records.Heartbeat, mm2_records.Checkpoint, mm2_records.OffsetSync):
        yield Fuzzed(f"MirrorMaker 2 {kind.__name__}", halves(kind.decode), (WireError,), whole)


def _texts() -> Iterator[Fuzzed]:
    toml, properties = samples.configurations(".toml"), samples.configurations(".properties")
    properties += [
        b"clusters = eu, us\neu.bootstrap.servers = a:1\nus.bootstrap.servers = b:1\neu->us.enabled = true\n"
    ]
    yield Fuzzed("conf.toml", lambda data: loader.load_bytes(data, "/conf.toml"), (ConfigError,), toml)
    yield Fuzzed("mm2.properties", lambda data: loader.load_bytes(data, "/mm2.properties"), (ConfigError,), properties)
    order = Order(verb="pause", name="orders-0", by="ada", reason="why")
    digest = FileDigest(hashlib.sha256(b"").hexdigest(), "ada")
    successor = Successor("http://h:1", "1.0")
    call = HandoverCall(verb="begin", successor=successor, flow="eu-us", name="r", by="ada")
    for each in (order, StopOrder("ada"), digest, call):
        kind = type(each)
        yield Fuzzed(
            f"body {kind.__name__}",
            lambda data, kind=kind: decoded(data, kind),
            (NotACommand,),
            [msgspec.json.encode(each)],
        )
    status = b'{"version":"1","instance":"m","at_ms":1,"gathered":"daemon","flows":[]}'
    yield Fuzzed("status document", Status.decode, (ValueError,), [status])


def _messages() -> Iterator[Fuzzed]:
    """Messages between processes. Their receivers handle msgspec's errors and ValueError (UTF-8)."""
    rows = [value[1:] for key, value in samples.state_rows() if key.startswith("progress/")]
    word = msgspec.msgpack.decode(rows[-1], type=Progress)
    report = ReplicatorReport(
        name="r",
        pid=1,
        host="h",
        loop_age_ms=1.5,
        cpu_seconds=2.5,
        rss_bytes=3,
        lanes=(),
        source_error="",
        target_error="gone",
        lease_valid_s=6.0,
        lost=False,
        requests=(),
    )
    encoded = msgspec.msgpack.encode(report)
    greeting = Greeting("1.0", b"setup", encoded)
    for each, found in ((word, rows), (report, [encoded]), (greeting, [msgspec.msgpack.encode(greeting)])):
        decoder = msgspec.msgpack.Decoder(type(each))
        errors = (ValueError, RecursionError)
        yield Fuzzed(f"message {type(each).__name__}", decoder.decode, errors, found)
