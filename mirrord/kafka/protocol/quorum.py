"""Encodes and decodes DescribeQuorum (API 55, version 1; KIP-595, KIP-836), which reveals the current time on the
cluster's active controller.

The response contains the time at which each voter last caught up, according to the leader's clock. For the leader
itself, this is the current time (org.apache.kafka.raft.LeaderState). There is no other way to read the time of a
cluster without writing to it. The client must be allowed to DESCRIBE the cluster, and the cluster must run without
ZooKeeper.
"""

from struct import Struct

import msgspec

from mirrord.kafka.protocol.primitives import INT32, NO_TAGS, Reader, compact_array, compact_string

_TOPIC = "__cluster_metadata"
# The fields are: partition, error, leader, leader epoch, high watermark.
_PARTITION = Struct(">ihiiq")
# The fields are: replica, log end offset, time of its last fetch, time at which it last caught up.
_REPLICA = Struct(">iqqq")


class QuorumTime(msgspec.Struct, frozen=True):
    """The controller's current time. `now_ms` is None if the response does not contain the time."""

    error: int
    now_ms: int | None


def encode_describe_quorum() -> bytes:
    """Encode the body of a DescribeQuorum request."""
    partition = INT32.pack(0) + NO_TAGS
    return compact_array([compact_string(_TOPIC) + compact_array([partition]) + NO_TAGS]) + NO_TAGS


def decode_describe_quorum(reader: Reader) -> QuorumTime:
    """Return the controller's time in a DescribeQuorum response. Raises WireError."""
    error = reader.int16()
    topics = reader.compact_array(_topic)
    reader.skip_tags()
    reader.expect_end()
    partitions = [partition for topic in topics for partition in topic]
    if error or not partitions:
        return QuorumTime(error, None)
    return partitions[0]


def _topic(reader: Reader) -> list[QuorumTime]:
    reader.compact_string()
    partitions = reader.compact_array(_partition)
    reader.skip_tags()
    return partitions


def _partition(reader: Reader) -> QuorumTime:
    _, error, leader, _, _ = reader.unpack(_PARTITION)
    voters = dict(reader.compact_array(_replica))
    reader.compact_array(_replica)  # observers
    reader.skip_tags()
    now_ms = voters.get(leader, -1)
    return QuorumTime(error, now_ms if now_ms >= 0 else None)


def _replica(reader: Reader) -> tuple[int, int]:
    replica, _, _, caught_up_ms = reader.unpack(_REPLICA)
    reader.skip_tags()
    return replica, caught_up_ms
