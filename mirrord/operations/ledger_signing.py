"""Signs a ledger that was written without a key.

The command takes the lease, so no daemon runs the flow. It then writes everything that readers need again, with
signatures: the progress records, and a snapshot of the folded state. The record of the flow makes the snapshot valid
and is written last, so an interrupted command leaves a ledger that is still refused, and can be repeated.
"""

import asyncio
from typing import Protocol

from mirrord.ledger.errors import NotSigned
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.commands import LedgerSigned
from mirrord.ledger.facts.core import Holder
from mirrord.ledger.store.lease import LeaseKeeper
from mirrord.ledger.store.log_interface import LedgerLog
from mirrord.ledger.store.store import SAVED_TOGETHER, LedgerStore
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.runtime.clock import Clock, SystemClock

PATIENCE_S = 5.0
"""How much longer than the length of the former lease the command waits for the lease."""


class OpenLog(Protocol):
    """Creates an unopened connection to the ledger. With `adopts`, records without a signature are accepted."""

    def __call__(self, *, adopts: bool) -> LedgerLog:
        """Return the connection."""
        ...


async def sign_ledger(
    open_log: OpenLog, holder: Holder, ttl_ms: int, origin: Origin, clock: Clock | None = None
) -> str:
    """Sign a ledger, and return one line that says what was done. Raises ConfigError if no key is set, and
    EnvironmentFault."""
    clock = clock or SystemClock()
    if await _is_signed(open_log(adopts=False), clock):
        return "nothing to do: the ledger is signed, or is empty"
    store = LedgerStore(open_log(adopts=True), clock)
    await store.open(create=False)
    keeper = LeaseKeeper(store, holder, ttl_ms, clock)
    try:
        try:
            async with asyncio.timeout((store.state.ttl_ms + ttl_ms) / 1000 + PATIENCE_S):
                epoch = await keeper.acquire()
        except TimeoutError:
            raise EnvironmentFault("a daemon holds the lease of the flow: stop it and try again") from None
        await store.append(epoch, [LedgerSigned(origin)])
        progress = [*store.state.progress.values(), *store.state.source_ends.values()]
        for first in range(0, len(progress), SAVED_TOGETHER):
            await store.save(*progress[first : first + SAVED_TOGETHER])
        await store.trim()
        signed_to = store.state.next_offset
        await keeper.release()
    finally:
        await keeper.close()
        await store.close()
    return f"signed: the state of the ledger up to offset {signed_to}, and all records from then on"


async def _is_signed(log: LedgerLog, clock: Clock) -> bool:
    store = LedgerStore(log, clock, trims=False)
    try:
        await store.open(read_only=True, create=False)
    except NotSigned:
        return False
    try:
        if not log.seal.is_used:
            raise ConfigError(
                "no key is set for this ledger: set `key` in [ledger], or remove the flow from `unsigned`"
            )
        return True
    finally:
        await store.close()
