"""How a daemon replaces another one: host by host, and no lane stands still that is not on its way.

It goes on with the old daemon's leases, so that the old replicators may write as before, and takes their lanes in
pieces to replicators of its own (`Fleet`). The old replicators live in processes of the old daemon: what they are to do
is ordered through its HTTP door. When they have nothing any more, the old daemon is told to end.
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
from mirrord.supervision.fleet.engine import Engine, GroupsHandle, ReplicatorDead, ReplicatorForeign, ReplicatorHandle
from mirrord.supervision.fleet.engine import ReplicatorUnsure as Unsure
from mirrord.supervision.upgrade.daemon_client import NoAnswer, Refused, hand_over
from mirrord.supervision.upgrade.protocol import HandoverAnswer, HandoverCall, Predecessor, Successor, Verb

CALL_S = 5.0
ANSWER_S = 4.0
"""How much longer than its own deadline a call may take: the old daemon asks its replicator."""
RETRY_S = 0.2
LET_GO_S = 15.0
"""How long the old daemon may take to let a flow go, and in the end to hear that it may end."""
LOOK_S = 0.5

log = structlog.get_logger()


class Succession:
    """The daemon that this one replaces."""

    def __init__(self, predecessor: Predecessor, config: Config, clock: Clock) -> None:
        self.predecessor = predecessor
        self.successor = Successor("", program())
        """This daemon; its address is known when its door is open."""
        self.over = False
        """The old daemon has nothing any more, and was told so."""
        self.names: set[str] = set()
        """Replicators of the old daemon."""
        self._config = config
        self._clock = clock

    @property
    def busy(self) -> str:
        """Why nobody else can take over from this daemon now, or empty."""
        return "" if self.over else f"it is being taken over from {self.predecessor.http}"

    async def consent(
        self, flow: str, state: Callable[[], FlowState], tell: Callable[[str], None], since_s: Callable[[], float]
    ) -> None:
        """Wait until the old daemon agrees to hand a flow over, or has it no longer. `since_s`: how long ago the lease
        was seen to be renewed; `tell` gets why it takes a while."""
        while self._has_it(state()):
            try:
                answer = await self.call("begin", flow=flow)
            except (NoAnswer, Refused) as fault:
                if since_s() > state().ttl_ms / 1000:
                    return
                reason = str(fault)
            else:
                if not answer.refused:
                    return
                reason = answer.refused
            tell(f"waits for the daemon at {self.predecessor.http} to hand it over: {reason}")
            await self._clock.sleep(RETRY_S)

    async def found(self, flow: str) -> list[str]:
        """The replicators that the old daemon has left running for a flow; it does nothing of its own then."""
        deadline = self._clock.monotonic() + LET_GO_S
        while not self.over and self._clock.monotonic() < deadline:
            try:
                answer = await self.call("found", flow=flow)
            except (NoAnswer, Refused) as fault:
                log.warning("predecessor_silent", flow=flow, reason=str(fault))
                if isinstance(fault, Refused):
                    break
            else:
                if not answer.refused:
                    self.names.update(answer.names)
                    return list(answer.names)
            await self._clock.sleep(RETRY_S)
        return []

    async def dismiss(self, left: Callable[[], bool]) -> None:
        """Tell the old daemon to end as soon as nothing is left there; should it not hear, it stands aside on."""
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
        self, verb: Verb, flow: str = "", name: str = "", lanes: Sequence[LaneId] = (), deadline_s: float = 0.0
    ) -> HandoverAnswer:
        """Ask the old daemon. Raises NoAnswer, Refused."""
        call = HandoverCall(
            verb=verb, successor=self.successor, flow=flow, name=name, lanes=tuple(lanes), deadline_s=deadline_s
        )
        return await hand_over(self.predecessor.http, self._config, call, max(CALL_S, deadline_s + ANSWER_S))

    async def _end(self) -> str:
        """Why the old daemon does not end, or empty."""
        try:
            return (await self.call("end")).refused
        except (NoAnswer, Refused) as fault:
            return str(fault)

    def _has_it(self, state: FlowState) -> bool:
        holder: Holder | None = state.holder
        return (
            holder is not None and holder.http == self.predecessor.http and not state.released and not is_dead(holder)
        )


class SuccessionEngine:
    """An `Engine` that finds the old daemon's replicators, too."""

    def __init__(self, engine: Engine, succession: Succession) -> None:
        self._engine = engine
        self._succession = succession

    @property
    def cores(self) -> int:
        """As it has."""
        return self._engine.cores

    @property
    def nodes(self) -> Mapping[str, int]:
        """As it has."""
        return self._engine.nodes

    @property
    def hosts_all(self) -> bool:
        """Not as long as others of this daemon live elsewhere."""
        return False

    async def start(
        self, name: str, setup: FlowSetup, on_death: Callable[[], None], node: str = ""
    ) -> ReplicatorHandle:
        """Start one here."""
        return await self._engine.start(name, setup, on_death, node)

    async def start_groups(self, name: str, setup: FlowSetup, on_death: Callable[[], None]) -> GroupsHandle:
        """Start one here: the old daemon ends its own when it lets a flow go."""
        return await self._engine.start_groups(name, setup, on_death)

    async def found(self, prefix: str) -> list[str]:
        """Those that this engine finds, and the old daemon's."""
        own = await self._engine.found(prefix)
        _, _, rest = prefix.partition("/")
        others = await self._succession.found(rest.partition("/")[0])
        # On one Ray cluster both see the same actors: then they are taken over as they are.
        self._succession.names.difference_update(own)
        return sorted({*own, *(name for name in others if name.startswith(prefix))})

    async def attach(self, name: str, on_death: Callable[[], None]) -> ReplicatorHandle:
        """One that was found."""
        if name in self._succession.names:
            return Remote(name, self._succession)
        return await self._engine.attach(name, on_death)

    async def attach_groups(self, name: str, on_death: Callable[[], None]) -> GroupsHandle:
        """One that was found here."""
        return await self._engine.attach_groups(name, on_death)

    def running(self, prefix: str) -> Sequence[ReplicatorHandle]:
        """Those that live here."""
        return self._engine.running(prefix)

    async def end(self, name: str) -> None:
        """End one that was found."""
        if name in self._succession.names:
            await Remote(name, self._succession).kill()
        else:
            await self._engine.end(name)

    async def close(self) -> None:
        """End all that live here."""
        await self._engine.close()


