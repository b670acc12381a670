"""The new daemon's part of an upgrade: it takes over the flows of the old daemon. A lane pauses only while it moves.

The new daemon continues the leases of the old daemon, so the old replicators may keep writing. Its `Fleet` moves their
lanes to new replicators, one group of lanes at a time. The old replicators run in processes of the old daemon, so the
new daemon sends commands to them through the old daemon's HTTP API. When they no longer host any lanes, the new daemon
orders the old daemon to exit.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec
import structlog

from mirrord.config.schema import Config
from mirrord.control.command_sender import CommandRefused, NoAnswer
from mirrord.ledger.facts.core import Holder
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.process_identity import is_dead
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId
from mirrord.replication.lane.assignment import FlowSetup, Greeting, LaneAssignment, Parting, ReplicatorReport
from mirrord.runtime.build_info import program
from mirrord.runtime.clock import Clock
from mirrord.supervision.daemon_http_client import hand_over
from mirrord.supervision.fleet.engine import Engine, GroupsHandle, ReplicatorDead, ReplicatorForeign, ReplicatorHandle
from mirrord.supervision.fleet.engine import ReplicatorUnsure as Unsure
from mirrord.supervision.upgrade.protocol import HandoverAnswer, HandoverCall, HandoverVerb, Predecessor, Successor

CALL_S = 5.0
ANSWER_S = 4.0
"""A call with a deadline may be answered up to this many seconds after the deadline, because the old daemon passes the
call on to its replicator."""
RETRY_S = 0.2
LET_GO_S = 15.0
"""Time limit for the old daemon to hand over a flow. It also limits the attempts to make the old daemon exit after all
lanes have moved."""
LOOK_S = 0.5

log = structlog.get_logger()


class Succession:
    """The takeover of all flows from the daemon that this daemon replaces."""

    def __init__(self, predecessor: Predecessor, config: Config, clock: Clock) -> None:
        self.predecessor = predecessor
        self.successor = Successor("", program())
        """The address and version of this daemon, which each request to the old daemon contains. The address is empty
        until the HTTP API of this daemon is open."""
        self.over = False
        """Whether the old daemon no longer has any flows and has been ordered to exit."""
        self.names: set[str] = set()
        """Names of the replicators that run in processes of the old daemon."""
        self._config = config
        self._clock = clock

    @property
    def busy(self) -> str:
        """Why no other daemon can take over from this daemon now. Empty if another daemon can."""
        return "" if self.over else f"it is being taken over from {self.predecessor.http}"

    async def consent(
        self, flow: str, state: Callable[[], FlowState], report: Callable[[str], None], since_s: Callable[[], float]
    ) -> None:
        """Wait until the old daemon agrees to hand over a flow, or until its lease on this flow has ended.

        `since_s` returns the number of seconds since the last observed renewal of the lease. `report` is called with
        the reason for a delay.
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
            report(f"waiting for the daemon at {self.predecessor.http} to hand it over: {reason}")
            await self._clock.sleep(RETRY_S)

    async def found(self, flow: str) -> list[str]:
        """Return the names of the replicators that the old daemon has left running for a flow.

        Once the old daemon has answered this request, it makes no more decisions for the flow.
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
        """Wait until none of the old daemon's replicators is left, and then order the old daemon to exit. `left`
        returns whether such replicators exist.

        If the old daemon does not accept the order in time, it keeps running, but without any flows.
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
        """Send a handover request to the old daemon, and return the answer. Raises NoAnswer or CommandRefused."""
        call = HandoverCall(
            verb=verb,
            successor=self.successor,
            flow=flow,
            name=name,
            lanes=tuple(lanes),
            deadline_s=deadline_s,
            by=self.predecessor.by,
        )
        return await hand_over(self.predecessor.http, self._config, call, max(CALL_S, deadline_s + ANSWER_S))

    async def _end(self) -> str:
        """Order the old daemon to exit. Return why it does not exit, or an empty string if it does."""
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
    """An `Engine` that wraps this daemon's engine and also finds and commands the old daemon's replicators."""

    def __init__(self, engine: Engine, succession: Succession) -> None:
        self._engine = engine
        self._succession = succession

    @property
    def cores(self) -> int:
        """The number of cores of the wrapped engine."""
        return self._engine.cores

    @property
    def nodes(self) -> Mapping[str, int]:
        """The nodes of the wrapped engine and their numbers of cores."""
        return self._engine.nodes

    @property
    def hosts_all(self) -> bool:
        """Always False: replicators in processes of the old daemon do not end when this process exits."""
        return False

    async def start(
        self, name: str, setup: FlowSetup, on_death: Callable[[], None], node: str = ""
    ) -> ReplicatorHandle:
        """Start a replicator on the wrapped engine."""
        return await self._engine.start(name, setup, on_death, node)

    async def start_groups(self, name: str, setup: FlowSetup, on_death: Callable[[], None]) -> GroupsHandle:
        """Start a group follower on the wrapped engine. When the old daemon hands over the flow, it terminates its own
        follower."""
        return await self._engine.start_groups(name, setup, on_death)

    async def found(self, prefix: str) -> list[str]:
        """Return the names of the replicators and group followers that the wrapped engine finds, together with the
        names of the old daemon's replicators."""
        own = await self._engine.found(prefix)
        _, _, rest = prefix.partition("/")
        others = await self._succession.found(rest.partition("/")[0])
        # If both daemons use the same Ray cluster, they see the same actors. These actors are taken over directly.
        self._succession.names.difference_update(own)
        return sorted({*own, *(name for name in others if name.startswith(prefix))})

    async def attach(self, name: str, on_death: Callable[[], None]) -> ReplicatorHandle:
        """Return a handle for a replicator whose name was returned by `found`."""
        if name in self._succession.names:
            return Remote(name, self._succession)
        return await self._engine.attach(name, on_death)

    async def attach_groups(self, name: str, on_death: Callable[[], None]) -> GroupsHandle:
        """Return a handle for a group follower whose name was returned by the wrapped engine."""
        return await self._engine.attach_groups(name, on_death)

    def running(self, prefix: str) -> Sequence[ReplicatorHandle]:
        """Return the handles of the wrapped engine's replicators."""
        return self._engine.running(prefix)

    async def end(self, name: str) -> None:
        """Terminate a replicator or group follower whose name was returned by `found`."""
        if name in self._succession.names:
            await Remote(name, self._succession).kill()
        else:
            await self._engine.end(name)

    async def close(self) -> None:
        """Terminate all replicators and group followers of the wrapped engine."""
        await self._engine.close()


