"""The wall around Ray: every call has a time limit, and ends in an answer, `ReplicatorDead` or `ReplicatorUnsure`.

Actors are `Any` here and in `engine.py`, because Ray makes their methods at run time; what they answer gets its type
here. The functions of Ray that wait for its GCS run beside the event loop.
"""

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar, cast

import msgspec
import psutil
import ray
import structlog
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError, RayTaskError
from ray.util import list_named_actors
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from actors.options import HEALTH
from mirrord.ledger.facts.core import Progress
from mirrord.model.errors import EnvironmentFault
from mirrord.model.group_status import GroupsNews, GroupsReport
from mirrord.model.names import LaneId
from mirrord.replication.lane.assignment import Greeting, LaneAssignment, Parting, ReplicatorReport
from mirrord.supervision.fleet.engine import (
    NodeLost,
    ReplicatorDead,
    ReplicatorForeign,
    ReplicatorUnreachable,
    ReplicatorUnsure,
)

CALL_S = 5.0
ANSWER_S = 2.0
"""How much longer than its own deadline a call may take."""
REPORT_S = 15.0
"""A follower of groups asks the target first."""
LINGER_S = 1.0
"""Between the loss of a lease and the end of the process: the lanes are fenced at once, and say so."""
ORPHAN_LOOK_S = 1.0
END_S = 5.0
"""How long the end of a killed process may take to be known."""
END_LOOK_S = 0.05

NODE_DIED = "The actor died because its node has died."
"""Ray's words (GenNodeDiedCause in gcs_actor_manager.cc); the reason itself does not reach Python. A test looks whether
they are still these."""

log = structlog.get_logger()

Answer = TypeVar("Answer")
Method = TypeVar("Method", bound=Callable[..., Any])

_ray: Any = ray

_assignments = msgspec.msgpack.Encoder()
_word = msgspec.msgpack.Decoder(Progress)
_greeting = msgspec.msgpack.Decoder(Greeting)
_report = msgspec.msgpack.Decoder(ReplicatorReport)
_news = msgspec.msgpack.Decoder(GroupsNews)
_groups = msgspec.msgpack.Decoder(GroupsReport)


async def call(answer: Awaitable[Answer], timeout_s: float) -> Answer:
    """Wait for an actor's answer. Raises ReplicatorDead and ReplicatorUnsure, whatever went wrong."""
    try:
        # Not `asyncio.wait_for`: in Python 3.11 it may swallow the cancellation of the caller.
        async with asyncio.timeout(timeout_s):
            return await answer
    except ActorDiedError as error:
        if died_with_its_node(error):
            raise NodeLost(_node_line(error)) from error
        raise ReplicatorDead(_line(error)) from error
    except ActorUnavailableError as error:
        raise ReplicatorUnreachable(_line(error)) from error
    except TimeoutError as error:
        raise ReplicatorUnsure(f"no answer within {timeout_s:g} s") from error
    except RayTaskError as error:
        # The actor raised it: `cause` is what it raised.
        raise ReplicatorUnsure(_line(cast(BaseException, error.cause))) from error
    except RayError as error:
        raise ReplicatorUnsure(_line(error)) from error


def died_with_its_node(error: ActorDiedError) -> bool:
    """Whether Ray says so only because it lost the actor's node: the process may live, and go on for ever."""
    return NODE_DIED in str(error)


def in_health_group(method: Method) -> Method:
    """Marks a method of an actor that is answered by the thread and event loop of its health."""
    return _ray.method(concurrency_group=HEALTH)(method)


async def create(kind: type, options: Mapping[str, Any], name: str, *arguments: object, node: str = "") -> Any:
    """A new actor of this name, on this node if that is possible; it may still be starting. Raises EnvironmentFault,
    also when the name is taken."""
    where: dict[str, Any] = {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=True)} if node else {}

    def register() -> Any:
        return _ray.remote(**options)(kind).options(name=name, **where).remote(*arguments)

    try:
        return await asyncio.to_thread(register)
    except (RayError, ValueError) as error:
        raise EnvironmentFault(f"Ray does not start {name}: {_line(error)}") from error


async def find(name: str) -> Any | None:
    """The living actor of this name."""
    try:
        return await asyncio.to_thread(_ray.get_actor, name)
    except (RayError, ValueError):
        return None


async def names() -> list[str]:
    """The names of all living actors in this namespace. Raises ReplicatorUnsure when Ray does not tell them."""
    try:
        return await asyncio.to_thread(list_named_actors)
    except RayError as error:
        raise ReplicatorUnsure(f"Ray does not tell who is there: {_line(error)}") from error


async def kill(actor: Any, *, restart: bool = False) -> None:
    """End an actor's process, as by kill -9. It may take a moment, and whether it works must be seen elsewhere.

    `restart`: Ray starts it again, if that is how it was made.
    """
    with suppress(RayError, ValueError):
        await asyncio.to_thread(_ray.kill, actor, no_restart=not restart)


def end_when(lost: Coroutine[Any, Any, None], name: str, reason: str = "the lease is lost") -> asyncio.Task[None]:
    """End this actor's process when its lease is lost, or whatever else: a zombie that wakes up notices by itself, and
    nobody else may be there to end it."""

    async def end() -> None:
        await lost
        log.error("ends_by_itself", name=name, reason=reason)
        await asyncio.sleep(LINGER_S)
        os._exit(1)

    return asyncio.create_task(end())


