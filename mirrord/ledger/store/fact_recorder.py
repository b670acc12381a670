"""Writes what supervision has done into the flow's ledger, in order, and keeps it until that succeeds."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec
import structlog

from mirrord.ledger.errors import LedgerUnavailable
from mirrord.ledger.facts.core import AnyFact, CopyNamed, Progress
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.lease import LeaseKeeper
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.names import LaneId

FACTS_AT_ONCE = 100
"""They become one record, and a fact about a topic can have some kilobytes."""

log = structlog.get_logger()


class Recorder:
    """The facts of one holder of the lease."""

    def __init__(self, store: LedgerStore, keeper: LeaseKeeper) -> None:
        self._store = store
        self._keeper = keeper
        self._unwritten: list[AnyFact] = []
        self._writing = asyncio.Lock()

    @property
    def state(self) -> FlowState:
        """The ledger, folded as far as it was read."""
        return self._store.state

    @property
    def waiting(self) -> bool:
        """Whether there are facts that could not be written yet."""
        return bool(self._unwritten)

    async def read(self) -> None:
        """Know all that the ledger holds by now. Raises LedgerUnavailable."""
        await self._store.read_to_end()

    async def bind(self, names: Sequence[CopyNamed]) -> None:
        """Tell the ledger which names were chosen. What cannot be told is chosen anew the next time."""
        for named in names:
            log.info("copy_named", **msgspec.structs.asdict(named))
        with suppress(LedgerUnavailable):
            if self._keeper.is_valid:
                await self._store.append(self._keeper.epoch, names)

    async def write_now(self, fact: AnyFact) -> bool:
        """Write a fact; whether it binds. It is not kept for the next time."""
        with suppress(LedgerUnavailable):
            if self._keeper.is_valid:
                return all(await self._store.append(self._keeper.epoch, (fact,)))
        return False

    async def save(self, records: Sequence[Progress]) -> bool:
        """Write records of the state topic; False: they could not be written, and are not kept."""
        if not records:
            return True
        if not self._keeper.is_valid:
            return False
        try:
            await self._store.save(*records)
        except LedgerUnavailable:
            return False
        return True

    async def remove(self, records: Sequence[LaneId]) -> None:
        """Remove records about source topics from the state topic; what fails is tried again by the next caller."""
        with suppress(LedgerUnavailable):
            if records and self._keeper.is_valid:
                await self._store.remove(records)

    async def write(self, facts: Iterable[AnyFact] = ()) -> bool:
        """Write facts and what is left from before; False: they are kept for the next time."""
        self._unwritten += facts
        async with self._writing:
            while taken := self._unwritten[:FACTS_AT_ONCE]:
                if not self._keeper.is_valid:
                    return False
                try:
                    await self._store.append(self._keeper.epoch, taken)
                except LedgerUnavailable:
                    return False
                del self._unwritten[: len(taken)]
            return True
