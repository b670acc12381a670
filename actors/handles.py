"""The boundary to Ray. Every call has a timeout. It either returns the actor's answer, or raises `ReplicatorDead` or
`ReplicatorUnsure`.

Actors have the type `Any` here and in `engine.py`, because Ray creates their methods at run time. This module converts
the actors' answers to typed values. Ray functions that wait for Ray's GCS run outside the event loop, in a thread.
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
"""If a call takes a deadline as an argument, the answer may arrive up to this many seconds after the deadline."""
REPORT_S = 15.0
"""Timeout, in seconds, for a report from a group follower. This timeout is longer than `CALL_S`, because the follower
queries the target cluster before it answers."""
LINGER_S = 1.0
"""Time, in seconds, between the moment at which an actor loses its lease and the end of its process. The lanes stop
writing immediately. Until the process exits, the actor's reports show the supervisor that the lease has been lost."""
ORPHAN_LOOK_S = 1.0
END_S = 5.0
"""How long, in seconds, Ray may take to confirm that a killed process has ended."""
END_LOOK_S = 0.05

NODE_DIED = "The actor died because its node has died."
"""The text with which Ray reports that an actor died with its node (GenNodeDiedCause in gcs_actor_manager.cc). For this
cause, Ray passes no error code to Python. A test checks that the text is unchanged."""

log = structlog.get_logger()

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])

_ray: Any = ray

_classes: dict[type, Any] = {}
"""Each kind of actor as a Ray class. Ray's GCS keeps the code of every class that it is given, so with a new class for
each actor, its memory would grow."""
_assignments = msgspec.msgpack.Encoder()
_word = msgspec.msgpack.Decoder(Progress)
_greeting = msgspec.msgpack.Decoder(Greeting)
_report = msgspec.msgpack.Decoder(ReplicatorReport)
_news = msgspec.msgpack.Decoder(GroupsNews)
_groups = msgspec.msgpack.Decoder(GroupsReport)


async def call(answer: Awaitable[T], timeout_s: float) -> T:
    """Wait for an actor's answer, and return it. Every failure is raised as ReplicatorDead or ReplicatorUnsure."""
    try:
        # Not `asyncio.wait_for`: in Python 3.11, it may swallow the caller's cancellation.
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
        # The actor raised an error; `cause` is the original exception.
        raise ReplicatorUnsure(_line(cast(BaseException, error.cause))) from error
    except RayError as error:
        raise ReplicatorUnsure(_line(error)) from error


def died_with_its_node(error: ActorDiedError) -> bool:
    """Return whether Ray reports the actor as dead only because it has lost contact with the actor's node. In that
    case, the actor's process may still be alive and may keep running indefinitely.
    """
    return NODE_DIED in str(error)


def in_health_group(method: Method) -> Method:
    """Decorate an actor method so that Ray runs it in the thread and event loop of the health concurrency group."""
    return _ray.method(concurrency_group=HEALTH)(method)


