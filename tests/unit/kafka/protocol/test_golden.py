"""Requests and answers, byte for byte as Kafka's own classes write them (see tests/golden/wire/Vectors.java)."""

import json
import struct
from pathlib import Path

import pytest

from mirrord.kafka.protocol import (
    acls,
    configs,
    delete_topics,
    describe_cluster,
    fetch,
    list_offsets,
    metadata,
    produce,
    producer_ids,
    quorum,
    quotas,
    transaction_markers,
    transactions,
)
from mirrord.kafka.protocol.api_versions import (
    APIS,
    FENCE_APIS,
    FETCH_BY_TOPIC_ID,
    PRODUCE_BY_TOPIC_ID,
    TELLING_APIS,
    UPKEEP_APIS,
)
from mirrord.kafka.protocol.primitives import ZERO_UUID, Reader, uuid_bytes, uuid_text
from mirrord.model.acls import AclRule
from mirrord.model.quotas import ClientQuota

VECTORS: dict[str, str] = json.loads((Path(__file__).parents[3] / "golden/wire/vectors.json").read_text())
TOPIC_ID = uuid_text(bytes(range(1, 17)))
SPOKEN = (*APIS, *UPKEEP_APIS, *TELLING_APIS, *FENCE_APIS)
VERSIONS = {api.name: range(api.least, api.greatest + 1) for api in SPOKEN}


def golden(name: str, version: int) -> bytes:
    return bytes.fromhex(VECTORS[f"{name} {version}"])


def answer(name: str, version: int) -> Reader:
    """The golden answer in the middle of a larger buffer."""
    data = golden(name, version)
    return Reader(bytearray(b"before") + data + b"behind", 6, 6 + len(data))


def test_every_version_that_we_speak_has_its_vectors() -> None:
    spoken = {f"{api.name}Response {version}" for api in SPOKEN for version in VERSIONS[api.name]}
    assert spoken == {name for name in VECTORS if "Response" in name}


@pytest.mark.parametrize("version", VERSIONS["Fetch"])
def test_fetch_request(version: int) -> None:
    topic = TOPIC_ID if version >= FETCH_BY_TOPIC_ID else "orders"
    wanted = [
        ((topic, 3), fetch.FetchPosition(1 << 40, leader_epoch=7, last_epoch=6, max_bytes=1 << 20)),
        ((topic, 4), fetch.FetchPosition(0, max_bytes=1000)),
    ]
    step = fetch.SessionStep(99, 5, wanted, [(topic, 1), (topic, 2)])
    limits = fetch.FetchLimits(max_wait_ms=250, min_bytes=1, max_bytes=8 << 20, read_committed=True)
    assert fetch.encode(version, limits, step) == golden("FetchRequest", version)


@pytest.mark.parametrize("version", VERSIONS["Fetch"])
def test_fetch_response(version: int) -> None:
    reader = answer("FetchResponse", version)
    response = fetch.decode(version, reader)
    assert (response.error, response.session_id, response.throttle_ms) == (0, 99, 12)
    full, moved, diverged = response.partitions
    topic = TOPIC_ID if version >= FETCH_BY_TOPIC_ID else "orders"
    assert (full.topic, full.partition, full.error) == (topic, 3, 0)
    assert (full.high_watermark, full.last_stable_offset, full.log_start_offset) == (500, 400, 10)
    assert full.aborted == [(4711, 123)]
    assert bytes(reader.buffer[full.records_start : full.records_end]) == b"records of three"
    assert (full.leader, full.leader_epoch, full.diverging_epoch, full.diverging_end) == (-1, -1, -1, -1)
    assert (moved.partition, moved.error, moved.leader, moved.leader_epoch) == (4, 6, 2, 8)
    assert moved.records_start == moved.records_end
    assert (diverged.partition, diverged.diverging_epoch, diverged.diverging_end) == (5, 4, 77)
    assert diverged.records_start == diverged.records_end


