"""Lists the APIs that mirrord itself encodes and decodes, with their versions, and chooses a version for each broker.

All these versions are "flexible" (KIP-482). Therefore every request has header version 2, and every response has header
version 1. The lowest versions are those of Kafka 2.8, the first release with topic ids and DescribeProducers.
"""

from collections.abc import Mapping
from typing import NamedTuple

from mirrord.kafka.protocol.errors import UnsupportedBroker

OLDEST_KAFKA = "2.8"


class Api(NamedTuple):
    """The key and name of an API, and the lowest and highest version that mirrord can encode and decode."""

    key: int
    name: str
    least: int
    greatest: int


PRODUCE = Api(0, "Produce", 9, 13)
FETCH = Api(1, "Fetch", 12, 18)
LIST_OFFSETS = Api(2, "ListOffsets", 6, 7)
LIST_LOCAL_OFFSETS = Api(2, "ListOffsets", 8, 8)
"""A version of ListOffsets that can also report where the local part of a log begins (KIP-405, Kafka 3.4). Records
before the local part are only in remote storage."""
METADATA = Api(3, "Metadata", 11, 13)
OFFSET_COMMIT = Api(8, "OffsetCommit", 8, 8)
OFFSET_FETCH = Api(9, "OffsetFetch", 7, 8)
FIND_COORDINATOR = Api(10, "FindCoordinator", 3, 4)
LIST_GROUPS = Api(16, "ListGroups", 4, 5)
DELETE_GROUPS = Api(42, "DeleteGroups", 2, 2)
DELETE_TOPICS = Api(20, "DeleteTopics", 6, 6)
INIT_PRODUCER_ID = Api(22, "InitProducerId", 3, 5)
END_TXN = Api(26, "EndTxn", 3, 3)
WRITE_TXN_MARKERS = Api(27, "WriteTxnMarkers", 1, 1)
OFFSET_FOR_LEADER_EPOCH = Api(23, "OffsetForLeaderEpoch", 4, 4)
DESCRIBE_ACLS = Api(29, "DescribeAcls", 2, 3)
CREATE_ACLS = Api(30, "CreateAcls", 2, 3)
DELETE_ACLS = Api(31, "DeleteAcls", 2, 3)
DESCRIBE_CONFIGS = Api(32, "DescribeConfigs", 4, 4)
INCREMENTAL_ALTER_CONFIGS = Api(44, "IncrementalAlterConfigs", 1, 1)
DESCRIBE_CLIENT_QUOTAS = Api(48, "DescribeClientQuotas", 1, 1)
DESCRIBE_QUORUM = Api(55, "DescribeQuorum", 1, 1)
DESCRIBE_CLUSTER = Api(60, "DescribeCluster", 0, 0)
DESCRIBE_PRODUCERS = Api(61, "DescribeProducers", 0, 0)
LIST_TRANSACTIONS = Api(66, "ListTransactions", 0, 0)

APIS = (
    PRODUCE,
    FETCH,
    LIST_OFFSETS,
    METADATA,
    INIT_PRODUCER_ID,
    OFFSET_FOR_LEADER_EPOCH,
    DESCRIBE_PRODUCERS,
)
"""If a broker lacks one of these APIs, mirrord cannot copy records."""
UPKEEP_APIS = (
    DELETE_TOPICS,
    DESCRIBE_ACLS,
    CREATE_ACLS,
    DELETE_ACLS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    DESCRIBE_CLUSTER,
)
"""If a broker lacks one of these APIs, the objects that the API manages are not synced. Records are still copied."""
GROUP_APIS = (
    OFFSET_COMMIT,
    OFFSET_FETCH,
    FIND_COORDINATOR,
    LIST_GROUPS,
)
"""If a broker lacks one of these APIs, consumer groups are not followed. Records are still copied."""
DRILL_APIS = (DELETE_GROUPS,)
"""If a broker lacks one of these APIs, a drill cannot exercise the write path. Everything else works."""
FENCE_APIS = (WRITE_TXN_MARKERS,)
"""If a broker lacks one of these APIs, a failover cannot fence off late batches of a suspended process. It is complete
all the same."""
TELLING_APIS = (END_TXN, DESCRIBE_CLIENT_QUOTAS, DESCRIBE_QUORUM, LIST_TRANSACTIONS)
"""APIs that mirrord uses only for its reports: to check permissions, to compare client quotas, to read the clock of a
cluster, and to name open transactions. If a broker lacks one of them, the corresponding information is missing. Some of
these APIs are newer than Kafka 2.8."""

FETCH_BY_TOPIC_ID = 13
"""The first version of Fetch in which requests identify topics by id (Kafka 3.1, KIP-516). Earlier versions use the
topic name."""
PRODUCE_BY_TOPIC_ID = 13
"""The first version of Produce in which requests identify topics by id (Kafka 4.1, KIP-516). Earlier versions use the
topic name."""


def choose(api: Api, broker_versions: Mapping[int, tuple[int, int]], at_most: int | None = None) -> int:
    """Return the newest version of this API that both mirrord and the broker support.

    `broker_versions` comes from the ApiVersions response. It maps each API key to the lowest and the highest version
    that the broker supports. If `at_most` is given, the result is not higher than `at_most`. Raises UnsupportedBroker.
    """
    greatest = api.greatest if at_most is None else at_most
    ours = f"{api.least}" if api.least == greatest else f"{api.least} to {greatest}"
    offered = broker_versions.get(api.key)
    if offered is None:
        raise UnsupportedBroker(f"the broker does not offer {api.name}; Kafka {OLDEST_KAFKA} or newer is needed")
    version = min(greatest, offered[1])
    if version >= max(api.least, offered[0]):
        return version
    line = f"the broker offers {api.name} in versions {offered[0]} to {offered[1]}, mirrord supports {ours}"
    if offered[1] < api.least:
        raise UnsupportedBroker(f"{line}; Kafka {OLDEST_KAFKA} or newer is needed")
    raise UnsupportedBroker(f"{line}; this broker needs a newer mirrord")
