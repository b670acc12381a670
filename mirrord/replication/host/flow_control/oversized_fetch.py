"""Handles partitions for which the response is larger than a connection accepts.

A request asks for at most half of the size that a connection accepts. Only the first batch of a response may exceed the
requested size, because a broker sends it whole (KIP-74). Therefore, if a response is larger than the connection
accepts, its first batch is the cause. The connection refuses such a response before it reads any of it, so it is not
known which partition contains the large batch.

To find this partition, each partition of the request is fetched once in a separate request. From then on, a partition
whose response was accepted is fetched together with others. The partition with the large batch makes no progress. It is
fetched separately again every `RETRY_S` seconds.
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from mirrord.kafka.client.request_pipeline import ConnectionLost
from mirrord.kafka.protocol.errors import Oversize
from mirrord.replication.host.partition_fetch import PartitionFetch

RETRY_S = 30.0
"""Pause in seconds before a partition with an oversized batch is fetched again. By then, the batch may have been
deleted, or an operator may have moved the lane's position past the batch."""

log = structlog.get_logger()


def too_large(lost: ConnectionLost) -> str:
    """Return the error message if the connection ended because a response was too large, or an empty string if it ended
    for a different reason."""
    return str(lost.__cause__) if isinstance(lost.__cause__, Oversize) else ""


class OversizedFetch:
    """Finds the partitions whose batches are too large to be fetched."""

    def __init__(self, cluster: str, place: Callable[[PartitionFetch], None]) -> None:
        """`place` sends the fetch request for a partition over the right connection."""
        self._cluster = cluster
        self._place = place

    def blame(self, taps: Sequence[PartitionFetch], reason: str) -> Sequence[PartitionFetch]:
        """Handle a response that was too large. `taps` are the partitions in its request. Return the partitions that
        must be fetched again at once, each in a separate request.

        If the request had only one partition, the batch of this partition is too large. The partition is fetched again
        after `RETRY_S` seconds.
        """
        for tap in taps:
            tap.apart = True
        if len(taps) != 1:
            return taps
        (tap,) = taps
        if not tap.too_large:
            where = f"{tap.partition.topic}-{tap.partition.partition}"
            log.warning(
                "fetch_too_large", cluster=self._cluster, partition=where, offset=tap.position.offset, reason=reason
            )
        tap.too_large = reason
        tap.feed = None
        tap.timer = asyncio.get_running_loop().call_later(RETRY_S, self._place, tap)
        return ()


def passed(tap: PartitionFetch) -> None:
    """Record that the connection has accepted and read a response for this partition."""
    tap.apart, tap.too_large = False, ""
