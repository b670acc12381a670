"""Stores a daemon's latest configuration in Ray's internal key-value store.

When Ray restarts a supervisor process, the new process receives the arguments with which the first process was created.
The configuration in these arguments may be outdated. Therefore, the new process reads the current configuration from
this store, which outlives both processes. Before the daemon applies a changed file, it writes that
configuration to the store. No request over HTTP contains a configuration, so only the daemon's own file reaches the
store. The stored configuration holds references to secrets, never the secrets themselves.
"""

import asyncio
from typing import Any, cast

import msgspec
import structlog
from ray.exceptions import RayError
from ray.experimental import internal_kv

from mirrord.config.schema import Config

log = structlog.get_logger()

_store: Any = internal_kv
"""The Ray module that provides access to Ray's internal key-value store. The module is not part of Ray's public API,
but Ray's own libraries use it. A test checks that the module exists."""


def kept_config(daemon: str) -> Config | None:
    """Return the configuration that was last stored for this daemon, or None if there is none. The call blocks for a
    few milliseconds until Ray answers."""
    try:
        stored = cast(bytes | None, _store._internal_kv_get(_key(daemon)))
        return None if stored is None else msgspec.msgpack.decode(stored, type=Config)
    except (RayError, RuntimeError, msgspec.DecodeError) as error:
        log.warning("kept_configuration_unreadable", error=str(error))
        return None


async def keep_config(daemon: str, config: Config) -> None:
    """Store this configuration for the daemon, replacing the previous one."""
    try:
        await asyncio.to_thread(_store._internal_kv_put, _key(daemon), msgspec.msgpack.encode(config))
    except (RayError, RuntimeError) as error:
        log.warning("configuration_not_kept", error=str(error))


async def forget_config(daemon: str) -> None:
    """Delete the stored configuration of a daemon that has stopped."""
    try:
        await asyncio.to_thread(_store._internal_kv_del, _key(daemon))
    except (RayError, RuntimeError) as error:
        log.debug("configuration_not_forgotten", error=str(error))


def _key(daemon: str) -> bytes:
    return f"mirrord/{daemon}/config".encode()
