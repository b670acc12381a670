"""The HTTP API of the daemon: health, status, metrics, translated offsets, an HTML status page, and operator commands.

Any client that can reach the API's address may send read-only requests. The address is on the loopback interface unless
the configuration sets a different one. Operator commands are accepted from clients on this machine and from clients
that present the configured token, but never from a web page in a browser.
"""

import asyncio
import errno
import hmac
import ipaddress
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec
from aiohttp import web

from mirrord.config.changes import ConfigChanges
from mirrord.config.digests import ConfigDigests
from mirrord.config.http import DEFAULT_PORT
from mirrord.config.own_file import FileDigest
from mirrord.config.value_parsers import HostPort
from mirrord.daemon.prometheus import CONTENT_TYPE
from mirrord.groups.offset_translation_queries import Answer, Question
from mirrord.ledger.facts.core import LOSSES
from mirrord.ledger.standing_orders import Order, OrderAnswer
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.group_status import GroupsReport
from mirrord.model.status import Status
from mirrord.supervision.upgrade.protocol import HandoverAnswer, HandoverCall

PORTS_TRIED = 100
MOVE_IN_S = 0.5
"""Interval in seconds between attempts to listen on the configured address while another process is using it."""
DENIED = "commands are accepted from this machine, or with the token of [http] token"
LONGEST_ORDER_BYTES = 16 << 20
_PAGE = Path(__file__).with_name("page.html")
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
_PAGE_HEADERS = _HEADERS | {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}


class StatusSource(Protocol):
    """The interface through which HTTP clients observe and control the daemon."""

    def status(self) -> Status:
        """Return the current status. No request is sent to a cluster."""
        ...

    def ready(self) -> tuple[bool, list[str]]:
        """Return whether the daemon is ready and, if it is not, the reasons. Lag and losses are never reasons; they are
        reported by metrics."""
        ...

    async def groups(self, *, reverse: bool = False) -> list[GroupsReport]:
        """Return the positions of consumer groups and their lags. To compute the lags, a request is sent to the target.

        With `reverse`, return instead the positions that are synced from the target back to the source. In that case,
        only flows with `groups.reverse` are included.
        """
        ...

    def metrics_text(self) -> bytes:
        """Return the metrics in the Prometheus text format."""
        ...

    async def translate(self, question: Question) -> Answer:
        """Return the offset at which a consumer of one cluster resumes on the other cluster.

        Raises ConfigError if the flow, topic or partition is unknown. Raises EnvironmentFault if the ledger cannot be
        read. If the question gives a time instead of an offset, the cluster from which to translate is asked for the
        offset that corresponds to this time. EnvironmentFault is then also raised if that cluster does not answer.
        """
        ...

    async def reload(self, given: FileDigest | None, *, dry_run: bool) -> ConfigChanges:
        """Read the daemon's own file again, apply it, and return the changes. See
        `mirrord.daemon.daemon.Supervisor.reload`."""
        ...

    def configuration(self) -> ConfigDigests:
        """Return the digests of the daemon's configuration, which standbys compare with their own."""
        ...

    async def order(self, order: Order, *, dry_run: bool) -> OrderAnswer:
        """Carry out an operator command, such as pause, resume, move or drain.

        Raises ConfigError if the command is impossible or names something that does not exist. Raises EnvironmentFault
        if the command cannot be accepted at the moment.
        """
        ...

    async def hand_over(self, call: HandoverCall) -> HandoverAnswer:
        """Answer a request from the daemon that replaces this daemon."""
        ...

    async def stop(self) -> None:
        """Begin to drain all flows. The method returns without waiting for them to be drained. Later calls have no
        effect."""
        ...


