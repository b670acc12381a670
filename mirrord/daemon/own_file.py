"""Reads a daemon's own configuration file again, for `mirrord apply` and for SIGHUP."""

import asyncio
import socket
from collections.abc import Awaitable, Callable

import structlog

from mirrord.config.own_file import FileDigest, OwnFile
from mirrord.config.schema import Config
from mirrord.model.errors import ConfigError
from policies.policy_trial import LOADING

log = structlog.get_logger()


class OwnFileReader:
    """Reads the file that this daemon was started with. It is the only source of new configurations."""

    def __init__(self, file: OwnFile, check: Callable[[Config], Awaitable[None]]) -> None:
        """`check` raises ConfigError or EnvironmentFault if no daemon could start with a configuration."""
        self._file = file
        self._check = check

    async def read(self, given: FileDigest | None) -> Config:
        """Return the configuration in the file. `given` is the digest of the file that an operator wants to apply; None
        if the operator has named no file.

        Raises ConfigError if the operator's file differs from this one, or if this file has faults. Raises
        EnvironmentFault if no daemon could start with this file at the moment.
        """
        # Third-party policies may take long to load.
        contents = await asyncio.to_thread(self._file.read, LOADING)
        if given is not None and given.sha256 != contents.sha256:
            raise ConfigError(
                f"this file differs from {self._file.path} on {socket.gethostname()}, the file that the daemon was "
                "started with; a daemon applies only that file"
            )
        await self._check(contents.config)
        for remark in contents.remarks:
            log.warning("configuration_remark", remark=remark)
        return contents.config
