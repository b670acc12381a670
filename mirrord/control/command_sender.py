"""Sends requests to a daemon in another process. Commands carry a proof of a token, never the token itself, because the
address of a daemon is read from the ledger, and a client that can write to the ledger can put any address there."""

import asyncio
import ipaddress
import os
import re
import socket
from collections.abc import Iterator
from typing import NamedTuple

import aiohttp
import msgspec
import psutil

from mirrord.config.http import ROLES, HttpConfig, Role
from mirrord.config.value_parsers import host_port
from mirrord.control.address import configured
from mirrord.control.command_proof import RequestLine, prove
from mirrord.control.http_tls import client_context
from mirrord.control.local_token import LOCAL, control_directory, read_local_token
from mirrord.control.server_names import is_own_machine
from mirrord.control.token_ring import named_tokens, usable_token
from mirrord.model.errors import ConfigError, EnvironmentFault

LONGEST_ANSWER_BYTES = 256 << 20
_PIECE_BYTES = 1 << 16
_ADDRESS = re.compile(r"(?P<scheme>https?)://(?P<authority>[^/?#@\s]{1,300})", re.ASCII)


class NoAnswer(EnvironmentFault):
    """Raised when no process answers at a daemon's address, or when a different program answers there."""


class CommandRefused(EnvironmentFault):
    """Raised when the daemon does not accept commands from this process."""


class Challenge(msgspec.Struct, frozen=True):
    """A daemon's answer to a client that wants to prove a token."""

    nonce: str
    local: str = ""
    """The id of the daemon's token for commands from its own machine (`mirrord.control.local_token`)."""


class HttpAnswer(NamedTuple):
    """A daemon's answer to a request."""

    status: int
    body: bytes


class _Key(NamedTuple):
    name: str
    token: str


class CommandSender:
    """Sends requests to the daemon at one address."""

    def __init__(self, http: str, config: HttpConfig, seconds: float) -> None:
        """`http` is the daemon's URL, as its lease says. A request may take up to `seconds` seconds. Raises NoAnswer if
        a daemon with this configuration cannot have this URL, and EnvironmentFault if a file for TLS cannot be used.
        """
        found = _ADDRESS.fullmatch(http)
        try:
            self._address = host_port(found["authority"]) if found is not None else None
        except ValueError:
            self._address = None
        if self._address is None:
            raise NoAnswer(f"{http!r} is not the address of a daemon")
        is_tls = http.startswith("https:")
        if not is_tls and config.tls.is_used and not is_own_machine(self._address.host):
            # A client that can write to the ledger could otherwise make commands believe the answers of its own server.
            raise NoAnswer(f"{http} has no TLS, although [http.tls] is set in the configuration")
        # A certificate is checked even if the ledger names the address: a forged address has none.
        self._tls = client_context(config.tls) if is_tls else None
        self._http = http
        self._config = config
        self._timeout = aiohttp.ClientTimeout(total=seconds)

    async def read(self, target: str) -> HttpAnswer:
        """Return the answer to a GET request. A token is proved only if the daemon asks for one. Raises NoAnswer or
        CommandRefused."""
        answer = await self._request("GET", target, b"", {})
        return await self.send("GET", target, b"", "view") if answer.status == 401 else answer

    async def send(self, method: str, target: str, body: bytes, role: Role) -> HttpAnswer:
        """Send a request that needs a role, with a proof, and return the answer. Raises NoAnswer or CommandRefused."""
        refused = "this process knows no token for it"
        tried: set[str] = set()
        while True:
            challenge = await self._challenge()
            if challenge is None:
                return await self._send_to_former(method, target, body)
            key = next((key for key in self._keys(challenge, role) if key.name not in tried), None)
            if key is None:
                raise CommandRefused(f"{self._http} does not accept this request: {refused}")
            tried.add(key.name)
            line = RequestLine(str(self._address), method, target)
            proof = prove(key.name, key.token, challenge.nonce, line, body)
            answer = await self._request(method, target, body, {"Authorization": proof.header()})
            if answer.status not in {401, 403}:
                return answer
            refused = _error(answer)

    async def _challenge(self) -> Challenge | None:
        """Return a challenge, or None if the daemon's version knows none."""
        answer = await self._request("GET", "/challenge", b"", {})
        if answer.status == 404:
            return None
        if answer.status != 200:
            raise NoAnswer(f"{self._http} answers with {answer.status}: {_error(answer)}")
        try:
            return msgspec.json.decode(answer.body, type=Challenge)
        except (ValueError, RecursionError) as error:
            raise NoAnswer(f"{self._http} does not answer: {error}") from error

    def _keys(self, challenge: Challenge, role: Role) -> Iterator[_Key]:
        """Yield the tokens that this process knows and that may give the role, the daemon's local token first."""
        local = read_local_token(control_directory(), challenge.local)
        if local is not None:
            yield _Key(LOCAL, local)
        for name, own, secret in named_tokens(self._config):
            if ROLES.index(own) < ROLES.index(role):
                continue
            try:
                yield _Key(name, usable_token(secret))
            except (EnvironmentFault, ConfigError):
                continue  # for example, a token that is only on another machine

    async def _send_to_former(self, method: str, target: str, body: bytes) -> HttpAnswer:
        """Send a command to a daemon of a version without proofs, which `start --upgrade` replaces.

        Such a daemon accepts commands from its own machine without a token. The token is sent as it is only to an
        address that this configuration names and that belongs to this machine, and only to a process of this user:
        while no daemon is running, another user of the machine can listen on its port.
        """
        if self._address is None or not await _is_of_this_machine(self._address.host):
            raise CommandRefused(
                f"{self._http} is of a version that wants to be sent its token as it is: give the command on the "
                "daemon's machine"
            )
        headers: dict[str, str] = {}
        is_configured = self._http == configured(self._config)
        if self._config.token is not None and is_configured and _is_port_of_this_user(self._address.port):
            headers["Authorization"] = f"Bearer {self._config.token.resolve()}"
        answer = await self._request(method, target, body, headers)
        if answer.status in {401, 403}:
            raise CommandRefused(f"{self._http} does not accept this request: {_error(answer)}")
        return answer

    async def _request(self, method: str, target: str, body: bytes, headers: dict[str, str]) -> HttpAnswer:
        """Send one request. Raises NoAnswer. A redirection is not followed: it could lead anywhere."""
        url = f"{self._http}{target}"
        headers = {"Host": str(self._address), **headers}
        try:
            async with (
                aiohttp.ClientSession(
                    timeout=self._timeout, connector=aiohttp.TCPConnector(ssl=self._tls or True)
                ) as session,
                session.request(method, url, data=body or None, headers=headers, allow_redirects=False) as response,
            ):
                return HttpAnswer(response.status, await _whole(response, self._http))
        except (TimeoutError, aiohttp.ClientError, ValueError) as error:
            raise NoAnswer(f"{self._http} does not answer: {str(error) or 'no answer in time'}") from error


