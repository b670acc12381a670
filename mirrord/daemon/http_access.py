"""Decides which HTTP requests a daemon answers.

Every request must name this server in its header Host. A command must come with a proof of a token that gives the role
for it. Reading needs a token, too, unless the client connects from this machine without a proxy.
"""

import base64
import binascii
import hashlib
import hmac
import ipaddress
from typing import Literal

from aiohttp import hdrs, web

from mirrord.config.http import HttpConfig, Role
from mirrord.config.value_parsers import HostPort
from mirrord.control.challenges import Challenges
from mirrord.control.command_proof import SCHEME, CommandProof, RequestLine, parse_proof
from mirrord.control.command_sender import Challenge
from mirrord.control.local_token import LocalToken
from mirrord.control.server_names import ServerNames
from mirrord.control.token_ring import Caller, TokenRing
from mirrord.runtime.clock import Clock

Requirement = Role | Literal["open", "probe"]
"""What a path needs: a role; "open": nothing but the name of this server; "probe": nothing, because it is a health
check. Only clients that may read get more than yes or no."""
_READS = frozenset({hdrs.METH_GET, hdrs.METH_HEAD})
UNNAMED = Caller("", "view")
"""A client on this machine that has proved nothing."""
_FORWARDED = frozenset({"forwarded", "via", "x-real-ip", "x-client-ip", "true-client-ip", "cf-connecting-ip"})
"""Headers that proxies add, in addition to all that begin with `x-forwarded-`."""
_ASK = 'Basic realm="mirrord", charset="UTF-8"'