class HttpServer:
    """An HTTP server for one `StatusSource`. It runs until `close` is called."""

    def __init__(
        self, source: StatusSource, listen: HostPort | None, token: str | None, *, elsewhere: bool = False
    ) -> None:
        """Create the server. `listen` is the configured address. If it is None, the server uses the first free default
        address. The default addresses are the ports from `DEFAULT_PORT` upward on 127.0.0.1.

        `elsewhere` is set if this daemon replaces a daemon that may still be using the configured address. If this
        address is taken, the server initially listens on a default address. `move_in` later adds the configured
        address.
        """
        self._elsewhere = elsewhere
        self._source = source
        self._listen = listen
        self._token = token
        application = web.Application(client_max_size=LONGEST_ORDER_BYTES)
        application.add_routes(
            [
                web.get("/", self._page),
                web.get("/livez", self._livez),
                web.get("/readyz", self._readyz),
                web.get("/status", self._status),
                web.get("/metrics", self._metrics),
                web.get("/configuration", self._configuration),
                web.get("/groups", self._groups),
                web.get("/translate", self._translate),
                web.post("/stop", self._stop),
                web.post("/apply", self._apply),
                web.post("/order", self._order),
                web.post("/handover", self._handover),
            ]
        )
        self._moved_in = True
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)

    async def start(self) -> HostPort:
        """Start listening, and return the address.

        Raises EnvironmentFault if the server cannot listen on any of the addresses that `__init__` describes.
        """
        await self._runner.setup()
        reason = ""
        for address in self._candidates():
            try:
                await self._listen_at(address)
            except OSError as error:
                reason = error.strerror or str(error)
                if error.errno != errno.EADDRINUSE:
                    break
            else:
                self._moved_in = self._listen in {None, address}
                return address
        await self._runner.cleanup()
        if self._listen is not None:
            raise EnvironmentFault(f"http.listen: cannot listen on {self._listen}: {reason}")
        last = DEFAULT_PORT + PORTS_TRIED - 1
        raise EnvironmentFault(f"http: cannot listen on any of 127.0.0.1:{DEFAULT_PORT}-{last}: {reason}")

    async def move_in(self) -> None:
        """If the server is not listening on the configured address yet, wait until this address is free. Then listen on
        it in addition to the default address."""
        while self._listen is not None and not self._moved_in:
            with suppress(OSError):
                await self._listen_at(self._listen)
                self._moved_in = True
                return
            await asyncio.sleep(MOVE_IN_S)

    async def close(self) -> None:
        """Stop listening and close open connections."""
        await self._runner.cleanup()

    async def _listen_at(self, address: HostPort) -> None:
        """Listen on an additional address. Raises OSError if this is impossible."""
        site = web.TCPSite(self._runner, address.host, address.port)
        try:
            await site.start()
        except OSError:
            await site.stop()  # otherwise the runner keeps the site, and each attempt by `move_in` adds another one
            raise

    def _candidates(self) -> Iterator[HostPort]:
        if self._listen is not None:
            yield self._listen
        if self._listen is None or self._elsewhere:
            yield from (HostPort("127.0.0.1", DEFAULT_PORT + step) for step in range(PORTS_TRIED))

    async def _page(self, request: web.Request) -> web.Response:  # noqa: ARG002 - a handler has this signature
        return web.Response(text=_PAGE.read_text(encoding="utf-8"), content_type="text/html", headers=_PAGE_HEADERS)

    async def _livez(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return _json({"alive": True})

    async def _readyz(self, request: web.Request) -> web.Response:  # noqa: ARG002
        ready, reasons = self._source.ready()
        body = {"ready": ready, "reasons": reasons, "losses": losses(self._source.status())}
        return _json(body, status=200 if ready else 503)

    async def _status(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.Response(body=self._source.status().encode(), content_type="application/json", headers=_HEADERS)

    async def _groups(self, request: web.Request) -> web.Response:
        return _json({"flows": await self._source.groups(reverse="reverse" in request.query)})

    async def _configuration(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return _json(self._source.configuration())

    async def _metrics(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.Response(body=self._source.metrics_text(), headers=_HEADERS | {"Content-Type": CONTENT_TYPE})

    async def _translate(self, request: web.Request) -> web.Response:
        try:
            return _json(await self._source.translate(_question(request.query)))
        except ValueError as error:
            return _json({"error": str(error)}, status=400)
        except ConfigError as error:
            return _json({"error": str(error)}, status=404)
        except EnvironmentFault as error:
            return _json({"error": str(error)}, status=503)

    async def _stop(self, request: web.Request) -> web.Response:
        if not self._may_order(request):
            return _json({"error": DENIED}, status=403)
        await self._source.stop()
        return _json({"stopping": True}, status=202)

    async def _apply(self, request: web.Request) -> web.Response:
        if not self._may_order(request):
            return _json({"error": DENIED}, status=403)
        try:
            given = msgspec.json.decode(await request.read(), type=FileDigest)
            return _json(await self._source.reload(given, dry_run="dry_run" in request.query))
        except (msgspec.DecodeError, ValueError) as error:
            return _json({"error": f"not a command of this version of mirrord: {error}"}, status=400)
        except EnvironmentFault as error:
            return _json({"error": str(error)}, status=503)

    async def _order(self, request: web.Request) -> web.Response:
        if not self._may_order(request):
            return _json({"error": DENIED}, status=403)
        try:
            order = msgspec.json.decode(await request.read(), type=Order)
            return _json(await self._source.order(order, dry_run="dry_run" in request.query))
        except msgspec.DecodeError as error:
            return _json({"error": f"not a command of this version of mirrord: {error}"}, status=400)
        except ConfigError as error:
            return _json({"error": str(error)}, status=404)
        except EnvironmentFault as error:
            return _json({"error": str(error)}, status=503)

    async def _handover(self, request: web.Request) -> web.Response:
        if not self._may_order(request):
            return _json({"error": DENIED}, status=403)
        try:
            call = msgspec.json.decode(await request.read(), type=HandoverCall)
        except msgspec.DecodeError as error:
            return _json({"error": f"not known to this version of mirrord: {error}"}, status=400)
        return _json(await self._source.hand_over(call))

    def _may_order(self, request: web.Request) -> bool:
        # A browser adds the header Origin to every POST. Without this check, a page from another site could stop the
        # daemon on the machine of a user who views the page.
        if "Origin" in request.headers:
            return False
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        shown = given.encode(errors="replace")
        if self._token and scheme == "Bearer" and hmac.compare_digest(shown, self._token.encode()):
            return True
        # Behind a proxy on this machine, every caller appears to be local.
        forwarded = "Forwarded" in request.headers or "X-Forwarded-For" in request.headers
        return not forwarded and request.remote is not None and ipaddress.ip_address(request.remote).is_loopback


def _question(query: Mapping[str, str]) -> Question:
    """Build the question about an offset from the query parameters. Raises ValueError if these are invalid."""
    unknown = sorted(query.keys() - set(Question.__struct_fields__))
    if unknown:
        raise ValueError(f"not known: {', '.join(unknown)}; known: {', '.join(Question.__struct_fields__)}")
    given = {name: value or "true" if name == "reverse" else value for name, value in query.items()}
    question = msgspec.convert(given, Question, strict=False)
    if (question.offset is None) == (question.time_ms is None):
        raise ValueError("give either offset or time_ms")
    return question


def losses(status: Status) -> dict[str, dict[str, int]]:
    """Return the number of lost source offsets by flow and reason. Flows without losses are omitted."""
    offsets = {flow.name: flow.verdict_offsets() for flow in status.flows}
    found = {name: {reason: lost for reason in LOSSES if (lost := each[reason])} for name, each in offsets.items()}
    return {name: lost for name, lost in found.items() if lost}


def _json(value: object, status: int = 200) -> web.Response:
    body = msgspec.json.encode(value)
    return web.Response(body=body, status=status, content_type="application/json", headers=_HEADERS)
