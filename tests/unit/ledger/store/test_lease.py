"""The lease: who may write and until when, on a clock that the test controls."""

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from typing import Any

import msgspec
import pytest
import structlog

from mirrord.ledger.facts.core import Holder
from mirrord.ledger.store.lease import NEVER, LeaseKeeper, Superseded
from mirrord.ledger.store.memory_log import Fault, MemoryLedger
from mirrord.ledger.store.process_identity import is_dead, this_process
from mirrord.ledger.store.store import KEPT_ENTRIES, LedgerStore, open_flow
from tests.fixtures.clock import FakeClock, settle
from tests.fixtures.ledger import FLOW, HOLDER, GatedLog, opened

TTL = 6.0


class World:
    """Keepers of one flow, each with its own store and clock."""

    def __init__(self) -> None:
        self.ledger = MemoryLedger()
        self.clock = FakeClock()
        self.stores: list[LedgerStore] = []
        self.keepers: list[LeaseKeeper] = []
        self.logs: list[GatedLog] = []
        self.tasks: list[asyncio.Task[Any]] = []

    async def keeper(self, holder: Holder = HOLDER, ttl: float = TTL) -> LeaseKeeper:
        self.logs.append(GatedLog(self.ledger))
        store = LedgerStore(self.logs[-1], self.clock, deadline_seconds=20)
        await store.open()
        await open_flow(store, FLOW)
        self.stores.append(store)
        self.keepers.append(LeaseKeeper(store, holder, int(ttl * 1000), self.clock))
        return self.keepers[-1]

    async def standby(self, holder: Holder = HOLDER) -> tuple[LeaseKeeper, asyncio.Task[int]]:
        keeper = await self.keeper(holder)
        waiting = asyncio.create_task(keeper.acquire())
        self.tasks.append(waiting)
        await settle()
        return keeper, waiting

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        for keeper in self.keepers:
            await keeper.close()
        for log in self.logs:
            log.gate.set()
        for store in self.stores:
            await store.close()


def start_process() -> subprocess.Popen[bytes]:
    """A process that lives until it is killed or this one ends."""
    return subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)


@pytest.fixture
async def world() -> AsyncGenerator[World]:
    world = World()
    yield world
    await world.close()


async def test_the_first_one_takes_the_lease_at_once(world: World) -> None:
    keeper = await world.keeper()
    assert not keeper.is_valid
    assert await keeper.acquire() == 1
    assert keeper.valid_until == world.clock.now + TTL
    assert keeper.settled_from == NEVER
    await world.clock.advance(TTL * 5)
    assert keeper.is_valid
    assert keeper.valid_until > world.clock.now + TTL / 2


async def test_a_standby_waits_until_the_holder_is_silent_for_its_ttl(world: World) -> None:
    holder = await world.keeper(ttl=4.0)
    await holder.acquire()
    standby, waiting = await world.standby()
    await world.clock.advance(100)
    assert not waiting.done()
    await holder.close()
    silent_since = world.clock.now
    await world.clock.advance(4.0 - 0.01)
    taken_early = waiting.done()
    await world.clock.advance(4.0)
    assert not taken_early or world.clock.now - silent_since >= 4.0 - 4.0 / 3
    assert await waiting == 2
    assert standby.valid_until > world.clock.now
    assert not holder.is_valid


async def test_who_takes_over_knows_when_the_former_holder_is_through(world: World) -> None:
    holder = await world.keeper(ttl=4.0)
    await holder.acquire()
    standby, waiting = await world.standby()
    world.logs[0].gate.clear()
    world.ledger.save_faults.extend([Fault.FAILS] * 2)
    while not waiting.done():
        await world.clock.advance(0.5)
    assert holder.valid_until <= world.clock.now
    assert world.clock.now - 0.5 + 4.0 <= standby.settled_from <= world.clock.now + 4.0


async def test_a_released_lease_is_taken_at_once(world: World) -> None:
    holder = await world.keeper()
    await holder.acquire()
    standby, waiting = await world.standby()
    await holder.release()
    assert not holder.is_valid
    await settle()
    assert await waiting == 2
    # Others may have written under its lease without having heard of the release.
    assert standby.settled_from == world.clock.now + TTL


async def test_the_lease_of_a_dead_process_of_this_machine_is_taken_at_once(world: World) -> None:
    process = start_process()
    me = this_process("mirrord", "")
    dead = msgspec.structs.replace(me, pid=process.pid, started_ticks=0)
    holder = await world.keeper(dead)
    replicator = await world.keeper()
    await replicator.join(await holder.acquire())
    standby, waiting = await world.standby()
    await holder.close()
    await world.clock.advance(2.0)
    assert not waiting.done()
    world.logs[1].gate.clear()
    process.kill()
    process.wait()
    await world.clock.advance(1.0)
    assert await waiting == 2
    # Another process works under its lease and has not heard of it yet.
    assert replicator.is_valid
    assert world.clock.now < replicator.valid_until <= standby.settled_from


