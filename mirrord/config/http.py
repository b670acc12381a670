"""Declares the keys of `[http]`: where a daemon's HTTP server listens, and who may use it."""

from typing import Annotated

import msgspec

from mirrord.config.key_declarations import Key
from mirrord.config.security import SECRET, Secret
from mirrord.config.value_kinds import ADDRESS
from mirrord.config.value_parsers import HostPort

DEFAULT_PORT = 8182
"""The default port of the daemon's HTTP API. If it is taken, the daemon uses the next free port."""


class HttpConfig(msgspec.Struct, frozen=True):
    """The daemon's HTTP server."""

    listen: Annotated[
        HostPort | None,
        Key(ADDRESS, "Address that the server listens on.", unset=f"`127.0.0.1:{DEFAULT_PORT}`, or the next free port"),
    ] = None
    advertised: Annotated[
        HostPort | None,
        Key(
            ADDRESS,
            "Address at which other machines reach the server.",
            unset="`listen`, or the name of this machine if the server listens on all addresses",
        ),
    ] = None
    token: Annotated[
        Secret | None,
        Key(
            SECRET,
            "A client that presents this token may give commands from any machine.",
            unset="only clients on this machine may give commands",
        ),
    ] = None
