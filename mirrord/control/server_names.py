"""The names under which a daemon's HTTP server is reached. A request that names another server in its header Host is
refused. Otherwise, a web page could give its own host name the address 127.0.0.1, and read what the daemon serves."""

import ipaddress
import re
from collections.abc import Iterable

import msgspec

from mirrord.config.value_parsers import HostPort

LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
_AUTHORITY = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<name>[A-Za-z0-9._-]{1,253}))(?::(?P<port>\d{1,5}))?")


class ServerNames(msgspec.Struct, frozen=True):
    """The names and the ports of one server."""

    hosts: frozenset[str]
    ports: frozenset[int]
    """Ports, other than the one on which a request arrives, that clients may name together with a configured host: for
    example, a proxy's port."""
    configured: frozenset[str] = frozenset()
    """The hosts that the configuration names."""
    own: frozenset[HostPort] = frozenset()
    """The server's own addresses."""

    @staticmethod
    def of(addresses: Iterable[HostPort], configured: Iterable[str]) -> "ServerNames":
        """Return the names of a server with these addresses. `configured` are the hosts that the configuration names,
        with or without ports."""
        known = [_split(host) for host in configured]
        names = {*LOCAL_NAMES, *(address.host for address in addresses), *(name for name, _ in known)}
        ports = {*(address.port for address in addresses), *(port for _, port in known if port is not None)}
        hosts = frozenset(name.lower().rstrip(".") for name in names)
        own = frozenset(HostPort(address.host.lower().rstrip("."), address.port) for address in addresses)
        return ServerNames(hosts, frozenset(ports), frozenset(name for name, _ in known), own)

    def accept(self, authority: str, arrived_at: HostPort) -> bool:
        """Return whether a request that names this server in its header Host may be answered. `arrived_at` is the
        address at which the request arrived."""
        host, _ = _split(authority)
        return host in self.hosts or _is_same_address(host, arrived_at.host)

    def mean(self, authority: str, arrived_at: HostPort, default_port: int) -> bool:
        """Return whether the header Host can only mean this server, and not another server. A proof for the other
        server must not be usable here.

        On each machine, `localhost` means a server of this machine. A proof for `localhost` that arrives from another
        machine was made for a server there, which may have passed it on. The same applies to a port that only another
        host is configured with: on this machine, another user may listen on it.
        """
        host, port = _split(authority)
        port = port or default_port
        if is_own_machine(host) and host not in self.configured and not is_own_machine(arrived_at.host):
            return False
        if port != arrived_at.port and HostPort(host, port) not in self.own:
            return host in self.configured and port in self.ports and self.accept(authority, arrived_at)
        return self.accept(authority, arrived_at)


def _split(authority: str) -> tuple[str, int | None]:
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        return "", None
    host = found["v6"] or found["name"].lower().rstrip(".")
    return host.lower(), int(found["port"]) if found["port"] else None


def is_own_machine(host: str) -> bool:
    """Return whether this host means, on each machine, the machine itself."""
    try:
        address = _unmapped(host)
    except ValueError:
        return host == "localhost"
    return address.is_loopback or address.is_unspecified


def _is_same_address(host: str, other: str) -> bool:
    """Return whether two hosts are the same IP address. A host name is never one, because its owner chooses the
    address."""
    try:
        return _unmapped(host) == _unmapped(other)
    except ValueError:
        return False


def _unmapped(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    address = ipaddress.ip_address(host.partition("%")[0])
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address