@pytest.mark.parametrize("version", VERSIONS["Produce"])
def test_produce_request(version: int) -> None:
    by_id = version >= PRODUCE_BY_TOPIC_ID
    first, second = (TOPIC_ID, uuid_text(bytes(7) + b"\x05" + bytes(7) + b"\x06")) if by_id else ("orders", "payments")
    batches = [b"batch of zero", b"x" * 200, b"batch of another"]
    entries = [(first, 0, memoryview(batches[0])), (second, 1, batches[2]), (first, 9, bytearray(batches[1]))]
    parts, size = produce.encode(version, 10_000, entries)
    assert b"".join(parts) == golden("ProduceRequest", version)
    assert size == len(golden("ProduceRequest", version))
    assert isinstance(parts[0], bytes)
    assert parts[1] is entries[0][2], "batches are handed on, not copied"


def test_two_batches_for_one_partition_are_refused() -> None:
    with pytest.raises(ValueError, match="two batches for orders-1 in one produce request"):
        produce.encode(9, 10_000, [("orders", 1, b"a"), ("orders", 2, b"b"), ("orders", 1, b"c")])


@pytest.mark.parametrize("version", VERSIONS["Produce"])
def test_produce_response(version: int) -> None:
    response = produce.decode(version, answer("ProduceResponse", version))
    good, bad, moved = response.partitions
    assert response.throttle_ms == 3
    assert (good.topic, good.partition) == (TOPIC_ID if version >= PRODUCE_BY_TOPIC_ID else "orders", 0)
    assert (good.error, good.base_offset, good.message) == (0, 1 << 33, "")
    assert (good.log_append_ms, good.log_start_offset) == (1_700_000_000_000, 17)
    assert (bad.partition, bad.error, bad.message) == (1, 87, "one is wrong; record 3: no key")
    assert (moved.partition, moved.error) == (2, 6)
    assert (moved.leader, moved.leader_epoch) == ((2, 8) if version >= 10 else (-1, -1))


@pytest.mark.parametrize("version", VERSIONS["Produce"])
@pytest.mark.parametrize("error", [0, 45])
def test_the_short_ways_of_a_single_batch_are_the_long_ones(version: int, error: int) -> None:
    """A request and an answer for one batch, cut out of the golden ones by hand."""
    by_id = version >= PRODUCE_BY_TOPIC_ID
    topic = TOPIC_ID if by_id else "orders"
    name = bytes(range(1, 17)) if by_id else b"\x07orders"
    parts, size = produce.encode(version, 10_000, [(topic, 9, memoryview(b"x" * 200))])
    one_of_one = b"\x00\xff\xff\x00\x00\x27\x10\x02" + name + b"\x02"
    assert b"".join(parts) == one_of_one + b"\x00\x00\x00\x09\xc9\x01" + b"x" * 200 + bytes(3)
    assert size == sum(map(len, parts))
    fields = (5, error, 1 << 33, -1, 17)
    body = b"\x02" + name + b"\x02" + struct.pack(">ihqqq", *fields) + b"\x01\x00\x00\x00" + struct.pack(">ib", 3, 0)
    response = produce.decode(version, Reader(body))
    assert response == produce.ProduceResponse([produce.ProducedPartition(topic, *fields)], 3)


@pytest.mark.parametrize("version", VERSIONS["Metadata"])
def test_metadata(version: int) -> None:
    assert metadata.encode(version, ["orders"]) == golden("MetadataRequest by name", version)
    assert metadata.encode(version, None) == golden("MetadataRequest all", version)
    if version >= metadata.TOPIC_BY_ID:
        assert metadata.encode(version, [], [TOPIC_ID]) == golden("MetadataRequest by id", version)
    else:
        with pytest.raises(ValueError, match="cannot ask for a topic by id"):
            metadata.encode(version, [], [TOPIC_ID])
    assert metadata.decode(version, answer("MetadataResponse", version)) == metadata.Metadata(
        brokers=[metadata.Broker(1, "one", 9092, None), metadata.Broker(2, "two", 9093, "r2")],
        cluster_id="cluster-1",
        controller=1,
        topics=[
            metadata.TopicMetadata(
                0,
                "orders",
                TOPIC_ID,
                False,
                [metadata.Partition(0, 0, 2, 8, (2, 1), (2,), (1,)), metadata.Partition(5, 1, -1, -1, (1,), (), ())],
            ),
            metadata.TopicMetadata(3, "none", ZERO_UUID, False, []),
        ],
        error=0,
    )


