"""The configuration that a daemon was given last, kept by Ray for the next process of its supervisor.

A process that Ray starts again gets what the first one was made with. Ray's own store outlives both, and it is told
before the configuration is taken up. It holds references to secrets, as every configuration does, never secrets.
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
"""Semi-private: Ray's own libraries use it, and a test looks whether it is there."""


def kept_config(daemon: str) -> Config | None:
    """What was kept last; None when nothing was. Waits for Ray, for milliseconds."""
    try:
        told = cast(bytes | None, _store._internal_kv_get(_key(daemon)))
        return None if told is None else msgspec.msgpack.decode(told, type=Config)
    except (RayError, RuntimeError, msgspec.DecodeError) as error:
        log.warning("kept_configuration_unreadable", error=str(error))
        return None


async def keep_config(daemon: str, config: Config) -> None:
    """Keep another one from now on."""
    try:
        await asyncio.to_thread(_store._internal_kv_put, _key(daemon), msgspec.msgpack.encode(config))
    except (RayError, RuntimeError) as error:
        log.warning("configuration_not_kept", error=str(error))


async def forget_config(daemon: str) -> None:
    """The daemon has ended."""
    try:
        await asyncio.to_thread(_store._internal_kv_del, _key(daemon))
    except (RayError, RuntimeError) as error:
        log.debug("configuration_not_forgotten", error=str(error))


def _key(daemon: str) -> bytes:
    return f"mirrord/{daemon}/config".encode()
