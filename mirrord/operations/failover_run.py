"""Begins a failover in the ledger, and follows it to its end.

If a daemon holds the flow's lease, it carries out the failover. If none does, this process takes the lease and carries
it out itself. Either may die at any time: the command can be repeated, and continues where the failover was.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Self

from mirrord.config.schema import Config, FlowConfig
from mirrord.ledger.errors import LedgerMissing
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.recovery import Recovery, RecoveryFact, RecoveryMode
from mirrord.ledger.folding.failovers import CAUGHT_UP, Recoveries, ends_all, has_ended, in_progress
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.ledger.store.fact_recorder import Recorder
from mirrord.ledger.store.lease import LeaseKeeper
from mirrord.ledger.store.process_identity import is_dead, this_process
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.failover import FailoverReceipt
from mirrord.supervision.failover.client_steps import ClientSteps
from mirrord.supervision.failover.executor import FailoverExecutor
from mirrord.supervision.failover.ledger_hands import LedgerHands
from mirrord.supervision.failover.receipt import receipt_of
from mirrord.supervision.rules.failover_orders import rule_cancel, rule_failover
from mirrord.supervision.settled_lanes import SettledLanes
from mirrord.supervision.unrecorded_copies import BatchQuestion, Found, find_written
from mirrord.topics.rules.ledger_start_evidence import start_offsets

LOOK_S = 0.1
LEDGER_S = 10.0
"""Time limit for the ledger to answer."""

ShowLine = Callable[[str], None]


class FailoverRequest(NamedTuple):
    """What an operator has asked for."""

    mode: RecoveryMode
    topics: tuple[str, ...] = ()
    by: str = ""
    reason: str = ""


async def fail_over(config: Config, flow: FlowConfig, asked: FailoverRequest, show: ShowLine) -> FailoverReceipt:
    """Carry out a failover of one flow, or continue it, and return its receipt. `show` is called with lines about its
    progress.

    Raises ConfigError if the request is impossible, and EnvironmentFault if the ledger does not answer.
    """
    access = ClusterAccess(config, LEDGER_S)
    store = access.ledger(flow)
    try:
        await store.open(create=False)
    except LedgerMissing:
        raise ConfigError(f"flow {flow.name} has never run, so there is nothing to fail over") from None
    try:
        return await _FailoverRun(config, flow, asked, access, store, show).run()
    finally:
        await store.close()


async def check_failover(config: Config, flow: FlowConfig, asked: FailoverRequest) -> str:
    """Return what the failover would do first, as one line. Nothing is changed. Raises ConfigError if the request is
    impossible, and EnvironmentFault if the ledger does not answer."""
    state = await _state_of(config, flow)
    copied = {lane.source_topic for lane in state.lanes.values()}
    unknown = Origin(asked.by, asked.reason, 0)
    return rule_failover(flow.name, state.recoveries, copied, asked.mode, asked.topics, unknown).line


async def is_cancellable(config: Config, flow: FlowConfig) -> bool:
    """Return whether a failover of the flow is in progress that can be cancelled. Raises EnvironmentFault, and
    ConfigError if it has already ended the copying."""
    state = await _state_of(config, flow)
    if in_progress(state.recoveries) is None:
        return False
    rule_cancel(flow.name, state.recoveries, 0)
    return True


async def _state_of(config: Config, flow: FlowConfig) -> FlowState:
    store = ClusterAccess(config, LEDGER_S).ledger(flow)
    try:
        await store.open(read_only=True)
    except LedgerMissing:
        raise ConfigError(f"flow {flow.name} has never run, so there is nothing to fail over") from None
    try:
        if not store.state.flow:
            raise ConfigError(f"flow {flow.name} has never run, so there is nothing to fail over")
        return store.state
    finally:
        await store.close()


async def cancel(config: Config, flow: FlowConfig) -> FailoverReceipt:
    """Cancel the failover that is in progress, and return its receipt. Raises ConfigError if there is none, or if it
    has already ended the copying."""
    access = ClusterAccess(config, LEDGER_S)
    store = access.ledger(flow)
    await store.open(create=False)
    try:
        fact = rule_cancel(flow.name, store.state.recoveries, access.clock.wall_ms())
        async with _Writer(config, access, store) as writer:
            if not await writer.write(fact):
                raise EnvironmentFault("nothing was changed: the failover has just moved on; try again")
        return receipt_of(flow, config.clusters[flow.target].bootstrap, store.state, store.state.recoveries[-1])
    finally:
        await store.close()


class _Writer:
    """Appends facts: under the lease of the flow's daemon or, if the lease is free, under a new one."""

    def __init__(self, config: Config, access: ClusterAccess, store: LedgerStore) -> None:
        self._config = config
        self._access = access
        self._store = store
        self.keeper: LeaseKeeper | None = None
        """The keeper of the lease, once this process holds it."""
        self._acquiring: asyncio.Task[int] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._acquiring is not None:
            self._acquiring.cancel()
            await asyncio.gather(self._acquiring, return_exceptions=True)
        if self.keeper is not None:
            with suppress(EnvironmentFault):
                if self.holds:
                    await self.keeper.release()
            await self.keeper.close()

    @property
    def holds(self) -> bool:
        """Whether this process holds the lease."""
        return self.keeper is not None and self._is_taken and not self.keeper.lost.is_set()

    @property
    def _is_taken(self) -> bool:
        return self._acquiring is not None and self._acquiring.done() and not self._acquiring.cancelled()

    async def stand_by(self) -> None:
        """Take the lease as soon as it is free."""
        if self.keeper is not None and (self.keeper.lost.is_set() or self._has_failed):
            await self.keeper.close()
            self.keeper = self._acquiring = None
        if self.keeper is None:
            holder = this_process("mirrord failover", "", hosts_all=True)
            runtime, clock = self._config.runtime, self._access.clock
            self.keeper = LeaseKeeper(self._store, holder, runtime.lease_ttl_ms, clock)
            self._acquiring = asyncio.create_task(self.keeper.acquire())

    @property
    def _has_failed(self) -> bool:
        return self._is_taken and self._acquiring is not None and self._acquiring.exception() is not None

    async def write(self, fact: RecoveryFact) -> bool:
        """Append a fact under the lease that is in force. If the lease is free, take it first. Return whether the
        fact took effect."""
        state = self._store.state
        if is_unheld(state):
            await self.stand_by()
        if self._acquiring is not None:
            await self._acquiring
        (bound,) = await self._store.append(self._store.state.lease_epoch, [fact])
        return bound


