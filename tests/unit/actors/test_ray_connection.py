"""How mirrord starts a Ray cluster, without Ray: the environment of Ray's processes, and the token."""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from ray._private import ray_constants

from actors import ray_access, ray_connection
from actors.ray_connection import RayConnection
from mirrord.config.schema import RayConfig
from mirrord.model.errors import ConfigError, EnvironmentFault


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Start nothing, and return the environment in which Ray would have been started."""
    given: dict[str, str] = {}
    ray = SimpleNamespace(init=lambda **_: SimpleNamespace(dashboard_url=""), shutdown=lambda: None)
    monkeypatch.setattr(ray_connection, "_ray", ray)
    monkeypatch.setattr(ray_connection.subprocess, "Popen", lambda *_, **__: SimpleNamespace(stdin=None))
    monkeypatch.setattr(os, "environ", given)
    monkeypatch.setattr(ray_connection, "check_token_mode", lambda: None)
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


def test_each_start_has_its_own_token_in_a_private_file(environment: dict[str, str]) -> None:
    environment |= {"RAY_AUTH_TOKEN": "of the operator", "RAY_AUTH_TOKEN_PATH": "/elsewhere"}
    tokens: list[str] = []
    for _ in range(2):
        started = RayConnection(RayConfig())
        started.connect()
        file = Path(environment["RAY_AUTH_TOKEN_PATH"])
        assert started.token_file == str(file)
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)
        # The environment of a process can be read by programs that show processes, the file cannot.
        assert "RAY_AUTH_TOKEN" not in environment
        assert environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] == "0"
        tokens.append(file.read_text())
        started.close()
        assert not file.exists()
    assert len(set(tokens)) == 2
    assert min(map(len, tokens)) == 64
    assert environment["RAY_AUTH_TOKEN"] == "of the operator"
    assert environment["RAY_AUTH_TOKEN_PATH"] == "/elsewhere"
    assert "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER" not in environment


@pytest.mark.parametrize("mode", ["disabled", "k8s"])
def test_no_cluster_is_started_without_a_token(environment: dict[str, str], mode: str) -> None:
    environment["RAY_AUTH_MODE"] = mode
    with pytest.raises(ConfigError, match=f'RAY_AUTH_MODE: found "{mode}"; allowed: token'):
        RayConnection(RayConfig()).connect()


def test_a_cluster_that_has_started_without_a_token_is_stopped(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_connection, "check_token_mode", ray_access.check_token_mode)
    monkeypatch.setattr(ray_access, "has_token_mode", lambda: False)
    with pytest.raises(EnvironmentFault, match="without token authentication"):
        RayConnection(RayConfig()).connect()
    assert "RAY_AUTH_TOKEN_PATH" not in environment


def test_ray_has_the_attribute_that_keeps_its_servers_on_the_loopback_address() -> None:
    assert getattr(ray_constants, ray_access.LOADED) in {True, False}
