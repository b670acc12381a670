"""Who can reach a Ray cluster that mirrord starts: only processes of this machine that have its token.

Each start creates a new token in a file that only this user can read. Ray's processes receive the path of the file in
their environment, never the token itself. Ray's own default is one permanent token per user in `~/.ray/auth_token`.
Ray's servers listen on the loopback address of the node, instead of on all interfaces.
"""

import os
import secrets
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ray import _raylet
from ray._private import ray_constants

from mirrord.model.errors import ConfigError, EnvironmentFault

MODE = "RAY_AUTH_MODE"
TOKEN = "RAY_AUTH_TOKEN"  # noqa: S105 - the name of a variable
TOKEN_PATH = "RAY_AUTH_TOKEN_PATH"  # noqa: S105 - the name of a variable
SEVERAL_NODES = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Whether nodes of other machines can join the cluster. Despite its name, Ray reads it on every system: without such
nodes, the address of this node is 127.0.0.1 (ray._private.services.get_node_ip_address), and all servers listen there.
Ray reads it when it is imported, so this process also has to set `LOADED`."""
LOADED = "ENABLE_RAY_CLUSTER"
"""Attribute of `ray._private.ray_constants` that has the value of `SEVERAL_NODES`. A test checks that it exists."""
TOKEN_BYTES = 32

_ray: Any = _raylet


@contextmanager
def private_cluster(folder: Path) -> Generator[Path]:
    """Let Ray start a private cluster while the context is open. Yields the file with the cluster's token, in `folder`,
    which only this user can read. Afterwards, the environment is as it was before.

    Raises ConfigError if the environment says that clients need no token.
    """
    mode = os.environ.get(MODE, "token")
    if mode.lower() != "token":
        raise ConfigError(
            f'{MODE}: found "{mode}"; allowed: token, because mirrord starts no Ray cluster without a token'
        )
    file = folder / "auth_token"
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(secrets.token_hex(TOKEN_BYTES))
    several = getattr(ray_constants, LOADED)
    before = {name: os.environ.get(name) for name in (TOKEN, TOKEN_PATH, SEVERAL_NODES)}
    try:
        # RAY_AUTH_TOKEN would be preferred to the file, and would be visible in the environment of every process.
        _set({TOKEN: None, TOKEN_PATH: str(file), SEVERAL_NODES: "0"})
        setattr(ray_constants, LOADED, False)
        _ray.AuthenticationTokenLoader.instance().reset_cache()
        yield file
    finally:
        _set(before)
        setattr(ray_constants, LOADED, several)
        _ray.AuthenticationTokenLoader.instance().reset_cache()


def check_token_mode() -> None:
    """Raise EnvironmentFault if this process uses Ray without a token, whatever the reason."""
    if not has_token_mode():
        raise EnvironmentFault("Ray has started without token authentication; mirrord needs Ray 2.60 or newer")


def has_token_mode() -> bool:
    """Return whether this process sends a token to Ray, and requires one from Ray's clients."""
    return bool(_ray.get_authentication_mode() == _ray.AuthenticationMode.TOKEN)


def _set(variables: Mapping[str, str | None]) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
