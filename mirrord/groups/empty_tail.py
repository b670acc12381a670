"""Determines whether the last offsets of a compacted partition hold no records. This can happen because compaction
removes tombstones without lowering the log end offset.

A fetch request may include several partitions. If the response contains no records from one of them, that partition may
still have records, because records from the other partitions may have filled the response. Therefore, the request that
this module sends includes only one partition and belongs to no fetch session. The broker then returns at least one
batch if the partition has a batch at or after the requested offset (KIP-74).
"""

from mirrord.kafka.client.cluster_metadata import ClusterView, PartitionId
from mirrord.kafka.client.reconnecting_link import ask
from mirrord.kafka.protocol import fetch
from mirrord.kafka.protocol.api_versions import FETCH, FETCH_BY_TOPIC_ID

ONE_BATCH = 1
"""Size limit for the fetch response, in bytes. A broker always returns the whole first batch, even if the batch is
larger than the limit. The response therefore contains at most one batch."""
_LIMITS = fetch.FetchLimits(max_wait_ms=0, min_bytes=0, max_bytes=ONE_BATCH)
_NO_SESSION, _NOT_IN_A_SESSION = 0, -1


async def empty_until(view: ClusterView, partition: PartitionId, position: int) -> int:
    """Return an offset such that the partition has no records between `position` and this offset. The returned offset
    is at most the last stable offset, because records of open transactions above the last stable offset may not be
    visible yet.

    Return -1 if there are records at or after `position`, or if the leader's response does not show whether there are
    any. Raises EnvironmentFault if the leader does not answer, and WireError if its answer cannot be decoded.
    """
    leader = view.leader(partition)
    if leader is None:
        return -1
    connection = await view.link(leader.node, "tail").get()
    version = connection.version(FETCH)
    topic = partition.topic_id if version >= FETCH_BY_TOPIC_ID else partition.topic
    where = fetch.FetchPosition(position, leader.epoch, -1, ONE_BATCH)
    step = fetch.SessionStep(_NO_SESSION, _NOT_IN_A_SESSION, [((topic, partition.partition), where)], ())
    body = fetch.encode(version, _LIMITS, step)
    response = await ask(connection, FETCH, body, version, lambda reader: fetch.decode(version, reader))
    # A broker that throttles the connection omits the partitions or the records (KIP-219).
    if response.error or response.throttle_ms or len(response.partitions) != 1:
        return -1
    (fetched,) = response.partitions
    if fetched.error or fetched.records_end > fetched.records_start or fetched.diverging_end >= 0:
        return -1
    if fetched.preferred_read_replica >= 0:  # this replica returns no records and refers to another replica (KIP-392)
        return -1
    return min(fetched.high_watermark, fetched.last_stable_offset)
