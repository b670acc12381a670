"""How mirrord starts a Ray cluster, without Ray: the environment of Ray's processes."""

import os
from types import SimpleNamespace

import pytest

from actors import ray_connection
from actors.ray_connection import RayConnection
from mirrord.config.schema import RayConfig


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Start nothing, and return the environment in which Ray would have been started."""
    given: dict[str, str] = {}
    ray = SimpleNamespace(init=lambda **_: SimpleNamespace(dashboard_url=""), shutdown=lambda: None)
    monkeypatch.setattr(ray_connection, "_ray", ray)
    monkeypatch.setattr(ray_connection.subprocess, "Popen", lambda *_, **__: SimpleNamespace(stdin=None))
    monkeypatch.setattr(os, "environ", given)
    return given


def test_ray_collects_no_metrics_and_has_few_heaps(environment: dict[str, str]) -> None:
    started = RayConnection(RayConfig())
    started.connect()
    started.close()
    assert environment["RAY_enable_metrics_collection"] == "0"
    assert environment["MALLOC_ARENA_MAX"] == "2"


def test_what_the_operator_has_set_for_ray_stays(environment: dict[str, str]) -> None:
    environment |= {"RAY_enable_metrics_collection": "1", "MALLOC_ARENA_MAX": "8"}
    started = RayConnection(RayConfig())
    started.connect()
    started.close()
    assert environment["RAY_enable_metrics_collection"] == "1"
    assert environment["MALLOC_ARENA_MAX"] == "8"