@pytest.mark.parametrize("version", VERSIONS["InitProducerId"])
def test_init_producer_id(version: int) -> None:
    assert producer_ids.encode_init_producer_id() == golden("InitProducerIdRequest", version)
    allocated = producer_ids.decode_init_producer_id(answer("InitProducerIdResponse", version))
    assert allocated == producer_ids.ProducerIdentity(0, 4711, 1)


def test_describe_producers() -> None:
    assert producer_ids.encode_describe_producers({"orders": [0, 5]}) == golden("DescribeProducersRequest", 0)
    assert producer_ids.decode_describe_producers(answer("DescribeProducersResponse", 0)) == [
        producer_ids.PartitionProducers(
            "orders", 5, 0, None, [producer_ids.ActiveProducer(4711, 1, 99, 1_700_000_000_000, -1, -1)]
        ),
        producer_ids.PartitionProducers("orders", 6, 3, "not here", []),
    ]


def test_list_transactions() -> None:
    assert transactions.encode_list_transactions([4711]) == golden("ListTransactionsRequest", 0)
    decoded = transactions.decode_list_transactions(answer("ListTransactionsResponse", 0))
    listed = transactions.ListedTransaction("payments-1", 4711, "Ongoing")
    assert decoded == transactions.ListedTransactions(0, [listed])


def test_end_txn() -> None:
    assert transactions.encode_end_txn("mirrord.f.dead.nobody") == golden("EndTxnRequest", 3)
    assert transactions.decode_end_txn(answer("EndTxnResponse", 3)) == 53


def test_write_txn_markers() -> None:
    orders = transaction_markers.MarkedPartition(4711, "orders", 5)
    payments = transaction_markers.MarkedPartition(1 << 40, "payments", 0)
    markers = [
        transaction_markers.AbortMarker(orders, 1, 2**31 - 1),
        transaction_markers.AbortMarker(payments, 2**15 - 1, 7),
    ]
    assert transaction_markers.encode_abort_markers(markers) == golden("WriteTxnMarkersRequest", 1)
    assert transaction_markers.decode_markers(answer("WriteTxnMarkersResponse", 1)) == {
        orders: 0,
        orders._replace(partition=6): 47,
        payments: 31,
    }


@pytest.mark.parametrize("version", VERSIONS["ListOffsets"])
def test_list_offsets(version: int) -> None:
    question = list_offsets.OffsetQuestion("orders", 5, list_offsets.EARLIEST, leader_epoch=8)
    assert list_offsets.encode_list_offsets([question], read_committed=True) == golden("ListOffsetsRequest", version)
    assert list_offsets.decode_list_offsets(answer("ListOffsetsResponse", version)) == [
        list_offsets.ListedOffset("orders", 5, 0, 1_700_000_000_000, 12, 8)
    ]


def test_offset_for_leader_epoch() -> None:
    question = list_offsets.EpochQuestion("orders", 5, leader_epoch=8, epoch=7)
    assert list_offsets.encode_epoch_ends([question]) == golden("OffsetForLeaderEpochRequest", 4)
    assert list_offsets.decode_epoch_ends(answer("OffsetForLeaderEpochResponse", 4)) == [
        list_offsets.EpochEnd("orders", 5, 0, 7, 123)
    ]


def test_describe_configs() -> None:
    assert configs.encode_describe(["orders", "none"]) == golden("DescribeConfigsRequest", 4)
    assert configs.decode_describe(answer("DescribeConfigsResponse", 4)) == [
        configs.TopicSettings(
            "orders",
            0,
            None,
            {
                "cleanup.policy": configs.Setting("compact", own=True),
                "secret": configs.Setting(None, own=False, fixed=True, sensitive=True),
            },
        ),
        configs.TopicSettings("none", 3, "not here", {}),
    ]


