"""The address at which clients reach a daemon's HTTP API."""

import ipaddress
import socket

from mirrord.config.http import DEFAULT_PORT, HttpConfig
from mirrord.config.value_parsers import HostPort


def configured(http: HttpConfig) -> str:
    """Return the URL at which clients expect a daemon with this configuration. If `http.listen` is not set and the
    default port is taken, the daemon uses a different port, so this URL may be wrong."""
    return url(http, advertised(http.listen or HostPort("127.0.0.1", DEFAULT_PORT), http.advertised))


def url(http: HttpConfig, address: HostPort) -> str:
    """Return the URL of a server with this configuration at this address."""
    return f"{'http' if http.tls.certificate is None else 'https'}://{address}"


def advertised(listens: HostPort, given: HostPort | None) -> HostPort:
    """Return the address at which clients reach a daemon. If `given`, the value of `http.advertised`, is set, return it
    unchanged. Otherwise, return `listens`, the address on which the daemon listens.

    If `listens` is a wildcard address, it is replaced by the host name, because clients cannot connect to a wildcard
    address.
    """
    if given is not None:
        return given
    try:
        is_every = ipaddress.ip_address(listens.host).is_unspecified
    except ValueError:
        is_every = False
    return HostPort(socket.gethostname(), listens.port) if is_every else listens