async def until_orphaned() -> None:
    """Until the process that started this one has ended: Ray's node manager, without which the node counts as lost. A
    worker of Ray outlives it (seen with Ray 2.60), and nobody can reach it any more."""
    parent = os.getppid()
    while True:
        await asyncio.sleep(ORPHAN_LOOK_S)
        if os.getppid() != parent:
            return


class Watches:
    """Who waits for an actor's end: the newest one. A supervisor that died must not keep a place among the calls."""

    def __init__(self) -> None:
        self._orders = ""
        self._replaced = asyncio.Event()

    async def wait(self, orders: str) -> None:
        """Until somebody else waits. Belongs on one event loop."""
        if orders != self._orders:
            self._replaced.set()
            self._replaced, self._orders = asyncio.Event(), orders
        await self._replaced.wait()


class ActorCalls:
    """What all actors have in common that a supervisor starts."""

    def __init__(self, name: str, actor: Any, ended: asyncio.Event, orders: str) -> None:
        """`ended` is set when Ray says that the actor's process is no more. `orders` names this process."""
        self.name = name
        self._orders = orders
        self.ending = False
        """It is meant to end."""
        self._actor = actor
        self._ended = ended

    async def greet(self) -> Greeting:
        """Who it is; it takes its orders from this process from then on."""
        told = await call(self._actor.greet.remote(self._orders), CALL_S)
        try:
            return _greeting.decode(told)
        except msgspec.DecodeError as error:
            raise ReplicatorForeign(f"{self.name}: {error}") from error

    async def kill(self) -> None:
        """End its process."""
        self.ending = True
        await kill(self._actor)
        try:
            async with asyncio.timeout(END_S):
                await self._ended.wait()
        except TimeoutError:
            raise ReplicatorUnsure(f"Ray has not confirmed the end of {self.name} within {END_S:g} s") from None


class ReplicatorCalls(ActorCalls):
    """A `ReplicatorHandle` of an actor (`actors.replicator.ReplicatorActor`)."""

    _process: psutil.Process | None = None
    """Its process, if it runs on this machine and has reported."""

    async def prepare(self, lanes: Sequence[LaneAssignment]) -> None:
        """Tell it of lanes to come."""
        await call(self._actor.prepare.remote(_assignments.encode(lanes), self._orders), CALL_S)

    async def assign(self, lanes: Sequence[LaneAssignment]) -> None:
        """Give it lanes."""
        await call(self._actor.assign.remote(_assignments.encode(lanes), self._orders), CALL_S)

    async def release(self, lanes: Sequence[LaneId], deadline_s: float) -> dict[LaneId, Parting]:
        """Let it drain lanes."""
        answer = self._actor.release.remote(list(lanes), deadline_s, self._orders)
        told: dict[LaneId, bytes | bool] = await call(answer, deadline_s + ANSWER_S)
        return {lane: _parting(each) for lane, each in told.items()}

    async def hurry(self, lanes: Sequence[LaneId]) -> None:
        """Let it fetch these first."""
        method = getattr(self._actor, "hurry", None)
        if method is not None:
            await call(method.remote(list(lanes), self._orders), CALL_S)

    async def report(self) -> ReplicatorReport:
        """How it is now."""
        told = await call(self._actor.report.remote(), CALL_S)
        try:
            report = _report.decode(told)
        except msgspec.DecodeError as error:
            raise ReplicatorForeign(f"{self.name}: {error}") from error
        if self._process is None and report.host == socket.gethostname():
            with suppress(psutil.Error):
                self._process = psutil.Process(report.pid)
        return report

    async def close(self, deadline_s: float) -> None:
        """Let it drain what it has and end."""
        await call(self._actor.close.remote(deadline_s, self._orders), deadline_s + ANSWER_S)
        # It has closed its connections, so it need not be seen to end.
        await super().kill()

    async def kill(self) -> None:
        """End its process. Returns when the process was seen to end.

        Ray's GCS calls an actor dead when it is told to kill it, whether or not the actor's node can be reached. So its
        word is proof only if it came before.
        """
        if self._ended.is_set():
            return
        await super().kill()
        deadline = asyncio.get_running_loop().time() + END_S
        while self._process is None or _runs(self._process):
            if self._process is None or asyncio.get_running_loop().time() > deadline:
                raise ReplicatorUnsure(f"{self.name} was killed, and nothing shows that its process has ended")
            await asyncio.sleep(END_LOOK_S)


class GroupCalls(ActorCalls):
    """A `GroupsHandle` of an actor (`actors.groups.GroupsActor`)."""

    async def news(self) -> GroupsNews:
        """What there is to say since it was last asked."""
        return _news.decode(await call(self._actor.news.remote(), CALL_S))

    async def report(self, *, reverse: bool = False) -> GroupsReport:
        """All groups as they are now."""
        return _groups.decode(await call(self._actor.report.remote(reverse), REPORT_S))


def _parting(told: bytes | bool) -> Parting:
    """A replicator of an older version says only whether it left the lane cleanly."""
    try:
        return Parting(clean=bool(told), word=_word.decode(told) if isinstance(told, bytes) and told else None)
    except msgspec.DecodeError:
        return Parting(clean=True)  # of another version: its mark stands in the state topic, too


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _node_line(error: ActorDiedError) -> str:
    """What became of the node, by the last words of a long message."""
    return str(error).rpartition(NODE_DIED)[2].strip().replace("\n", " ").replace("\t", "") or NODE_DIED


def _line(error: BaseException) -> str:
    """The first line of an error; Ray's go on for a page."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
