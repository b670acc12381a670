"""The foreground process of a daemon on Ray watches its supervisor, which is a fake here."""

# pyright: reportPrivateUsage=false

import asyncio
from pathlib import Path

import pytest

from actors import ray_connection, supervisor_watch
from actors.supervisor_watch import RayDaemon
from mirrord.config.own_file import OwnFile
from mirrord.config.schema import RayConfig
from mirrord.model.errors import EnvironmentFault
from mirrord.supervision.fleet.engine import ReplicatorUnsure
from tests.fixtures.fake_pipe import as_any
from tests.fixtures.supervision import eventually


class Method:
    """A method of an actor whose event loop may hang: the health group answers all the same."""

    def __init__(self) -> None:
        self.answer: object = 0.0

    def remote(self) -> object:
        return self.answer


class Supervisor:
    def __init__(self) -> None:
        self.loop_age_s = Method()
        self.stopped = Method()
        self.replaced_by = Method()
        self.stopped.answer, self.replaced_by.answer = False, b""


@pytest.mark.parametrize("how", ["hangs", "is stopped"])
async def test_a_supervisor_that_hangs_is_started_again_once(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    killed: list[bool] = []
    actor = Supervisor()

    async def kill(one: Supervisor, *, restart: bool = False) -> None:
        assert one is actor
        killed.append(restart)

    async def call(answer: object, _: float) -> object:
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(supervisor_watch, "kill", kill)
    monkeypatch.setattr(supervisor_watch, "call", call)
    monkeypatch.setattr(supervisor_watch, "LOOK_S", 0.02)
    monkeypatch.setattr(supervisor_watch, "SILENT_S", 0.2)
    monkeypatch.setattr(supervisor_watch, "POLL_S", 0.01)
    config = as_any(type("Config", (), {"ray": RayConfig()})())
    watching = RayDaemon(config, "", OwnFile("/conf.toml"))
    watching._actor = actor
    waiting = asyncio.create_task(watching.wait())
    await asyncio.sleep(0.3)
    assert killed == [], "it comes round"
    actor.loop_age_s.answer = 60.0 if how == "hangs" else ReplicatorUnsure("no answer")
    await eventually(lambda: killed)
    # Ray restarts it; the new process has time to begin.
    actor.loop_age_s.answer = 0.0
    await asyncio.sleep(0.3)
    assert killed == [True]
    actor.stopped.answer = True
    await waiting
    # This kill is final.
    assert killed == [True, False]


async def test_a_daemon_ends_when_ray_has_lost_a_process_that_it_cannot_replace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def call(answer: object, _: float) -> object:
        raise ReplicatorUnsure("no answer")

    async def kill(_: Supervisor, *, restart: bool = False) -> None:
        pass

    monkeypatch.setattr(supervisor_watch, "call", call)
    monkeypatch.setattr(supervisor_watch, "kill", kill)
    monkeypatch.setattr(supervisor_watch, "LOOK_S", 0.02)
    monkeypatch.setattr(supervisor_watch, "POLL_S", 0.01)
    watching = RayDaemon(as_any(type("Config", (), {"ray": RayConfig()})()), "", OwnFile("/conf.toml"))
    watching._actor = Supervisor()
    monkeypatch.setattr(watching._ray, "ended_process", lambda: "raylet")
    with pytest.raises(EnvironmentFault, match="raylet of Ray has ended"):
        await asyncio.wait_for(watching.wait(), 10)


def test_the_processes_of_ray_that_have_ended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ray = ray_connection.RayConnection(RayConfig())
    dead: list[tuple[str, object]] = [("log_monitor", None)]
    assert hasattr(ray_connection.worker, ray_connection.NODE)
    node = type("Node", (), {"dead_processes": lambda _: dead})()
    monkeypatch.setattr(ray_connection.worker, ray_connection.NODE, node)
    monkeypatch.setattr(ray, "_folder", tmp_path)
    assert ray.ended_process() == ""
    dead.append(("raylet", None))
    assert ray.ended_process() == "raylet"
    monkeypatch.setattr(ray, "_folder", None)
    assert ray.ended_process() == "", "another program has started Ray"
