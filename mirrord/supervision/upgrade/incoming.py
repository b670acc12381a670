"""The new daemon's side of an upgrade: takes over the flows of the old daemon. A lane pauses only while it moves.

The new daemon continues the leases of the old daemon, so that the old replicators may keep writing. It moves their
lanes in portions to new replicators (`Fleet`). The old replicators run in processes of the old daemon, so they are
commanded through its HTTP API. When they have no lanes left, the new daemon orders the old one to end.
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
"""For calls that are given a deadline: how long after the deadline the answer may arrive, because the old daemon passes
the call on to its replicator."""
RETRY_S = 0.2
LET_GO_S = 15.0
"""How long the old daemon may take to hand over a flow. Also how long the new daemon tries to end the old one when all
lanes have moved."""
LOOK_S = 0.5

log = structlog.get_logger()


class Succession:
    """The takeover of all flows from the daemon that this one replaces."""

    def __init__(self, predecessor: Predecessor, config: Config, clock: Clock) -> None:
        self.predecessor = predecessor
        self.successor = Successor("", program())
        """This daemon. Its address is empty until its HTTP API is open."""
        self.over = False
        """Whether the old daemon has no flows left and was ordered to end."""
        self.names: set[str] = set()
        """Names of the replicators that run in processes of the old daemon."""
        self._config = config
        self._clock = clock

    @property
    def busy(self) -> str:
        """Why no other daemon can take over from this daemon now. Empty if one can."""
        return "" if self.over else f"it is being taken over from {self.predecessor.http}"

    async def consent(
        self, flow: str, state: Callable[[], FlowState], report: Callable[[str], None], since_s: Callable[[], float]
    ) -> None:
        """Wait until the old daemon agrees to hand over a flow, or no longer holds it.

        `since_s` returns how long ago the lease was last seen to be renewed. `report` is called with the reason for a
        delay.
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
        """Return the names of the replicators that the old daemon has left running for a flow.

        From its answer on, the old daemon makes no decisions for the flow.
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
        """Order the old daemon to end as soon as `left` says that none of its replicators are left.

        If it does not accept the order in time, it keeps running, but it has no flows any more.
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
        """Order the old daemon to end. Return why it does not, or an empty string."""
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
    """An `Engine` that wraps the engine of this daemon, and also finds and commands the replicators of the old
    daemon."""

    def __init__(self, engine: Engine, succession: Succession) -> None:
        self._engine = engine
        self._succession = succession

    @property
    def cores(self) -> int:
        """The number of cores of the wrapped engine."""
        return self._engine.cores

    @property
    def nodes(self) -> Mapping[str, int]:
        """The nodes of the wrapped engine."""
        return self._engine.nodes

    @property
    def hosts_all(self) -> bool:
        """Always False, because some replicators run in processes of the old daemon."""
        return False

    async def start(
        self, name: str, setup: FlowSetup, on_death: Callable[[], None], node: str = ""
    ) -> ReplicatorHandle:
        """Start a replicator on the wrapped engine."""
        return await self._engine.start(name, setup, on_death, node)

    async def start_groups(self, name: str, setup: FlowSetup, on_death: Callable[[], None]) -> GroupsHandle:
        """Start a group follower on the wrapped engine. The old daemon ends its own follower when it hands over the
        flow."""
        return await self._engine.start_groups(name, setup, on_death)

    async def found(self, prefix: str) -> list[str]:
        """Return the names of the replicators and followers that the wrapped engine finds, and of the old daemon's
        replicators."""
        own = await self._engine.found(prefix)
        _, _, rest = prefix.partition("/")
        others = await self._succession.found(rest.partition("/")[0])
        # On one Ray cluster both daemons see the same actors, which are then taken over directly.
        self._succession.names.difference_update(own)
        return sorted({*own, *(name for name in others if name.startswith(prefix))})

    async def attach(self, name: str, on_death: Callable[[], None]) -> ReplicatorHandle:
        """Return a handle for the replicator of this name, which `found` has returned."""
        if name in self._succession.names:
            return Remote(name, self._succession)
        return await self._engine.attach(name, on_death)

    async def attach_groups(self, name: str, on_death: Callable[[], None]) -> GroupsHandle:
        """Return a handle for the group follower of this name, which the wrapped engine has found."""
        return await self._engine.attach_groups(name, on_death)

    def running(self, prefix: str) -> Sequence[ReplicatorHandle]:
        """Return the replicators of the wrapped engine."""
        return self._engine.running(prefix)

    async def end(self, name: str) -> None:
        """End the replicator or follower of this name, which `found` has returned."""
        if name in self._succession.names:
            await Remote(name, self._succession).kill()
        else:
            await self._engine.end(name)

    async def close(self) -> None:
        """End all replicators and followers of the wrapped engine."""
        await self._engine.close()


class Remote:
    """The `ReplicatorHandle` of a replicator of the old daemon, which is commanded through that daemon's HTTP API."""

    def __init__(self, name: str, succession: Succession) -> None:
        self.name = name
        self._succession = succession

    async def prepare(self, lanes: Sequence[LaneAssignment]) -> None:
        """Ignore the lanes, because a replicator of the old daemon gets no more lanes."""

    async def assign(self, lanes: Sequence[LaneAssignment]) -> None:
        """Raise ReplicatorUnsure, because a replicator of the old daemon gets no more lanes."""
        raise Unsure(f"{self.name} accepts no lanes ({len(lanes)})")

    async def release(self, lanes: Sequence[LaneId], deadline_s: float) -> dict[LaneId, Parting]:
        """Make the replicator drain lanes, and return how it left each of them."""
        answer = await self._call("release", lanes, deadline_s)
        return {lane: Parting(clean, answer.words.get(lane)) for lane, clean in answer.left.items()}

    async def hurry(self, lanes: Sequence[LaneId]) -> None:
        """Ignore the call, because the replicator is about to end."""

    async def report(self) -> ReplicatorReport:
        """Return the replicator's current report."""
        answer = await self._call("report")
        try:
            return msgspec.msgpack.decode(answer.report, type=ReplicatorReport)
        except msgspec.DecodeError as error:
            raise ReplicatorForeign(f"{self.name}: {error}") from error

    async def greet(self) -> Greeting:
        """Return the replicator's version, setup and report.

        The old daemon's address is added to the version, so that it never equals this daemon's version and the
        replicator is always retired. Its process ends with the old daemon.
        """
        answer = await self._call("greet")
        if answer.greeting is None:
            raise Unsure(f"{self.name} does not say who it is")
        return msgspec.structs.replace(
            answer.greeting, program=f"{answer.greeting.program} at {self._succession.predecessor.http}"
        )

    async def close(self, deadline_s: float) -> None:
        """Make the replicator drain its lanes and end."""
        await self._call("close", (), deadline_s)

    async def kill(self) -> None:
        """End the replicator without draining it."""
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