class Refused(Exception):
    """Raised for a request that is not answered. The text says why, and what is allowed."""

    def __init__(self, status: int, reason: str, claimed: str = "", caller: Caller | None = None) -> None:
        super().__init__(reason)
        self.status = status
        self.caller = caller
        """The client, if it knows a token whose role does not permit the request."""
        self.claimed = claimed
        """The name of the token that the client claims to know; empty if it claims none."""

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of the answer."""
        return {hdrs.WWW_AUTHENTICATE: _ASK} if self.status == 401 else {}


class HttpAccess:
    """The checks of one HTTP server."""

    def __init__(self, http: HttpConfig, local: LocalToken | None, clock: Clock, listens: tuple[HostPort, ...]) -> None:
        """`listens` are the addresses on which the server listens, and the one that it advertises."""
        self._ring = TokenRing(http, local)
        self._challenges = Challenges(clock)
        self._names = ServerNames.of(listens, (*http.names, *([str(http.advertised)] if http.advertised else ())))

    def challenge(self) -> Challenge:
        """Return a new challenge for a client that wants to prove a token."""
        return Challenge(self._challenges.issue(), self._ring.key_id)

    async def admit(self, request: web.Request, need: Role | Literal["open"]) -> Caller:
        """Return who sent this request. Raises Refused if the client may not send it."""
        authority = self._server(request)
        if need == "open":
            return UNNAMED
        if need != "view" and hdrs.ORIGIN in request.headers:
            # A browser adds this header to every POST. A page from another site must not give commands.
            raise Refused(403, "a web page cannot give commands")
        if _is_cross_site(request):
            raise Refused(403, "a page of another site cannot send this request")
        caller = await self._caller(request, authority)
        if not caller.may(need):
            reason = f'the token "{caller.name}" has the role {caller.role}; needed: {need}'
            raise Refused(403, reason, caller.name, caller)
        return caller

    def _server(self, request: web.Request) -> str:
        """Return the header Host of the request. Raises Refused if it does not name this server."""
        found = request.headers.getall(hdrs.HOST, [])
        if not request.raw_path.startswith("/") or len(found) != 1:
            raise Refused(400, "allowed: a path, and one header Host")
        if not self._names.accept(found[0], _arrived_at(request)):
            raise Refused(403, "the header Host names another server; [http] names lists further names of this one")
        return found[0]

    async def _caller(self, request: web.Request, authority: str) -> Caller:
        found = request.headers.getall(hdrs.AUTHORIZATION, [])
        if not found and request.method in _READS and _is_direct(request):
            return UNNAMED
        if len(found) != 1:
            raise Refused(401, "a token is needed: see docs/how-to/secure.md")
        scheme, _, given = found[0].partition(" ")
        if scheme == SCHEME:
            return await self._proved(request, authority, parse_proof(found[0]))
        if scheme in {"Basic", "Bearer"}:
            return self._told(request, scheme, given)
        raise Refused(401, f"allowed: {SCHEME}, Bearer or Basic as the kind of authorization")

    async def _proved(self, request: web.Request, authority: str, proof: CommandProof | None) -> Caller:
        if proof is None:
            raise Refused(401, "the proof of the token is malformed")
        if not self._names.mean(authority, _arrived_at(request), 443 if request.secure else 80):
            raise Refused(
                401, "the proof is for another server; [http] names lists further names of this one", proof.name
            )
        caller = self._ring.caller_of_proof(proof, RequestLine(authority, request.method, request.raw_path))
        if caller is None:
            raise Refused(401, f'the proof of the token "{proof.name}" is wrong', proof.name)
        if not self._challenges.spend(proof.nonce, caller.name):
            raise Refused(401, "the nonce has expired or was used before", proof.name)
        # Only a client that has proved a token makes the daemon read a body.
        digest = hashlib.sha256(await request.read()).hexdigest()
        if not hmac.compare_digest(digest, proof.body):
            raise Refused(401, "the body differs from the one that was proved", proof.name)
        return caller

    def _told(self, request: web.Request, scheme: str, given: str) -> Caller:
        """Return the client that has sent its token as it is. Without TLS, this is permitted only for tokens that
        permit only reading: an attacker who reads the network can read the answers anyway."""
        name, token = _basic(given) if scheme == "Basic" else (None, given)
        caller = self._ring.caller_of_token(token, name) if token else None
        if caller is None:
            raise Refused(401, "the token is wrong", name or "")
        if request.method not in _READS and scheme == "Basic":
            # A browser sends a password that it remembers with every request, without the user's intention.
            raise Refused(403, f"commands need {SCHEME} or Bearer as the kind of authorization", caller.name)
        if not request.secure and caller.role != "view":
            raise Refused(403, "without TLS, only a token with the role view may be sent as it is", caller.name)
        return caller


def _is_cross_site(request: web.Request) -> bool:
    """Return whether a browser says that a page of another site has caused this request. A link to this server is
    allowed, because the other page learns nothing from it, and each link needs a click."""
    is_link = request.headers.get("Sec-Fetch-Dest") == "document"
    return request.headers.get("Sec-Fetch-Site") in {"cross-site", "same-site"} and not is_link


def _is_direct(request: web.Request) -> bool:
    """Return whether the client connects from this machine, and not through a proxy. With a proxy on this machine,
    every client appears to be local."""
    names = {name.lower() for name in request.headers}
    if not names.isdisjoint(_FORWARDED) or any(name.startswith("x-forwarded-") for name in names):
        return False
    try:
        peer = ipaddress.ip_address((request.remote or "").partition("%")[0])
    except ValueError:
        return False
    mapped = peer.ipv4_mapped if isinstance(peer, ipaddress.IPv6Address) else None
    return (mapped or peer).is_loopback


def _arrived_at(request: web.Request) -> HostPort:
    """Return the address of this machine at which the request arrived."""
    transport = request.transport
    name = transport.get_extra_info("sockname") if transport is not None else None
    return HostPort(str(name[0]), int(name[1])) if name else HostPort("", 0)


def _basic(given: str) -> tuple[str, str]:
    """Return the user name and the password of RFC 7617; both are empty if the text is not of this form."""
    try:
        name, _, token = base64.b64decode(given, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return "", ""
    return name, token
