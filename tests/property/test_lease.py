"""However the keepers race and whatever fails: an epoch has one holder, and no two write at the same time."""

import asyncio
import random
from unittest.mock import patch

import msgspec
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrord.ledger.facts.core import Holder
from mirrord.ledger.store.lease import LeaseKeeper
from mirrord.ledger.store.memory_log import Fault, MemoryLedger
from mirrord.ledger.store.store import LedgerStore, open_flow
from tests.fixtures.clock import FakeClock
from tests.fixtures.ledger import FLOW, HOLDER, GatedLog

TTL_MS = 6000
# Its lease is taken at once, while those who joined it continue.
DEAD = msgspec.structs.replace(HOLDER, pid=-1)


@given(st.integers(0, 2**32))
@settings(max_examples=12)
def test_one_holder_at_a_time(seed: int) -> None:
    race = Race(random.Random(seed))
    with patch("mirrord.ledger.store.lease.is_dead", race.is_dead):
        asyncio.run(race.run())


class Race:
    """Keepers that take one lease from each other, and others that work under it, while requests fail."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.ledger = MemoryLedger()
        self.clock = FakeClock()
        self.logs: list[GatedLog] = []
        self.stores: list[LedgerStore] = []
        self.keepers: list[LeaseKeeper] = []
        self.joiners: list[LeaseKeeper] = []
        self.holders: dict[LeaseKeeper, Holder] = {}
        self.ended: set[int] = set()
        """Processes, by pid."""
        self.races: list[asyncio.Task[int]] = []

    async def run(self) -> None:
        for _ in range(3):
            await self.add()
        for _ in range(50):
            await self.clock.advance(self.chance.random() * 3)
            self.check()
            await self.disturb()
        for log in self.logs:
            log.gate.set()
        for race in self.races:
            race.cancel()
        for keeper in (*self.keepers, *self.joiners):
            await keeper.close()
        for store in self.stores:
            await store.close()

    async def add(self) -> None:
        self.keepers.append(await self.keeper())
        self.races.append(asyncio.create_task(self.keepers[-1].acquire()))

    def is_dead(self, holder: Holder) -> bool:
        return holder == DEAD or holder.pid in self.ended

    async def keeper(self) -> LeaseKeeper:
        self.logs.append(GatedLog(self.ledger))
        store = LedgerStore(self.logs[-1], self.clock, deadline_seconds=20)
        await store.open()
        await open_flow(store, FLOW)
        self.stores.append(store)
        alone = msgspec.structs.replace(HOLDER, pid=len(self.stores), hosts_all=True)
        holder = self.chance.choice((HOLDER, DEAD, alone, alone, alone, alone))
        made = LeaseKeeper(store, holder, TTL_MS, self.clock)
        self.holders[made] = holder
        return made

    async def end(self, keeper: LeaseKeeper) -> None:
        """Its process ends, and with it those who work under its lease, if it hosts them."""
        await keeper.close()
        holder = self.holders[keeper]
        if holder.hosts_all:
            for joiner in self.joiners:
                if joiner.epoch == keeper.epoch:
                    await joiner.close()
            self.ended.add(holder.pid)

    async def disturb(self) -> None:
        ledger, chance = self.ledger, self.chance
        match chance.randrange(12):
            case 0 | 1:
                faults = [chance.choice((None, *Fault)) for _ in range(chance.randrange(12))]
                chance.choice((ledger.append_faults, ledger.save_faults)).extend(faults)
            case 2:
                ledger.is_reachable = False
            case 3 | 4:
                ledger.is_reachable = True
                ledger.release()
            case 5:
                # One of them receives nothing for a while; what it sends arrives.
                gate = chance.choice(self.logs).gate
                gate.clear() if gate.is_set() else gate.set()
            case 6 | 7 | 8:
                # Starting a keeper needs answers.
                if ledger.is_reachable and not ledger.append_faults and not ledger.save_faults:
                    await self.change()
            case _:
                pass

    async def change(self) -> None:
        """Someone joins the holder, the holder dies, or another standby starts."""
        holders = [keeper for keeper in self.keepers if keeper.is_valid]
        match self.chance.randrange(3):
            case 0 if holders:
                self.joiners.append(await self.keeper())
                await self.joiners[-1].join(holders[-1].epoch)
            case 1 if holders:
                await self.end(self.chance.choice(holders))
            case _ if len(self.keepers) < 8:
                await self.add()
            case _:
                pass

    def check(self) -> None:
        won = [race.result() for race in self.races if race.done()]
        assert len(won) == len(set(won)), "an epoch has one holder"
        writers = [keeper for keeper in (*self.keepers, *self.joiners) if keeper.is_valid]
        for holder in self.keepers:
            if holder.former_ended:
                assert all(writer.epoch >= holder.epoch for writer in writers), "they have not ended"
            if holder.is_valid and self.clock.now >= holder.settled_from:
                assert all(writer.epoch >= holder.epoch for writer in writers), "no one writes under an older lease"