class Remote:
    """The `ReplicatorHandle` of a replicator of the old daemon. Commands reach it through the old daemon's
    HTTP API."""

    def __init__(self, name: str, succession: Succession) -> None:
        self.name = name
        self._succession = succession

    async def prepare(self, lanes: Sequence[LaneAssignment]) -> None:
        """Do nothing, because a replicator of the old daemon gets no more lanes."""

    async def assign(self, lanes: Sequence[LaneAssignment]) -> None:
        """Refuse the lanes by raising ReplicatorUnsure, because a replicator of the old daemon gets no more lanes."""
        raise Unsure(f"{self.name} accepts no lanes ({len(lanes)})")

    async def release(self, lanes: Sequence[LaneId], deadline_s: float) -> dict[LaneId, Parting]:
        """Make the replicator drain these lanes. For each lane, return whether it was left cleanly, and its progress
        record."""
        answer = await self._call("release", lanes, deadline_s)
        return {lane: Parting(clean, answer.words.get(lane)) for lane, clean in answer.left.items()}

    async def hurry(self, lanes: Sequence[LaneId]) -> None:
        """Ignore the call. A replicator of the old daemon is about to shut down."""

    async def report(self) -> ReplicatorReport:
        """Return the current report of the replicator."""
        answer = await self._call("report")
        try:
            return msgspec.msgpack.decode(answer.report, type=ReplicatorReport)
        except (ValueError, RecursionError) as error:
            raise ReplicatorForeign(f"{self.name}: {error}") from error

    async def greet(self) -> Greeting:
        """Return the replicator's version, its setup and its report.

        The old daemon's address is appended to the version. The version therefore never equals the version of this
        daemon, so the replicator is always retired. Retiring is necessary because the replicator's process exits
        together with the old daemon.
        """
        answer = await self._call("greet")
        if answer.greeting is None:
            raise Unsure(f"{self.name} does not say who it is")
        return msgspec.structs.replace(
            answer.greeting, program=f"{answer.greeting.program} at {self._succession.predecessor.http}"
        )

    async def close(self, deadline_s: float) -> None:
        """Make the replicator drain its lanes and then shut down."""
        await self._call("close", (), deadline_s)

    async def kill(self) -> None:
        """Kill the replicator without draining it."""
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