def dying(*, hosts_all: bool) -> Holder:
    """A process of this machine that has ended."""
    process = start_process()
    started = this_process("mirrord", "", hosts_all=hosts_all)
    process.kill()
    process.wait()
    return msgspec.structs.replace(started, pid=process.pid, started_ticks=0)


@pytest.mark.parametrize("hosts_all", [True, False])
async def test_who_hosted_all_replicators_took_them_along(world: World, hosts_all: bool) -> None:
    holder = await world.keeper(dying(hosts_all=hosts_all))
    await holder.acquire()
    await world.clock.advance(TTL / 2)
    world.logs[0].gate.clear()
    keeper = await world.keeper()
    assert await keeper.acquire() == 2
    assert keeper.former_ended == hosts_all
    assert (keeper.settled_from == NEVER) == hosts_all


async def test_before_its_first_renewal_nobody_knows_who_else_wrote(world: World) -> None:
    holder = await world.keeper(dying(hosts_all=True))
    await holder.acquire()
    keeper = await world.keeper()
    assert await keeper.acquire() == 2
    assert not keeper.former_ended


async def test_a_short_lived_holder_does_not_vouch_for_the_one_before(world: World) -> None:
    """The first one is silent and may live; the second one ends while the first one may still believe in its lease."""
    silent = await world.keeper(msgspec.structs.replace(HOLDER, hosts_all=True))
    await silent.acquire()
    await world.clock.advance(TTL / 2)
    world.logs[0].gate.clear()
    world.ledger.save_faults.extend([Fault.FAILS] * 1000)
    second, waiting = await world.standby(dying(hosts_all=True))
    while not waiting.done():
        await world.clock.advance(0.5)
    assert not second.former_ended
    world.ledger.save_faults.clear()
    await world.clock.advance(TTL / 2)
    third = await world.keeper(msgspec.structs.replace(dying(hosts_all=True)))
    assert await third.acquire() == 3
    assert not third.former_ended, "the first one's time was not over"
    await world.clock.advance(TTL * 2)
    fourth = await world.keeper()
    assert await fourth.acquire() == 4
    assert fourth.former_ended


async def test_a_released_lease_is_ended_when_its_holder_hosted_all(world: World) -> None:
    holder = await world.keeper(msgspec.structs.replace(HOLDER, hosts_all=True))
    await holder.acquire()
    await world.clock.advance(TTL / 2)
    await holder.release()
    keeper = await world.keeper()
    assert await keeper.acquire() == 2
    assert keeper.former_ended


async def test_a_clock_on_the_wall_that_jumps_changes_nothing(world: World) -> None:
    holder = await world.keeper()
    await holder.acquire()
    _, waiting = await world.standby()
    for jump in (10**9, -(10**10), 5 * 10**9):
        world.clock.wall += jump
        await world.clock.advance(TTL)
        assert holder.is_valid
        assert not waiting.done()


async def test_who_joined_keeps_up_by_itself(world: World) -> None:
    daemon, replicator = await world.keeper(), await world.keeper()
    await replicator.join(await daemon.acquire())
    assert replicator.is_valid
    await world.clock.advance(TTL * 3)
    assert replicator.valid_until > world.clock.now + TTL / 2
    await replicator.close()
    assert not replicator.is_valid


async def test_a_dead_holder_is_replaced_although_others_work_under_its_lease(world: World) -> None:
    daemon, replicator = await world.keeper(), await world.keeper()
    await replicator.join(await daemon.acquire())
    standby, waiting = await world.standby()
    await daemon.close()
    await world.clock.advance(TTL / 2)
    assert replicator.is_valid
    assert not waiting.done()
    await world.stores[1].append(1, [opened()])
    valid_until = replicator.valid_until
    await world.clock.advance(TTL / 2)
    assert await waiting == 2
    assert replicator.lost.is_set()
    assert valid_until <= standby.settled_from


async def test_all_who_work_under_a_lost_lease_learn_of_it(world: World) -> None:
    daemon, replicator = await world.keeper(), await world.keeper()
    await replicator.join(await daemon.acquire())
    world.ledger.save_faults.extend([Fault.FAILS] * 1000)
    standby, waiting = await world.standby()
    while not waiting.done():
        await world.clock.advance(1.0)
    assert daemon.lost.is_set()
    assert replicator.lost.is_set()
    assert not daemon.is_valid
    assert standby.is_valid


