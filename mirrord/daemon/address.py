"""The address under which clients reach the HTTP API of a daemon."""

import ipaddress
import socket

from mirrord.config.schema import DEFAULT_PORT, HttpConfig
from mirrord.config.value_parsers import HostPort


def configured(http: HttpConfig) -> str:
    """Return the address at which a daemon with this configuration is expected. The daemon listens on another port if
    the configured port is taken."""
    return f"http://{advertised(http.listen or HostPort('127.0.0.1', DEFAULT_PORT), http.advertised)}"


def advertised(listens: HostPort, given: HostPort | None) -> HostPort:
    """Return the address at which clients reach a daemon that listens on `listens`. If the address `given` is set,
    return it unchanged.

    A wildcard address is replaced by the host name, because clients cannot connect to a wildcard address.
    """
    if given is not None:
        return given
    try:
        is_every = ipaddress.ip_address(listens.host).is_unspecified
    except ValueError:
        is_every = False
    return HostPort(socket.gethostname(), listens.port) if is_every else listens
