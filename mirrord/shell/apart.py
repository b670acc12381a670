"""Partitions whose answer is larger than a connection takes.

A request brings at most half of what a frame may have, except for its first batch, which comes whole (KIP-74). So one
batch is too large, but the frame is refused before anything of it is read, and with it go all partitions of the
request. Each of them is fetched alone once. Whoever brings an answer returns to the others. The partition with the
large batch stands, and is fetched alone again from time to time.
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from mirrord.shell.pipe import ConnectionLost
from mirrord.shell.tap import Tap
from mirrord.wire.errors import Oversize

RETRY_S = 30.0
"""The batch may be deleted, or the lane may be moved on."""

log = structlog.get_logger()


def too_large(lost: ConnectionLost) -> str:
    """What is said of a frame that was too large; empty when the connection ended for another reason."""
    return str(lost.__cause__) if isinstance(lost.__cause__, Oversize) else ""


class Apart:
    """Finds out whose batches are too large."""

    def __init__(self, cluster: str, place: Callable[[Tap], None]) -> None:
        """`place` sends a tap's wish to where it belongs."""
        self._cluster = cluster
        self._place = place

    def blame(self, taps: Sequence[Tap], reason: str) -> Sequence[Tap]:
        """An answer for these was too large. Returns those that are asked for again at once, each alone."""
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


def passed(tap: Tap) -> None:
    """An answer for this tap was read."""
    tap.apart, tap.too_large = False, ""