async def test_a_worker_that_joins_too_late_is_informed(world: World) -> None:
    daemon, late = await world.keeper(), await world.keeper()
    await daemon.acquire()
    await daemon.release()
    await late.join(1)
    assert late.lost.is_set()
    assert not late.is_valid


async def test_a_renewal_that_is_confirmed_after_the_lease_was_taken_does_not_count(world: World) -> None:
    holder = await world.keeper()
    await holder.acquire()
    _, waiting = await world.standby()
    before = holder.valid_until
    # The holder sees neither its own renewal nor anything else of the ledger; what it sends arrives late.
    world.logs[0].gate.clear()
    world.ledger.save_faults.extend([Fault.FAILS] * 2)
    while not waiting.done():
        await world.clock.advance(0.5)
    assert holder.valid_until == before
    await world.clock.advance(TTL)
    world.logs[0].gate.set()
    await world.clock.advance(TTL)
    assert holder.lost.is_set()
    assert holder.valid_until == NEVER


async def test_a_ledger_that_is_away_for_a_moment_costs_no_lease(world: World) -> None:
    holder = await world.keeper()
    await holder.acquire()
    world.ledger.is_reachable = False
    before = holder.valid_until
    await world.clock.advance(TTL * 2)
    assert holder.valid_until == before
    assert not holder.is_valid
    assert not holder.lost.is_set()
    world.ledger.is_reachable = True
    await world.clock.advance(TTL)
    assert holder.is_valid


async def test_a_renewal_that_takes_longer_than_the_lease_is_reported(world: World) -> None:
    holder = await world.keeper()
    await holder.acquire()
    world.logs[0].gate.clear()
    await world.clock.advance(TTL / 3 + TTL + 0.5)
    assert not holder.is_valid
    world.logs[0].gate.set()
    await settle()
    assert holder.trouble == "a renewal of the lease took 6.5 s, longer than runtime.lease_ttl (6 s)"
    assert not holder.is_valid
    assert not holder.lost.is_set()
    await world.clock.advance(TTL / 3)
    assert holder.is_valid
    assert holder.trouble == ""


async def test_a_standby_that_was_suspended_looks_before_it_takes(world: World) -> None:
    holder = await world.keeper()
    await holder.acquire()
    _, waiting = await world.standby()
    world.logs[1].gate.clear()
    await world.clock.advance(TTL * 3)
    world.logs[1].gate.set()
    await world.clock.advance(TTL)
    assert not waiting.done()
    assert holder.is_valid


async def test_a_standby_waits_for_a_ledger_that_is_away(world: World) -> None:
    holder = await world.keeper()
    await holder.acquire()
    _, waiting = await world.standby()
    await holder.close()
    world.ledger.is_reachable = False
    await world.clock.advance(TTL * 3)
    assert not waiting.done()
    world.ledger.is_reachable = True
    await world.clock.advance(TTL * 2)
    assert await waiting == 2


