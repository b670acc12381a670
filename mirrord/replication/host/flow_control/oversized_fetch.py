"""Handles partitions whose response is larger than a connection accepts.

A response holds at most half of what a frame may hold, except for its first batch, which is sent whole (KIP-74). So the
cause is a single batch, but the frame is refused before any of it is read, and all partitions of the request are
affected. Each of them is then fetched alone once. A partition that gets a response is fetched together with the others
again. The partition with the large batch makes no progress, and is fetched alone again from time to time.
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from mirrord.kafka.client.request_pipeline import ConnectionLost
from mirrord.kafka.protocol.errors import Oversize
from mirrord.replication.host.partition_fetch import PartitionFetch

RETRY_S = 30.0
"""Pause in seconds before the partition is fetched again. By then the batch may be deleted, or the lane may have been
moved past it."""

log = structlog.get_logger()


def too_large(lost: ConnectionLost) -> str:
    """Return the error message if the connection ended because of a frame that was too large, otherwise an empty
    string."""
    return str(lost.__cause__) if isinstance(lost.__cause__, Oversize) else ""


class OversizedFetch:
    """Finds the partitions whose batches are too large to be fetched."""

    def __init__(self, cluster: str, place: Callable[[PartitionFetch], None]) -> None:
        """`place` sends the fetch request of a partition over the right connection."""
        self._cluster = cluster
        self._place = place

    def blame(self, taps: Sequence[PartitionFetch], reason: str) -> Sequence[PartitionFetch]:
        """Handle a response that was too large and was for these partitions. Return those to fetch again at once, each
        alone."""
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
    """Record that a response for this partition could be read."""
    tap.apart, tap.too_large = False, ""
