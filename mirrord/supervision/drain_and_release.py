"""Ends the work of a flow: drains its lanes, and releases its lease."""

import asyncio

import structlog

from mirrord.ledger.errors import LedgerUnavailable
from mirrord.ledger.store.lease import LeaseKeeper
from mirrord.supervision.fleet.fleet import Fleet

DRAIN_S = 5.5
RELEASE_S = 1.5
"""Time limits for draining the lanes and releasing the lease. Their sum is at most `mirrord.daemon.daemon.STOP_S`."""

log = structlog.get_logger()


async def drain_and_release(flow: str, fleet: Fleet, keeper: LeaseKeeper) -> None:
    """Drain all lanes of the flow, and release its lease. A lease that cannot be released expires."""
    await fleet.drain(DRAIN_S)
    try:
        async with asyncio.timeout(RELEASE_S):
            await keeper.release()
    except (LedgerUnavailable, TimeoutError) as error:
        reason = str(error) or f"no answer within {RELEASE_S:g} s"
        log.warning("lease_not_released", flow=flow, error=reason)
    else:
        log.info("flow_drained", flow=flow)
