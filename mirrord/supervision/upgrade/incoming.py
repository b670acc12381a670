"""How a daemon replaces another daemon, one replicator at a time. A lane pauses only while it is being moved.

The new daemon continues with the old daemon's leases, so that the old replicators may keep writing. It moves their
lanes in groups to its own replicators (`Fleet`). The old replicators live in processes of the old daemon, so they are
controlled through its HTTP interface. When they have no lanes left, the old daemon is told to end.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog

from mirrord.config.schema import Config
from mirrord.ledger.facts.core import Holder
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.process_identity import is_dead
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId
from mirrord.replication.lane.assignment import FlowSetup, Greeting, LaneAssignment, Parting, ReplicatorReport
from mirrord.runtime.build_info import program
from mirrord.runtime.clock import Clock
from mirrord.supervision.daemon_http_client import CommandRefused, NoAnswer, hand_over
from mirrord.supervision.fleet.engine import Engine, GroupsHandle, ReplicatorDead, ReplicatorForeign, ReplicatorHandle
from mirrord.supervision.fleet.engine import ReplicatorUnsure as Unsure
from mirrord.supervision.upgrade.protocol import HandoverAnswer, HandoverCall, HandoverVerb, Predecessor, Successor

CALL_S = 5.0
ANSWER_S = 4.0
"""How much longer than its own deadline a call may take, because the old daemon has to ask its replicator."""
RETRY_S = 0.2
LET_GO_S = 15.0
"""How long the old daemon may take to release a flow, and how long it is asked to end when everything has moved."""
LOOK_S = 0.5

log = structlog.get_logger()


class Succession:
    """The daemon that this one replaces."""

    def __init__(self, predecessor: Predecessor, config: Config, clock: Clock) -> None:
        self.predecessor = predecessor
        self.successor = Successor("", program())
        """This daemon; its address is known when its HTTP interface is open."""
        self.over = False
        """Whether the old daemon has nothing left and was told to end."""
        self.names: set[str] = set()
        """Names of the old daemon's replicators."""
        self._config = config
        self._clock = clock

    @property
    def busy(self) -> str:
        """Why no other daemon can take over from this daemon now; empty if one can."""
        return "" if self.over else f"it is being taken over from {self.predecessor.http}"

    async def consent(
        self, flow: str, state: Callable[[], FlowState], report: Callable[[str], None], since_s: Callable[[], float]
    ) -> None:
        """Wait until the old daemon agrees to hand over a flow, or no longer holds it.

        `since_s` returns how long ago a renewal of the lease was seen. `report` gets the reason for a delay.
        """
        while self._has_it(state()):
            try:
                answer = await self.call("begin", flow=flow)
            except (NoAnswer, CommandRefused) as fault:
                if since_s() > state().ttl_ms / 1000:
                    return
                reason = str(fault)
            else:
                if not answer.refused:
                    return
                reason = answer.refused
            report(f"waits for the daemon at {self.predecessor.http} to hand it over: {reason}")
            await self._clock.sleep(RETRY_S)

    async def found(self, flow: str) -> list[str]:
        """Return the replicators that the old daemon has left running for a flow.

        The old daemon then no longer acts on the flow by itself.
        """
        deadline = self._clock.monotonic() + LET_GO_S
        while not self.over and self._clock.monotonic() < deadline:
            try:
                answer = await self.call("found", flow=flow)
            except (NoAnswer, CommandRefused) as fault:
                log.warning("predecessor_silent", flow=flow, reason=str(fault))
                if isinstance(fault, CommandRefused):
                    break
            else:
                if not answer.refused:
                    self.names.update(answer.names)
                    return list(answer.names)
            await self._clock.sleep(RETRY_S)
        return []

    async def dismiss(self, left: Callable[[], bool]) -> None:
        """Tell the old daemon to end as soon as nothing is left there.

        If it cannot be told in time, it keeps running, but it has no flows any more.
        """
        while left():
            await self._clock.sleep(LOOK_S)
        deadline = self._clock.monotonic() + LET_GO_S
        while reason := await self._end():
            if self._clock.monotonic() > deadline:
                log.warning("predecessor_stays", reason=reason)
                break
            await self._clock.sleep(RETRY_S)
        self.over = True
        log.info("daemon_upgraded", before=self.predecessor, now=self.successor)

    async def call(
        self, verb: HandoverVerb, flow: str = "", name: str = "", lanes: Sequence[LaneId] = (), deadline_s: float = 0.0
    ) -> HandoverAnswer:
        """Send a handover request to the old daemon. Raises NoAnswer, CommandRefused."""
        call = HandoverCall(
            verb=verb, successor=self.successor, flow=flow, name=name, lanes=tuple(lanes), deadline_s=deadline_s
        )
        return await hand_over(self.predecessor.http, self._config, call, max(CALL_S, deadline_s + ANSWER_S))

    async def _end(self) -> str:
        """Tell the old daemon to end; return why it does not, or an empty string."""
        try:
            return (await self.call("end")).refused
        except (NoAnswer, CommandRefused) as fault:
            return str(fault)

    def _has_it(self, state: FlowState) -> bool:
        holder: Holder | None = state.holder
        return (
            holder is not None and holder.http == self.predecessor.http and not state.released and not is_dead(holder)
        )


