"""Writes facts about the supervisor's actions to the flow's ledger, in order. Facts that cannot be written are kept
until a later write succeeds."""

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
"""Maximum number of facts in one write. The facts form one ledger record, and a fact about a topic can take several
kilobytes."""

log = structlog.get_logger()


class Recorder:
    """Writes facts for the process that holds the lease of a flow."""

    def __init__(self, store: LedgerStore, keeper: LeaseKeeper) -> None:
        self._store = store
        self._keeper = keeper
        self._unwritten: list[AnyFact] = []
        self._writing = asyncio.Lock()

    @property
    def state(self) -> FlowState:
        """The state of the ledger, folded up to the last entry that was read."""
        return self._store.state

    @property
    def waiting(self) -> bool:
        """Whether there are facts that could not be written yet."""
        return bool(self._unwritten)

    async def read(self) -> None:
        """Read the ledger to its current end. Raises LedgerUnavailable."""
        await self._store.read_to_end()

    async def bind(self, names: Sequence[CopyNamed]) -> None:
        """Record in the ledger the names that were chosen for target topics. If that fails, the next discovery chooses
        the names again."""
        for named in names:
            log.info("copy_named", **msgspec.structs.asdict(named))
        with suppress(LedgerUnavailable):
            if self._keeper.is_valid:
                await self._store.append(self._keeper.epoch, names)

    async def write_now(self, fact: AnyFact) -> bool:
        """Write a fact and return whether it took effect. A fact that cannot be written is not kept for a retry."""
        with suppress(LedgerUnavailable):
            if self._keeper.is_valid:
                return all(await self._store.append(self._keeper.epoch, (fact,)))
        return False

    async def save(self, records: Sequence[Progress]) -> bool:
        """Write records to the state topic. Return False if that fails. The records are not kept for a retry."""
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
        """Remove records about the ends of source partitions from the state topic. If that fails, nothing is reported,
        and a later call has to remove the records."""
        with suppress(LedgerUnavailable):
            if records and self._keeper.is_valid:
                await self._store.remove(records)

    async def write(self, facts: Iterable[AnyFact] = ()) -> bool:
        """Write these facts, after the earlier facts that could not be written. Return False if some facts still cannot
        be written. They are kept for the next call."""
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
