"""The wall around Ray: whatever Ray answers or raises becomes an answer, `ReplicatorDead` or `ReplicatorUnsure`."""

import asyncio
import importlib
from typing import Any

import pytest
from ray._private import worker
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayTaskError

from actors.handles import NODE_DIED, call
from actors.local import PRINTS
from actors.options import REPLICATOR, SUPERVISOR, supervisor_name
from mirrord.model.errors import EnvironmentFault
from mirrord.supervision.fleet.engine import NodeLost, ReplicatorDead, ReplicatorUnreachable, ReplicatorUnsure

# Made by protoc, without types.
ActorDiedErrorContext: Any = importlib.import_module("ray.core.generated.common_pb2").ActorDiedErrorContext


async def answer(value: object) -> Any:
    if isinstance(value, BaseException):
        raise value
    return value


async def test_an_answer_comes_through() -> None:
    assert await call(answer(7), 1.0) == 7


async def test_an_actor_that_died_is_dead() -> None:
    with pytest.raises(ReplicatorDead):
        await call(answer(ActorDiedError()), 1.0)


async def test_an_actor_whose_node_is_lost_may_live() -> None:
    # As Ray 2.60 says it; tests/ray/test_nodes_on_ray.py lets it say so.
    words = f"{NODE_DIED} Node Id: 1400d1\n\tthe actor's node was terminated unexpectedly: missed too many heartbeats"
    context = ActorDiedErrorContext(actor_id=bytes(16), error_message=words)
    with pytest.raises(NodeLost, match=r"^Node Id: 1400d1 the actor's node was terminated"):
        await call(answer(ActorDiedError(context)), 1.0)
    words = "The actor is dead because it was killed by `ray.kill`."
    killed = ActorDiedErrorContext(actor_id=bytes(16), error_message=words)
    with pytest.raises(ReplicatorDead):
        await call(answer(ActorDiedError(killed)), 1.0)


async def test_an_actor_that_cannot_be_reached_may_live() -> None:
    with pytest.raises(ReplicatorUnreachable, match="unavailable"):
        await call(answer(ActorUnavailableError("the network is away", None)), 1.0)


async def test_no_answer_in_time_says_nothing() -> None:
    with pytest.raises(ReplicatorUnsure, match="no answer within"):
        await call(asyncio.Event().wait(), 0.01)


async def test_what_an_actor_raised_is_told_in_one_line() -> None:
    cause = EnvironmentFault("the ledger is away\nfor a page")
    with pytest.raises(ReplicatorUnsure) as raised:
        await call(answer(RayTaskError("open", "a long traceback", cause)), 1.0)
    assert str(raised.value) == "the ledger is away"


async def test_a_cancelled_caller_stays_cancelled() -> None:
    done: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    caller = asyncio.create_task(call(done, 10.0))
    await asyncio.sleep(0)
    done.set_result(1)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller


def test_ray_still_has_the_switch_that_keeps_it_from_printing() -> None:
    assert vars(worker)[PRINTS] in {True, False}


def test_actors_fit_on_a_machine_with_two_cores() -> None:
    assert SUPERVISOR["num_cpus"] + 150 * REPLICATOR["num_cpus"] < 2
    assert (SUPERVISOR["max_restarts"], REPLICATOR["max_restarts"]) == (-1, 0)
    assert supervisor_name("mirrord") == "mirrord/supervisor"
