"""Encodes and decodes DescribeCluster (API 60, version 0), which reports the operations that this client may perform on
the cluster as a whole."""

import msgspec

from mirrord.kafka.protocol.primitives import NO_TAGS, Reader

_TRUE = b"\x01"


class ClusterRights(msgspec.Struct, frozen=True):
    """The decoded DescribeCluster response. `allowed` holds one bit per permitted operation, like
    `metadata.TopicMetadata.allowed`. `allowed` is 0 if the client is not allowed to DESCRIBE the cluster."""

    error: int
    cluster_id: str
    allowed: int


def encode_describe_cluster() -> bytes:
    """Encode the body of a DescribeCluster request that also asks for the permitted operations."""
    return _TRUE + NO_TAGS


def decode_describe_cluster(reader: Reader) -> ClusterRights:
    """Decode a DescribeCluster response. Raises WireError."""
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