async def _whole(response: aiohttp.ClientResponse, http: str) -> bytes:
    body = bytearray()
    async for piece in response.content.iter_chunked(_PIECE_BYTES):
        body += piece
        if len(body) > LONGEST_ANSWER_BYTES:
            raise NoAnswer(f"{http} answers with more than {LONGEST_ANSWER_BYTES} bytes")
    return bytes(body)


def _error(answer: HttpAnswer) -> str:
    """Return the reason that the daemon gives for a refusal."""
    try:
        return msgspec.json.decode(answer.body, type=dict[str, str]).get("error", "") or str(answer.status)
    except (ValueError, RecursionError):
        return str(answer.status)


async def _is_of_this_machine(host: str) -> bool:
    """Return whether all addresses of this host belong to this machine."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, 0, type=socket.SOCK_STREAM)
    except OSError:
        return False
    return bool(found) and all(_is_own(str(address[0]).partition("%")[0]) for *_, address in found)


def _is_port_of_this_user(port: int) -> bool:
    """Return whether all processes of this machine that listen on a port belong to this user."""
    listeners = [
        each.pid
        for each in psutil.net_connections("tcp")
        if each.status == psutil.CONN_LISTEN and each.laddr and each.laddr.port == port
    ]
    # The process of a socket is known only if this user may see it.
    return bool(listeners) and all(pid is not None and _owner(pid) == os.geteuid() for pid in listeners)


def _owner(pid: int) -> int:
    """Return the effective user of a process, or -1 if the process has ended."""
    try:
        return psutil.Process(pid).uids().effective
    except psutil.Error:
        return -1


def _is_own(address: str) -> bool:
    if ipaddress.ip_address(address).is_loopback:
        return True
    own = {each.address.partition("%")[0] for addresses in psutil.net_if_addrs().values() for each in addresses}
    return address in own
