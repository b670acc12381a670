"""The old daemon's part of an upgrade: it hands its flows over to the new daemon and keeps running until all lanes of
these flows have moved.

A flow is handed over when the new daemon continues the flow's lease. From then on, the old daemon makes no decisions
for the flow. The old daemon's replicators keep copying, and the old daemon passes the new daemon's commands on to them.
If the new daemon vanishes before the upgrade is complete, the old daemon takes the flow back.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Protocol

import msgspec
import structlog

from mirrord.ledger.errors import LedgerUnavailable
from mirrord.ledger.facts.core import Holder, LeaseRenewed
from mirrord.ledger.state_topic_records import StateRecord
from mirrord.ledger.store.process_identity import is_dead
from mirrord.ledger.store.store import LedgerStore
from mirrord.runtime.clock import Clock
from mirrord.runtime.wait import wait_for
from mirrord.supervision.fleet.engine import Engine, ReplicatorDead, ReplicatorHandle, ReplicatorUnsure
from mirrord.supervision.upgrade.protocol import HandoverAnswer, HandoverCall, HandoverTerms, Successor

LOOK_S = 0.5
GONE_S = 15.0
"""A new daemon that has sent no request for this long is assumed to have given up. A working new daemon sends several
requests per second."""
CLOSE_S = 3.0
"""Time limit for closing the remaining replicators when the new daemon has vanished, or when the old daemon must
stop."""

log = structlog.get_logger()


class FlowHandover:
    """The handover of one flow to the new daemon."""

    def __init__(self, engine: Engine, prefix: str, clock: Clock) -> None:
        """Initialize the handover without a successor. The names of the flow's replicators begin with `prefix`."""
        self.successor: Successor | None = None
        """The new daemon, once it has announced that it will take the flow."""
        self.is_handed = False
        """True while the new daemon holds the flow. During this time, the old daemon takes action for the flow only
        when the new daemon commands it to."""
        self._engine = engine
        self._prefix = prefix
        self._clock = clock

    @property
    def note(self) -> str:
        """One line that tells operators which daemon the flow was handed over to. Empty if the flow was not handed
        over.
        """
        if self.successor is None or not self.is_handed:
            return ""
        left = len(self._engine.running(self._prefix))
        return f"handed over to mirrord {self.successor.program} at {self.successor.http}; {left} replicators left"

    def has(self, name: str) -> bool:
        """Return whether the replicator `name` belongs to the flow and takes its commands from the new daemon."""
        return self.is_handed and name.startswith(self._prefix)

    def went_to(self, holder: Holder | None) -> bool:
        """Return whether `holder`, which has taken the flow, is the daemon that announced that it would take over the
        flow.
        """
        return holder is not None and self.successor is not None and holder.http == self.successor.http

    async def stand_aside(self, store: LedgerStore, stopping: asyncio.Event) -> bool:
        """Wait while the new daemon holds the flow.

        Return True if this daemon must stop. Return False if it should take the flow back because the new daemon has
        vanished or has released the lease.
        """
        seen = self._clock.monotonic()

        def see(record: StateRecord) -> None:
            nonlocal seen
            if isinstance(record, LeaseRenewed):
                seen = self._clock.monotonic()

        epoch, end = store.state.lease_epoch, store.on_record(see)
        self.is_handed = True
        try:
            while not stopping.is_set():
                if store.state.released or store.state.lease_epoch != epoch:
                    return False
                silent = self._clock.monotonic() - seen > store.state.ttl_ms / 1000
                if (store.state.holder is not None and is_dead(store.state.holder)) or (
                    silent and await self._is_silent(store, lambda: seen)
                ):
                    return False
                await wait_for(stopping, LOOK_S)
            return True
        finally:
            end()
            self.is_handed = False
            self.successor = None
            left = self._engine.running(self._prefix)
            await asyncio.gather(*(each.close(CLOSE_S) for each in left), return_exceptions=True)

    async def _is_silent(self, store: LedgerStore, seen: Callable[[], float]) -> bool:
        """Read the ledger to its end, and return whether the new daemon has still not renewed its lease.

        While this process was suspended, the new daemon may have written renewals that this process has not read yet.
        If the ledger cannot be read, the result is False, because the new daemon may have renewed its lease unnoticed.
        """
        before = seen()
        try:
            await store.read_to_end()
        except LedgerUnavailable:
            return False
        return seen() == before


class Handing(Protocol):
    """The interface of a flow that can be handed over. `mirrord.supervision.flow_supervisor.FlowSupervisor` implements
    it."""

    handover: FlowHandover

    def refusal(self) -> str:
        """Return why the flow cannot be handed over now, or an empty string if it can."""
        ...


