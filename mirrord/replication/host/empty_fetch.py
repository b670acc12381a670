"""Handles the results of a fetch other than records."""

import structlog

from mirrord.kafka.client.partition_queries import Asks
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.replication.host.partition_fetch import PartitionFetch
from mirrord.replication.lane.signals import Chunk, FetchFrom

OUT_OF_RANGE = int(ErrorCode.OFFSET_OUT_OF_RANGE)
NOT_AVAILABLE = int(ErrorCode.OFFSET_NOT_AVAILABLE)

log = structlog.get_logger()


def prefer(cluster: str, tap: PartitionFetch, replica: int) -> None:
    """Record that the leader redirects this client to another replica and returns no records itself. -1 means no
    longer.
    """
    if replica == tap.preferred_replica:
        return
    if replica >= 0:
        where = f"{tap.partition.topic}-{tap.partition.partition}"
        log.warning("fetch_redirected", cluster=cluster, partition=where, replica=replica)
    tap.preferred_replica = replica


def find_bounds(asks: Asks, tap: PartitionFetch, wish: FetchFrom) -> None:
    """Find out where the log starts and ends, after the position was out of range, and report it to the tap."""

    def answered(error: int, high_watermark: int, log_start: int) -> None:
        if tap.wish is not wish:
            return
        if not error and log_start <= wish.position <= high_watermark:
            error = NOT_AVAILABLE  # a leader that lagged for a moment
        empty = bytearray()
        tap.deliver(Chunk(wish.question, error or OUT_OF_RANGE, high_watermark, -1, log_start, (), empty, 0, 0))

    asks.bounds(tap.partition, -1, answered)