def is_unheld(state: FlowState) -> bool:
    """Return whether the lease is certainly free."""
    return not state.lease_epoch or state.released or (state.holder is not None and is_dead(state.holder))


class _FailoverRun:
    def __init__(
        self,
        config: Config,
        flow: FlowConfig,
        asked: FailoverRequest,
        access: ClusterAccess,
        store: LedgerStore,
        show: ShowLine,
    ) -> None:
        self._config = config
        self._flow = flow
        self._asked = asked
        self._access = access
        self._store = store
        self._show = show
        self._shown: set[str] = set()

    async def run(self) -> FailoverReceipt:
        recoveries = self._store.state.recoveries
        if in_progress(recoveries) is None and (former := self._former(recoveries)) is not None:
            return self._receipt(former)
        async with _Writer(self._config, self._access, self._store) as writer:
            number = (await self._begin(writer)).number
            while (current := in_progress(self._store.state.recoveries)) is not None and current.number == number:
                await self._follow(writer)
            self._show_steps()
            for each in self._store.state.recoveries:
                if each.number == number:
                    return self._receipt(each)
            raise EnvironmentFault(f"failover {number} of {self._flow.name} was cancelled, and another one has begun")

    def _receipt(self, recovery: Recovery) -> FailoverReceipt:
        return receipt_of(self._flow, self._config.clusters[self._flow.target].bootstrap, self._store.state, recovery)

    def _former(self, recoveries: Recoveries) -> Recovery | None:
        """Return a completed failover that has already done what is asked for, or None."""
        topics = self._asked.topics
        if ends_all(recoveries):
            return next(each for each in reversed(recoveries) if each.ended and not each.topics)
        if topics and all(has_ended(recoveries, topic) for topic in topics):
            return next(each for each in reversed(recoveries) if each.ended and set(topics) & set(each.topics))
        return None

    async def _begin(self, writer: _Writer) -> Recovery:
        """Return the failover in progress, and begin it first if there is none."""
        asked, state, name = self._asked, self._store.state, self._flow.name
        if not state.flow:
            raise ConfigError(f"flow {name} has never run, so there is nothing to fail over")
        origin = Origin(asked.by, asked.reason, self._access.clock.wall_ms())
        copied = {lane.source_topic for lane in state.lanes.values()}
        fact, line = rule_failover(name, state.recoveries, copied, asked.mode, asked.topics, origin)
        if fact is not None:
            if asked.mode == "planned" and is_unheld(state):
                raise EnvironmentFault(
                    f"no daemon copies {name}: start it first, or use --source-lost if the source is gone"
                )
            await writer.write(fact)
        recovery = in_progress(self._store.state.recoveries)
        if recovery is None or (recovery.mode, set(recovery.topics)) != (asked.mode, set(asked.topics)):
            raise EnvironmentFault("the failover could not be begun: another command was first; try again")
        self._show(f"{name}: {line}")
        return recovery

    async def _follow(self, writer: _Writer) -> None:
        """Carry out the failover if this process holds the lease. Otherwise, wait a moment for its holder."""
        self._show_steps()
        recovery = in_progress(self._store.state.recoveries)
        if recovery is None:
            return
        if recovery.mode == "source-lost" or any(each.step == CAUGHT_UP for each in recovery.steps):
            await writer.stand_by()
        if not writer.holds or writer.keeper is None:
            if self._store.failure is not None:
                raise self._store.failure
            await asyncio.sleep(LOOK_S)
            return
        self._show(f"{self._flow.name}: no daemon runs the flow, so this command carries out the failover")
        await self._carry_out(writer.keeper)

    async def _carry_out(self, keeper: LeaseKeeper) -> None:
        clusters, runtime, clock = self._config.clusters, self._config.runtime, self._access.clock
        recorder = Recorder(self._store, keeper)
        times = (runtime.lease_ttl_ms, runtime.request_timeout_ms)
        admin = self._access.admin(self._flow.target)

        async def written(flow: FlowConfig, questions: Sequence[BatchQuestion]) -> Found:
            return await find_written(flow.target, clusters[flow.target], questions)

        pair = (clusters[self._flow.source], clusters[self._flow.target])
        hands = LedgerHands(
            self._flow,
            pair,
            lambda: recorder.state,
            SettledLanes(times, written, clock),
            admin,
            clock,
            lambda: keeper.is_valid,
        )
        upkeep = self._access.upkeep(self._flow.target)
        bootstrap = clusters[self._flow.target].bootstrap
        clients = ClientSteps(lambda: self._flow, bootstrap, upkeep, lambda: recorder.state)
        starts = partial(start_offsets, start_at=self._flow.start_at)
        parts = (lambda: recorder.state, recorder.write_now, hands, clients, clock, starts)
        executor = FailoverExecutor(self._flow.name, *parts)
        work = asyncio.create_task(executor.carry_out())
        try:
            while not work.done() and not keeper.lost.is_set():
                self._show_steps(executor.remarks)
                await asyncio.wait({work}, timeout=LOOK_S)
        finally:
            if not work.done():
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
            await asyncio.gather(admin.close(), upkeep.close())
        if work.done() and not work.cancelled():
            work.result()

    def _show_steps(self, remarks: tuple[str, ...] = ()) -> None:
        recoveries = self._store.state.recoveries
        steps = recoveries[-1].steps if recoveries else ()
        lines = [f"{each.step}: {each.outcome or 'done'}" for each in steps]
        for line in (*lines, *remarks):
            if line not in self._shown:
                self._shown.add(line)
                self._show(f"{self._flow.name}: {line}")