class Handover:
    """Answers the requests with which a new daemon takes over the flows of this daemon."""

    def __init__(
        self, engine: Engine, flows: Mapping[str, Handing], dismissed: Callable[[], None], clock: Clock
    ) -> None:
        """Initialize without a successor. `dismissed` is called to stop this daemon."""
        self.replaced_by: Successor | None = None
        """The daemon that has taken over all flows; None until then."""
        self._heir: Successor | None = None
        """The daemon that has begun to take over flows; None if there is none."""
        self._heard = 0.0
        """The time at which the daemon that is taking over last sent a request."""
        self._clock = clock
        self._engine = engine
        self._flows = flows
        self._dismissed = dismissed

    async def answer(self, call: HandoverCall, terms: HandoverTerms) -> HandoverAnswer:
        """Carry out a request from a new daemon, and return the answer. If several daemons want to take over, only one
        of them is served."""
        heir = self._heir if self._clock.monotonic() - self._heard < GONE_S else None
        if all(flow.handover.successor != heir for flow in self._flows.values()):
            heir = None  # this daemon has taken back the flows that the other daemon had begun to take over
        if heir is not None and call.successor != heir:
            return HandoverAnswer(refused=f"mirrord {heir.program} at {heir.http} is already taking over from it")
        if heir is not None:
            self._heard = self._clock.monotonic()
        match call.verb:
            case "terms":
                return HandoverAnswer(terms=terms)
            case "begin":
                return HandoverAnswer(refused=self._begin(call))
            case "found":
                return self._found(call, terms.instance)
            case "end":
                return HandoverAnswer(refused=self._end(call.successor))
            case _:
                return await self._pass_on(call)

    def _end(self, successor: Successor | None) -> str:
        """Stop this daemon unless it still has flows. Return why it does not stop, or an empty string if it does.

        The new daemon sends the request "end" when it has taken over all flows that it knows of. By then, `apply` may
        have added another flow to this daemon.
        """
        kept = [name for name, flow in self._flows.items() if not flow.handover.is_handed and not flow.refusal()]
        if kept:
            return f"not handed over: {', '.join(kept)}"
        self.replaced_by = successor
        log.info("daemon_replaced", by=successor)
        self._dismissed()
        return ""

    def _begin(self, call: HandoverCall) -> str:
        flow = self._flows.get(call.flow)
        if flow is None or call.successor is None:
            return f'this daemon has no flow "{call.flow}"'
        if reason := flow.refusal():
            return f"{call.flow}: {reason}"
        self._heir, self._heard = call.successor, self._clock.monotonic()
        flow.handover.successor = call.successor
        log.info("flow_to_be_handed_over", flow=call.flow, to=call.successor)
        return ""

    def _found(self, call: HandoverCall, instance: str) -> HandoverAnswer:
        flow = self._flows.get(call.flow)
        if flow is not None and not flow.handover.is_handed:
            return HandoverAnswer(refused=f"{call.flow} is not handed over yet")
        left = self._engine.running(f"{instance}/{call.flow}/")
        return HandoverAnswer(names=tuple(sorted(each.name for each in left)))

    async def _pass_on(self, call: HandoverCall) -> HandoverAnswer:
        try:
            return await _order(self._named(call.name), call)
        except ReplicatorDead as fault:
            return HandoverAnswer(refused=str(fault), dead=True)
        except ReplicatorUnsure as fault:
            return HandoverAnswer(refused=str(fault))

    def _named(self, name: str) -> ReplicatorHandle:
        """Return the replicator with this name. Raises ReplicatorDead if it has ended. Raises ReplicatorUnsure if its
        flow has not been handed over."""
        for handle in self._engine.running(name):
            if handle.name == name:
                if not any(flow.handover.has(name) for flow in self._flows.values()):
                    raise ReplicatorUnsure(f"{name} is not handed over")
                return handle
        raise ReplicatorDead(f"{name} has ended")


async def _order(handle: ReplicatorHandle, call: HandoverCall) -> HandoverAnswer:
    match call.verb:
        case "greet":
            return HandoverAnswer(greeting=await handle.greet())
        case "release":
            partings = await handle.release(call.lanes, call.deadline_s)
            words = {lane: each.word for lane, each in partings.items() if each.word is not None}
            return HandoverAnswer(left={lane: each.clean for lane, each in partings.items()}, words=words)
        case "report":
            return HandoverAnswer(report=msgspec.msgpack.encode(await handle.report()))
        case "close":
            await handle.close(call.deadline_s)
        case "kill":
            await handle.kill()
        case _:
            return HandoverAnswer(refused=f"{call.verb} is not a command for a replicator")
    return HandoverAnswer()
