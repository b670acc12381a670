"""DescribeCluster (API 60, version 0): what we may do with the cluster as a whole."""

import msgspec

from mirrord.kafka.protocol.primitives import NO_TAGS, Reader

_TRUE = b"\x01"


class ClusterRights(msgspec.Struct, frozen=True):
    """`allowed` tells operations bit by bit, as `metadata.Topic.allowed`; 0 without the right to DESCRIBE."""

    error: int
    cluster_id: str
    allowed: int


def encode_describe_cluster() -> bytes:
    """The body of a request that asks for our rights."""
    return _TRUE + NO_TAGS


def decode_describe_cluster(reader: Reader) -> ClusterRights:
    """The answer in a frame. Raises WireError."""
    reader.int32()  # throttle time
    error = reader.int16()
    reader.compact_nullable_string()
    cluster_id = reader.compact_string()
    reader.int32()  # controller
    reader.compact_array(_skip_broker)
    allowed = reader.int32()
    reader.skip_tags()
    reader.expect_end()
    return ClusterRights(error, cluster_id, allowed)


def _skip_broker(reader: Reader) -> None:
    reader.int32()
    reader.compact_string()
    reader.int32()
    reader.compact_nullable_string()
    reader.skip_tags()