async def test_the_holder_keeps_the_ledger_short(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirrord.ledger.store.store.TRIM_ENTRIES", 50)
    keeper = await world.keeper()
    await keeper.acquire()
    for _ in range(KEPT_ENTRIES + 100):
        await world.stores[0].append(1, [])
    await world.clock.advance(TTL)
    assert world.ledger.start == world.ledger.end - KEPT_ENTRIES


async def test_who_missed_entries_loses_the_lease(world: World) -> None:
    daemon, replicator = await world.keeper(), await world.keeper()
    await replicator.join(await daemon.acquire())
    world.logs[1].gate.clear()
    await world.stores[0].append(1, [])
    await world.stores[0].trim(kept_entries=0)
    assert replicator.is_valid
    world.logs[1].gate.set()
    await settle()
    assert replicator.lost.is_set()
    assert not replicator.is_valid
    assert daemon.is_valid


async def test_a_ledger_that_ended_ends_the_lease(world: World) -> None:
    holder = await world.keeper()
    await holder.acquire()
    world.ledger.entries.append(b"\x09\x94")
    world.ledger.wake()
    await world.clock.advance(TTL)
    assert holder.lost.is_set()
    assert not holder.is_valid


RESTARTED = msgspec.structs.replace(HOLDER, pid=1, daemon="daemon")
AGAIN = msgspec.structs.replace(RESTARTED, pid=2)


async def test_a_daemon_continues_under_its_lease_and_its_replicators_do_not_notice(world: World) -> None:
    first = await world.keeper(RESTARTED)
    replicator = await world.keeper()
    await replicator.join(await first.acquire())
    await first.close()
    await world.clock.advance(TTL / 2)
    again = await world.keeper(AGAIN)
    assert (await again.acquire(), again.turn) == (1, 2)
    assert again.is_valid
    assert again.settled_from == world.clock.now + TTL
    await world.clock.advance(TTL * 3)
    assert again.is_valid
    assert replicator.is_valid
    assert not replicator.lost.is_set()


async def test_a_standby_waits_for_who_comes_in_the_holders_place(world: World) -> None:
    first = await world.keeper(RESTARTED)
    await first.acquire()
    standby, waiting = await world.standby(msgspec.structs.replace(HOLDER, daemon="other"))
    await first.close()
    await world.clock.advance(TTL - 0.5)
    again = await world.keeper(AGAIN)
    await again.acquire()
    await world.clock.advance(TTL * 2)
    assert not waiting.done()
    await again.close()
    await world.clock.advance(TTL * 2)
    assert (await waiting, standby.turn) == (2, 1)


async def test_who_was_only_thought_dead_is_superseded_and_does_not_come_back(world: World) -> None:
    first = await world.keeper(RESTARTED)
    await first.acquire()
    again = await world.keeper(AGAIN)
    await again.acquire()
    await settle()
    assert first.superseded.is_set()
    assert first.lost.is_set()
    assert not first.is_valid
    world.logs.append(GatedLog(world.ledger))
    store = LedgerStore(world.logs[-1], world.clock)
    await store.open()
    world.stores.append(store)
    with pytest.raises(Superseded):
        await LeaseKeeper(store, RESTARTED, int(TTL * 1000), world.clock, held_before=True).acquire()
    assert again.is_valid
    assert not again.superseded.is_set()


async def test_a_lease_that_was_lost_is_not_gone_on_with(world: World) -> None:
    first = await world.keeper(RESTARTED)
    await first.acquire()
    await first.close()
    other = await world.keeper()
    taking = asyncio.create_task(other.acquire())
    world.tasks.append(taking)
    await world.clock.advance(TTL * 2)
    assert await taking == 2
    again, waiting = await world.standby(AGAIN)
    await world.clock.advance(TTL * 2)
    assert not waiting.done()
    assert again.epoch == 0


async def test_another_time_of_the_lease_is_another_lease(world: World) -> None:
    first = await world.keeper(RESTARTED)
    await first.acquire()
    await first.close()
    again = await world.keeper(AGAIN, ttl=2 * TTL)
    taking = asyncio.create_task(again.acquire())
    await world.clock.advance(TTL * 2)
    assert (await taking, again.turn) == (2, 1)


def test_a_holder_is_dead_only_when_that_is_sure() -> None:
    me = this_process("mirrord", "http://127.0.0.1:8182")
    assert (me.host, me.pid) == (socket.gethostname(), os.getpid())
    replace = msgspec.structs.replace
    gone = 2**22 + 1  # above the largest pid that Linux gives
    assert not is_dead(me)
    assert is_dead(replace(me, pid=gone))
    assert is_dead(replace(me, started_ticks=me.started_ticks + 1))
    assert not is_dead(replace(me, started_ticks=0))
    assert not is_dead(replace(me, pid=gone, host="another"))
    assert not is_dead(replace(me, pid=gone, boot_id="another"))
    assert not is_dead(replace(me, pid=gone, boot_id=""))
    # A process is restarted in its place, as long as its keeper lives.
    kept = replace(me, pid=gone, daemon="daemon", keeper_pid=os.getpid(), keeper_ticks=me.started_ticks)
    assert not is_dead(kept)
    assert not is_dead(replace(kept, keeper_pid=0))
    assert is_dead(replace(kept, keeper_pid=gone))
    assert not is_dead(replace(kept, pid=me.pid, keeper_pid=gone))


@pytest.mark.parametrize("failing", ["read_to_end", "trim"])
async def test_an_unexpected_error_ends_neither_the_renewals_nor_the_trims(
    world: World, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    keeper = await world.keeper()
    await keeper.acquire()
    faults = [RuntimeError("a defect")]
    real = getattr(world.stores[0], failing)

    async def once() -> None:
        if faults:
            raise faults.pop()
        await real()

    monkeypatch.setattr(world.stores[0], failing, once)
    monkeypatch.setattr(LedgerStore, "is_long", property(lambda _: failing == "trim"))
    with structlog.testing.capture_logs() as logs:
        await world.clock.advance(TTL * 5)
    assert faults == []
    assert keeper.is_valid
    assert not keeper.trouble
    assert [each["event"] for each in logs if "exc_info" in each] == [
        "ledger_not_trimmed" if failing == "trim" else "lease_not_renewed"
    ]
