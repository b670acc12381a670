"""Actors on Ray without Ray: what becomes of them when something around them fails."""

# pyright: reportPrivateUsage=false

import asyncio
from types import SimpleNamespace

import msgspec
import pytest
from ray.exceptions import RayError

from actors import handles, replicator, supervisor
from actors.replicator import ReplicatorActor
from actors.supervisor import SupervisorActor
from mirrord.ledger.facts.core import Progress
from mirrord.model.names import LaneId
from mirrord.replication.lane.assignment import Parting
from mirrord.supervision.fleet.engine import ReplicatorUnsure
from tests.fixtures.fake_pipe import as_any


class Ended(Exception):
    """The process has ended."""


async def test_a_supervisor_that_cannot_end_what_was_left_says_so_and_tries_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Engine:
        tries = 0

        async def end_others(self, flows: list[str]) -> None:
            assert flows == ["eu-us"]
            self.tries += 1
            if self.tries == 1:
                raise ReplicatorUnsure("Ray has not confirmed the end of x")
            assert actor._fault == "Ray has not confirmed the end of x"

    class Daemon:
        async def start(self) -> str:
            return "http://127.0.0.1:1"

    monkeypatch.setattr(supervisor, "PAUSE_S", 0.0)
    actor = SupervisorActor.__new__(SupervisorActor)
    actor._engine, actor._supervisor = as_any(Engine()), as_any(Daemon())
    actor._config = as_any(type("Config", (), {"flows": [type("Flow", (), {"name": "eu-us"})]}))
    actor._address, actor._fault = "", ""
    await actor._start()
    assert await actor.address() == "http://127.0.0.1:1"


async def test_a_supervisor_that_fails_ends_its_process(monkeypatch: pytest.MonkeyPatch) -> None:
    class Daemon:
        async def wait(self) -> None:
            raise KeyError("x")

    def end(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(supervisor.os, "_exit", end)
    actor = SupervisorActor.__new__(SupervisorActor)
    actor._supervisor, actor._daemon, actor._address = as_any(Daemon()), "d", "http://127.0.0.1:1"
    with pytest.raises(Ended, match="1"):
        await actor._run()


async def test_a_process_whose_watch_fails_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """It could no longer notice that its lease is lost."""

    def end(code: int) -> None:
        raise Ended(code)

    async def lost() -> None:
        raise KeyError("x")

    monkeypatch.setattr(handles.os, "_exit", end)
    with pytest.raises(Ended, match="1"):
        await handles.end_when(lost(), "r1")


async def test_a_replicator_without_its_node_ends_though_it_cannot_close(monkeypatch: pytest.MonkeyPatch) -> None:
    class Replicator:
        has_lanes = False

        async def close(self, deadline_s: float) -> None:
            raise OSError(f"not within {deadline_s:g} s")

    def leave(code: int) -> None:
        raise Ended(code)

    monkeypatch.setattr(replicator, "until_orphaned", lambda: asyncio.sleep(0))
    monkeypatch.setattr(replicator.os, "_exit", leave)
    actor = ReplicatorActor.__new__(ReplicatorActor)
    actor._name, actor._replicator = "mirrord/eu-us/replicator-0.g1.1/1", as_any(Replicator())
    with pytest.raises(Ended):
        await actor._end_orphaned()


async def test_names_that_ray_does_not_report_are_not_taken_as_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> list[str]:
        raise RayError("the head is away\nand more")

    monkeypatch.setattr(handles, "list_named_actors", fail)
    with pytest.raises(ReplicatorUnsure, match=r"Ray does not list its actors: the head is away$"):
        await handles.names()


def test_how_a_lane_was_left_is_known_of_every_version() -> None:
    word = Progress(LaneId("S.0.T"), 1, 1, 5, 10, 7, 20, 30, -1, 0, protected=True, state="drained")
    assert handles._parting(msgspec.msgpack.encode(word)) == Parting(clean=True, word=word)
    assert handles._parting(b"") == Parting(clean=False)
    assert handles._parting(True) == Parting(clean=True)
    assert handles._parting(b"\xc1 nothing that is known here") == Parting(clean=True)


async def test_a_replicator_of_an_older_version_receives_no_urgent_lanes() -> None:
    calls: list[tuple[object, ...]] = []

    async def taken(*given: object) -> None:
        calls.append(given)

    new, old = SimpleNamespace(hurry=SimpleNamespace(remote=taken)), SimpleNamespace()
    for actor in (new, old):
        await handles.ReplicatorCalls("replicator", actor, asyncio.Event(), "orders").hurry([LaneId("S.0.T")])
    assert calls == [(["S.0.T"], "orders")]