def test_incremental_alter_configs() -> None:
    changes = {"orders": {"cleanup.policy": "compact", "retention.ms": None}}
    assert configs.encode_alter(changes, validate_only=True) == golden("IncrementalAlterConfigsRequest", 1)
    assert configs.decode_alter(answer("IncrementalAlterConfigsResponse", 1)) == [
        configs.AlteredTopic("orders", 0, None),
        configs.AlteredTopic("none", 40, "no such setting"),
    ]


def test_delete_topics() -> None:
    assert delete_topics.encode_delete_topics([TOPIC_ID], 4000) == golden("DeleteTopicsRequest", 6)
    assert delete_topics.decode_delete_topics(answer("DeleteTopicsResponse", 6)) == {
        TOPIC_ID: (41, "ask another broker")
    }


BILLING = AclRule("GROUP", "LITERAL", "billing", "User:a", "*", "ALL", "ALLOW")
UNKNOWN = AclRule("TOPIC", "PREFIXED", "orders", "User:b", "10.0.0.1", "99", "DENY")


@pytest.mark.parametrize("version", VERSIONS["DescribeAcls"])
def test_acls(version: int) -> None:
    assert acls.encode_describe("TOPIC") == golden("DescribeAclsRequest", version)
    reading = AclRule("TOPIC", "PREFIXED", "orders", "User:a", "*", "READ", "ALLOW")
    assert acls.decode_describe(answer("DescribeAclsResponse", version)) == acls.DescribedAcls(
        0, None, [reading, UNKNOWN]
    )
    assert acls.encode_create([BILLING, UNKNOWN]) == golden("CreateAclsRequest", version)
    assert acls.decode_create(answer("CreateAclsResponse", version)) == [
        acls.AclAnswer(0, None),
        acls.AclAnswer(42, "no"),
    ]
    assert acls.encode_delete([BILLING]) == golden("DeleteAclsRequest", version)
    assert acls.decode_delete(answer("DeleteAclsResponse", version)) == [
        acls.AclAnswer(0, None, (BILLING,)),
        acls.AclAnswer(31, "may not"),
    ]


def test_client_quotas() -> None:
    assert quotas.encode_describe() == golden("DescribeClientQuotasRequest", 1)
    assert quotas.decode_describe(answer("DescribeClientQuotasResponse", 1)) == quotas.DescribedQuotas(
        0,
        None,
        [
            ClientQuota((("client-id", None), ("user", "ada")), "producer_byte_rate", 1_048_576.0),
            ClientQuota((("client-id", None), ("user", "ada")), "request_percentage", 12.5),
            ClientQuota((("user", "ada"),), "producer_byte_rate", 1_048_576.0),
        ],
    )
    refused = quotas.decode_describe(answer("DescribeClientQuotas refused", 1))
    assert refused == quotas.DescribedQuotas(31, "may not", [])


def test_topic_ids_read_as_kafka_writes_them() -> None:
    # The result of Uuid.toString for the 16 bytes.
    assert TOPIC_ID == "AQIDBAUGBwgJCgsMDQ4PEA"
    assert uuid_bytes(TOPIC_ID) == bytes(range(1, 17))


def test_rights_on_the_cluster() -> None:
    assert describe_cluster.encode_describe_cluster() == golden("DescribeClusterRequest", 0)
    decoded = describe_cluster.decode_describe_cluster(answer("DescribeClusterResponse", 0))
    assert decoded == describe_cluster.ClusterRights(0, "a-cluster", 1 << 8 | 1 << 10)


def test_the_quorum() -> None:
    assert quorum.encode_describe_quorum() == golden("DescribeQuorumRequest", 1)
    assert quorum.decode_describe_quorum(answer("DescribeQuorumResponse", 1)) == quorum.QuorumTime(0, 1_700_000_000_000)


def test_a_quorum_that_may_not_be_seen() -> None:
    refused = struct.pack(">h", 31) + b"\x01\x00"
    assert quorum.decode_describe_quorum(Reader(refused)) == quorum.QuorumTime(31, None)