class Remote:
    """A `ReplicatorHandle` of the old daemon's."""

    def __init__(self, name: str, succession: Succession) -> None:
        self.name = name
        self._succession = succession

    async def prepare(self, lanes: Sequence[LaneAssignment]) -> None:
        """It gets none."""

    async def assign(self, lanes: Sequence[LaneAssignment]) -> None:
        """It is about to end, and gets none."""
        raise Unsure(f"{self.name} takes no lanes ({len(lanes)})")

    async def release(self, lanes: Sequence[LaneId], deadline_s: float) -> dict[LaneId, Parting]:
        """Let it drain lanes."""
        answer = await self._call("release", lanes, deadline_s)
        return {lane: Parting(clean, answer.words.get(lane)) for lane, clean in answer.left.items()}

    async def hurry(self, lanes: Sequence[LaneId]) -> None:
        """It is about to end."""

    async def report(self) -> ReplicatorReport:
        """How it is now."""
        answer = await self._call("report")
        try:
            return msgspec.msgpack.decode(answer.report, type=ReplicatorReport)
        except msgspec.DecodeError as error:
            raise ReplicatorForeign(f"{self.name}: {error}") from error

    async def greet(self) -> Greeting:
        """Who it is. Its process ends with the old daemon, so it is never one of this program's."""
        answer = await self._call("greet")
        if answer.greeting is None:
            raise Unsure(f"{self.name} does not say who it is")
        return msgspec.structs.replace(
            answer.greeting, program=f"{answer.greeting.program} at {self._succession.predecessor.http}"
        )

    async def close(self, deadline_s: float) -> None:
        """Let it drain what it has and end."""
        await self._call("close", (), deadline_s)

    async def kill(self) -> None:
        """End it."""
        await self._call("kill")

    async def _call(self, verb: Verb, lanes: Sequence[LaneId] = (), deadline_s: float = 0.0) -> HandoverAnswer:
        try:
            answer = await self._succession.call(verb, "", self.name, lanes, deadline_s)
        except EnvironmentFault as fault:
            raise Unsure(str(fault)) from fault
        if answer.dead:
            raise ReplicatorDead(answer.refused)
        if answer.refused:
            raise Unsure(answer.refused)
        return answer
