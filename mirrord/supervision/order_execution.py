"""Carries out operator commands. The facts of a command are appended to the ledger before the command takes any other
effect.

A command therefore remains in effect after the process that accepted it has exited: the next supervisor reads it from
the ledger.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

import structlog

from mirrord.ledger.errors import LedgerUnavailable
from mirrord.ledger.facts.commands import CommandGiven
from mirrord.ledger.facts.orders import OrderFact
from mirrord.ledger.facts.quarantine import QuarantineOrder
from mirrord.ledger.facts.recovery import RecoveryFact
from mirrord.ledger.facts.seeks import LaneSought
from mirrord.ledger.seeks import pending
from mirrord.ledger.standing_orders import (
    NO_GIVER,
    POLICY,
    Giver,
    Order,
    OrderAnswer,
    describe_origin,
    pausable,
    text_fault,
)
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.lease import LeaseKeeper
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.jobs import Job
from mirrord.runtime.clock import Clock
from mirrord.supervision.fleet.fleet import Fleet
from mirrord.supervision.rules.order_resolution import Decision, FlowView, decide, find

RENEWAL_WAIT_S = 10.0
"""How many seconds a command waits for the renewal of an uncertain lease. A client waits longer for the answer."""
POLL_S = 0.1

log = structlog.get_logger()


class Desk:
    """Accepts the operator commands for one flow whose lease this daemon holds."""

    def __init__(
        self, store: LedgerStore, keeper: LeaseKeeper, fleet: Fleet, begin: Callable[[Job], None] = lambda _: None
    ) -> None:
        """`begin` begins a job at once."""
        self._store = store
        self._keeper = keeper
        self._fleet = fleet
        self.begin = begin

    def view(self) -> FlowView:
        """Return the information about the flow that is needed to resolve operator commands."""
        return self._fleet.view()

    async def until_writable(self, clock: Clock) -> None:
        """Wait until the flow's lease is valid, or for `RENEWAL_WAIT_S` seconds. After a slow renewal, a lease is
        uncertain for a moment."""
        deadline = clock.monotonic() + RENEWAL_WAIT_S
        while not self._keeper.is_valid and clock.monotonic() < deadline:
            await clock.sleep(POLL_S)

    async def record(
        self, facts: Sequence[OrderFact | QuarantineOrder | LaneSought | RecoveryFact | CommandGiven]
    ) -> None:
        """Append the facts of an operator command, and return when they have taken effect. Raises EnvironmentFault if
        they have not taken effect, or if it is unknown whether they have."""
        if not self._keeper.is_valid:
            raise EnvironmentFault("nothing was changed: the lease of the flow is currently uncertain; try again")
        try:
            bound = await self._store.append(self._keeper.epoch, facts)
        except LedgerUnavailable as fault:
            raise EnvironmentFault(
                f"it is not known whether the command takes effect; give it again: {fault}"
            ) from fault
        if not all(bound):
            raise EnvironmentFault("nothing was changed: another command, or another daemon, was first; try again")
        self._fleet.changed.set()


async def carry_out(
    order: Order, desks: dict[str, Desk | str], clock: Clock, *, dry_run: bool, giver: Giver = NO_GIVER
) -> OrderAnswer:
    """Carry out an operator command and return the answer. With `dry_run`, return only the effect that the command
    would have. `desks` holds, for each flow of the daemon, its `Desk` or the reason why the flow accepts no commands.

    Raises ConfigError if the command is impossible or names something that does not exist. Raises EnvironmentFault if
    it cannot be accepted at the moment.
    """
    if fault := text_fault(order):
        raise ConfigError(fault)
    served = {flow: desk for flow, desk in desks.items() if isinstance(desk, Desk)}
    try:
        named = find(order, [desk.view() for desk in served.values()])
    except ConfigError as error:
        # The name may belong to a topic of a flow that this daemon is not currently running.
        closed = [
            (f"flow {flow} accepts no commands here: {desk}") for flow, desk in desks.items() if isinstance(desk, str)
        ]
        if closed:
            raise EnvironmentFault("\n".join([str(error), *closed])) from error
        raise
    desk = served[named.flow]
    if not dry_run:
        await desk.until_writable(clock)
    # The view was taken before the wait, so it may be outdated.
    decision = decide(order, named, desk.view(), clock.wall_ms(), giver)
    if (decision.facts or decision.job) and not dry_run:
        if decision.facts:
            await desk.record(decision.facts)
        if decision.job:
            desk.begin(decision.job)
        by = {"by": order.by, "reason": order.reason, "client": giver.client, "peer": giver.peer}
        log.info("order_taken", flow=named.flow, verb=order.verb, of=str(named), **by)
    return _answer(decision)


def order_remarks(state: FlowState, hosts: Collection[str]) -> Iterator[str]:
    """Yield one line for operators about each pause, each drained replicator and each seek that has not been carried
    out.

    `hosts` contains the names of the existing replicators.
    """
    orders = state.orders
    for lane in (each for each in state.lanes.values() if pending(each.seeks)):
        where = (lane.source_topic, lane.partition)
        if any((each.source_topic, each.partition) == where and each.age > lane.age for each in state.lanes.values()):
            continue  # the topic was deleted and re-created, so the command refers to a former lane
        for seek in pending(lane.seeks):
            yield f"{where[0]}-{where[1]} will continue at source offset {seek.end}, {describe_origin(seek.origin)}"
    for pause in orders.paused.values():
        word = "halted" if pause.origin.by == POLICY else "paused"
        yield f"{pausable(pause.topic, pause.partition)} is {word}, {describe_origin(pause.origin)}"
    for drained in (orders.drained[host] for host in hosts if host in orders.drained):
        yield f"{drained.replicator} is drained, {describe_origin(drained.origin)}"


def ledger_remarks(store: LedgerStore, hosts: Collection[str]) -> tuple[str, ...]:
    """Return the lines of `order_remarks`, and one line if records of the ledger's topics were skipped."""
    return (*order_remarks(store.state, hosts), *filter(None, (store.skipped.remark(),)))


def _answer(decision: Decision) -> OrderAnswer:
    return OrderAnswer(
        flow=decision.flow, done=decision.done, lanes=tuple(map(str, decision.lanes)), notes=decision.notes
    )