async def create(kind: type, options: Mapping[str, Any], name: str, *arguments: object, node: str = "") -> Any:
    """Create an actor with this name and return it. The actor may still be starting.

    `node` is the id of the preferred node, or empty if any node will do. All actors of one kind must have the same
    options. Raises EnvironmentFault if Ray refuses, for example because the name is taken.
    """
    where: dict[str, Any] = {"scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=True)} if node else {}
    made = _classes.get(kind)
    if made is None:
        made = _classes[kind] = _ray.remote(**options)(kind)

    def register() -> Any:
        return made.options(name=name, **where).remote(*arguments)

    try:
        return await asyncio.to_thread(register)
    except (RayError, ValueError) as error:
        raise EnvironmentFault(f"Ray does not start {name}: {_line(error)}") from error


async def find(name: str) -> Any | None:
    """Return the live actor with this name, or None if there is none."""
    try:
        return await asyncio.to_thread(_ray.get_actor, name)
    except (RayError, ValueError):
        return None


async def names() -> list[str]:
    """Return the names of all live actors in this namespace. Raises ReplicatorUnsure if Ray does not answer."""
    try:
        return await asyncio.to_thread(list_named_actors)
    except RayError as error:
        raise ReplicatorUnsure(f"Ray does not list its actors: {_line(error)}") from error


async def kill(actor: Any, *, restart: bool = False) -> None:
    """Kill an actor's process, as with `kill -9`. The process may still be alive when this function returns. The caller
    must check by other means that the process has ended.

    If `restart` is set, Ray starts the actor again, provided that the actor's option `max_restarts` allows it.
    """
    with suppress(RayError, ValueError):
        await asyncio.to_thread(_ray.kill, actor, no_restart=not restart)


def end_when(lost: Coroutine[Any, Any, None], name: str, reason: str = "the lease is lost") -> asyncio.Task[None]:
    """Start a task that ends the current process after `lost` has completed or failed, and return the task.

    An actor calls this function to end its own process when it has lost its lease, or when no other process can reach
    it. In both cases, there may be no other process that could end the actor. A process in which `lost` fails would
    never notice this, so it ends, too.
    """

    async def end() -> None:
        try:
            await lost
            log.error("ends_by_itself", name=name, reason=reason)
            await asyncio.sleep(LINGER_S)
        except Exception as error:
            log.error("ends_by_itself", name=name, reason="its watch has failed", exc_info=error)
        os._exit(1)

    return asyncio.create_task(end())


async def until_orphaned() -> None:
    """Wait until the parent of this process has exited. The parent is Ray's node manager.

    Ray considers a node lost if its node manager has exited. A worker process on this node can outlive the node manager
    (observed with Ray 2.60), but other processes can no longer reach the worker.
    """
    parent = os.getppid()
    while True:
        await asyncio.sleep(ORPHAN_LOOK_S)
        if os.getppid() != parent:
            return


class Watches:
    """Tracks which supervisor process is waiting for an actor to end. A supervisor process waits by calling the actor.
    The call fails when the actor ends, and returns when a newer supervisor process makes the same call. If it did not
    return then, the call of a supervisor process that has died would use up one of the concurrent calls that Ray
    permits, until the actor ends.
    """

    def __init__(self) -> None:
        self._orders = ""
        self._replaced = asyncio.Event()

    async def wait(self, orders: str) -> None:
        """Wait until a different supervisor process calls this method. `orders` identifies the calling process. All
        calls must be made in the same event loop."""
        if orders != self._orders:
            self._replaced.set()
            self._replaced, self._orders = asyncio.Event(), orders
        await self._replaced.wait()


class ActorCalls:
    """The calls that a supervisor can make to any actor, whether the actor is a replicator or a group follower."""

    def __init__(self, name: str, actor: Any, ended: asyncio.Event, orders: str) -> None:
        """`ended` is set when Ray reports that the actor's process has ended. `orders` identifies the calling
        supervisor process."""
        self.name = name
        self._orders = orders
        self.ending = False
        """Whether this process has asked the actor to end."""
        self._actor = actor
        self._ended = ended

    async def greet(self) -> Greeting:
        """Return the actor's identity. From this call on, the actor accepts commands only from the supervisor process
        that made the call."""
        answer = await call(self._actor.greet.remote(self._orders), CALL_S)
        try:
            return _greeting.decode(answer)
        except (ValueError, RecursionError) as error:
            raise ReplicatorForeign(f"{self.name}: {error}") from error

    async def kill(self) -> None:
        """End the actor's process. Raises ReplicatorUnsure if Ray does not confirm in time that the process has
        ended.
        """
        self.ending = True
        await kill(self._actor)
        try:
            async with asyncio.timeout(END_S):
                await self._ended.wait()
        except TimeoutError:
            raise ReplicatorUnsure(f"Ray has not confirmed the end of {self.name} within {END_S:g} s") from None


class ReplicatorCalls(ActorCalls):
    """Implements `ReplicatorHandle` with calls to an `actors.replicator.ReplicatorActor`."""

    _process: psutil.Process | None = None
    """The replicator's process, if the replicator runs on this machine and has sent a report."""

    async def prepare(self, lanes: Sequence[LaneAssignment]) -> None:
        """Announce to the replicator the lanes that will be assigned to it."""
        await call(self._actor.prepare.remote(_assignments.encode(lanes), self._orders), CALL_S)

    async def assign(self, lanes: Sequence[LaneAssignment]) -> None:
        """Assign lanes to the replicator."""
        await call(self._actor.assign.remote(_assignments.encode(lanes), self._orders), CALL_S)

    async def release(self, lanes: Sequence[LaneId], deadline_s: float) -> dict[LaneId, Parting]:
        """Ask the replicator to drain these lanes. For each lane, return whether the replicator has drained it cleanly,
        and the lane's last progress record."""
        answer = self._actor.release.remote(list(lanes), deadline_s, self._orders)
        partings: dict[LaneId, bytes | bool] = await call(answer, deadline_s + ANSWER_S)
        return {lane: _parting(each) for lane, each in partings.items()}

    async def hurry(self, lanes: Sequence[LaneId]) -> None:
        """Ask the replicator to fetch the records of these lanes before those of its other lanes."""
        method = getattr(self._actor, "hurry", None)
        if method is not None:
            await call(method.remote(list(lanes), self._orders), CALL_S)

    async def report(self) -> ReplicatorReport:
        """Return the current state of the replicator and of its lanes."""
        answer = await call(self._actor.report.remote(), CALL_S)
        try:
            report = _report.decode(answer)
        except (ValueError, RecursionError) as error:
            raise ReplicatorForeign(f"{self.name}: {error}") from error
        if self._process is None and report.host == socket.gethostname():
            with suppress(psutil.Error):
                self._process = psutil.Process(report.pid)
        return report

    async def close(self, deadline_s: float) -> None:
        """Ask the replicator to drain its lanes and then end."""
        await call(self._actor.close.remote(deadline_s, self._orders), deadline_s + ANSWER_S)
        # The replicator has closed its connections, so its end need not be confirmed.
        await super().kill()

    async def kill(self) -> None:
        """End the replicator's process. Return once the process is confirmed to have ended.

        As soon as Ray's GCS is asked to kill an actor, it reports the actor as dead, even if the actor's node cannot be
        reached. Therefore, only a report that arrived before the kill request proves that the process has ended. Raises
        ReplicatorUnsure if nothing proves that the process has ended.
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
    """Implements `GroupsHandle` with calls to an `actors.groups.GroupsActor`."""

    async def news(self) -> GroupsNews:
        """Return the translated positions that have changed since the last call."""
        return _news.decode(await call(self._actor.news.remote(), CALL_S))

    async def report(self, *, reverse: bool = False) -> GroupsReport:
        """Return the current positions of all groups. If `reverse` is set, these are the positions that are synced from
        the target to the source."""
        return _groups.decode(await call(self._actor.report.remote(reverse), REPORT_S))


def _parting(answer: bytes | bool) -> Parting:
    """Decode the answer from a replicator that was asked to release a lane. A replicator that runs an older version
    reports only whether it has drained the lane cleanly."""
    try:
        return Parting(clean=bool(answer), word=_word.decode(answer) if isinstance(answer, bytes) and answer else None)
    except (ValueError, RecursionError):
        return Parting(clean=True)  # sent by a different version; the state topic also holds the resume position


def _runs(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _node_line(error: ActorDiedError) -> str:
    """Return the part of Ray's message that says what happened to the node. That part follows `NODE_DIED` at the end of
    a long text."""
    return str(error).rpartition(NODE_DIED)[2].strip().replace("\n", " ").replace("\t", "") or NODE_DIED


def _line(error: BaseException) -> str:
    """Return the first line of an error's message, because Ray's messages can fill a page."""
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