class SuccessionEngine:
    """An `Engine` that also finds the old daemon's replicators."""

    def __init__(self, engine: Engine, succession: Succession) -> None:
        self._engine = engine
        self._succession = succession

    @property
    def cores(self) -> int:
        """Number of cores of the wrapped engine."""
        return self._engine.cores

    @property
    def nodes(self) -> Mapping[str, int]:
        """Nodes of the wrapped engine."""
        return self._engine.nodes

    @property
    def hosts_all(self) -> bool:
        """Always false, because some replicators live in processes of the old daemon."""
        return False

    async def start(
        self, name: str, setup: FlowSetup, on_death: Callable[[], None], node: str = ""
    ) -> ReplicatorHandle:
        """Start a replicator here."""
        return await self._engine.start(name, setup, on_death, node)

    async def start_groups(self, name: str, setup: FlowSetup, on_death: Callable[[], None]) -> GroupsHandle:
        """Start a follower of groups here. The old daemon ends its own follower when it releases a flow."""
        return await self._engine.start_groups(name, setup, on_death)

    async def found(self, prefix: str) -> list[str]:
        """Return the replicators that the wrapped engine finds, and those of the old daemon."""
        own = await self._engine.found(prefix)
        _, _, rest = prefix.partition("/")
        others = await self._succession.found(rest.partition("/")[0])
        # On one Ray cluster both daemons see the same actors, which are then taken over directly.
        self._succession.names.difference_update(own)
        return sorted({*own, *(name for name in others if name.startswith(prefix))})

    async def attach(self, name: str, on_death: Callable[[], None]) -> ReplicatorHandle:
        """Return a handle for a replicator that was found."""
        if name in self._succession.names:
            return Remote(name, self._succession)
        return await self._engine.attach(name, on_death)

    async def attach_groups(self, name: str, on_death: Callable[[], None]) -> GroupsHandle:
        """Return a handle for a follower of groups that was found here."""
        return await self._engine.attach_groups(name, on_death)

    def running(self, prefix: str) -> Sequence[ReplicatorHandle]:
        """Return the replicators that live here."""
        return self._engine.running(prefix)

    async def end(self, name: str) -> None:
        """End a replicator that was found."""
        if name in self._succession.names:
            await Remote(name, self._succession).kill()
        else:
            await self._engine.end(name)

    async def close(self) -> None:
        """End all replicators that live here."""
        await self._engine.close()


class Remote:
    """A `ReplicatorHandle` for a replicator of the old daemon."""

    def __init__(self, name: str, succession: Succession) -> None:
        self.name = name
        self._succession = succession

    async def prepare(self, lanes: Sequence[LaneAssignment]) -> None:
        """Do nothing: this replicator gets no lanes."""

    async def assign(self, lanes: Sequence[LaneAssignment]) -> None:
        """Raise ReplicatorUnsure: this replicator is about to end and gets no lanes."""
        raise Unsure(f"{self.name} accepts no lanes ({len(lanes)})")

    async def release(self, lanes: Sequence[LaneId], deadline_s: float) -> dict[LaneId, Parting]:
        """Let the replicator drain lanes; return for each how it was left."""
        answer = await self._call("release", lanes, deadline_s)
        return {lane: Parting(clean, answer.words.get(lane)) for lane, clean in answer.left.items()}

    async def hurry(self, lanes: Sequence[LaneId]) -> None:
        """Do nothing: this replicator is about to end."""

    async def report(self) -> ReplicatorReport:
        """Return the replicator's current report."""
        answer = await self._call("report")
        try:
            return msgspec.msgpack.decode(answer.report, type=ReplicatorReport)
        except msgspec.DecodeError as error:
            raise ReplicatorForeign(f"{self.name}: {error}") from error

    async def greet(self) -> Greeting:
        """Return the replicator's identity.

        Its process ends with the old daemon, so its program never counts as the same as this one.
        """
        answer = await self._call("greet")
        if answer.greeting is None:
            raise Unsure(f"{self.name} does not say who it is")
        return msgspec.structs.replace(
            answer.greeting, program=f"{answer.greeting.program} at {self._succession.predecessor.http}"
        )

    async def close(self, deadline_s: float) -> None:
        """Let the replicator drain its lanes and end."""
        await self._call("close", (), deadline_s)

    async def kill(self) -> None:
        """End the replicator."""
        await self._call("kill")

    async def _call(self, verb: HandoverVerb, lanes: Sequence[LaneId] = (), deadline_s: float = 0.0) -> HandoverAnswer:
        try:
            answer = await self._succession.call(verb, "", self.name, lanes, deadline_s)
        except EnvironmentFault as fault:
            raise Unsure(str(fault)) from fault
        if answer.dead:
            raise ReplicatorDead(answer.refused)
        if answer.refused:
            raise Unsure(answer.refused)
        return answer
