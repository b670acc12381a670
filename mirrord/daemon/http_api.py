"""The HTTP API of the daemon: health, status, metrics, translated offsets, an HTML status page, and operator commands.

`mirrord.daemon.http_access` decides who may send which request.
"""

import asyncio
import errno
import logging
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec
import structlog
from aiohttp import hdrs, web

from mirrord.config.changes import ConfigChanges
from mirrord.config.digests import ConfigDigests
from mirrord.config.http import DEFAULT_PORT, HttpConfig
from mirrord.config.own_file import FileDigest
from mirrord.config.value_parsers import HostPort
from mirrord.control.address import advertised
from mirrord.control.http_tls import ServerTls
from mirrord.control.local_token import LocalToken, control_directory
from mirrord.control.token_ring import Caller, token_faults
from mirrord.daemon.cached_answer import CachedAnswer, SharedAnswers, TooManyWait
from mirrord.daemon.http_access import HttpAccess, Refused, Requirement
from mirrord.daemon.http_bodies import (
    HEADERS,
    Handler,
    NotACommand,
    check_body,
    decoded,
    json_answer,
    refusal_answer,
    with_json_errors,
)
from mirrord.daemon.http_connections import WHOLE_S, ConnectionLimits
from mirrord.daemon.prometheus import CONTENT_TYPE
from mirrord.daemon.readiness import ReadinessQuestion, question_of
from mirrord.daemon.refused_requests import RefusedRequests
from mirrord.daemon.tls_listener import TlsListener, listening_sockets
from mirrord.groups.offset_translation_queries import Answer, Question
from mirrord.ledger.facts.commands import DaemonCommand
from mirrord.ledger.facts.core import LOSSES
from mirrord.ledger.standing_orders import LONGEST_NAME, Giver, Order, OrderAnswer
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.group_status import GroupsReport
from mirrord.model.shown_text import printable
from mirrord.model.status import Status
from mirrord.runtime.clock import Clock
from mirrord.supervision.upgrade.protocol import HandoverAnswer, HandoverCall

PORTS_TRIED = 100
MOVE_IN_S = 0.5
"""Interval in seconds between attempts to listen on the configured address while another process is using it."""
LONGEST_ORDER_BYTES = 64 << 10
LONGEST_HANDOVER_BYTES = 16 << 20
"""A request to release thousands of lanes names all of them."""
LONGEST_LINE_BYTES = 4096
MOST_HEADERS = 64
LONGEST_HEADER_BYTES = 4096
_SILENT = logging.Logger("mirrord.http", logging.CRITICAL + 1)  # noqa: LOG001 - it has no handlers
"""The logger of aiohttp. It would write a traceback for each malformed request, so any client could fill the logs."""
_PAGE = Path(__file__).with_name("page.html")
_PAGE_HEADERS = HEADERS | {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
}


log = structlog.get_logger()


class RefusedCommand(NamedTuple):
    """A command of a client whose token has too small a role for it."""

    command: DaemonCommand
    reason: str
    omitted: int
    """How many such commands of the same token have not been recorded since the previous record."""


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

    async def readiness(self, question: ReadinessQuestion) -> bytes:
        """Return, as a JSON document, how ready flows are for the loss of their source clusters. The targets are asked
        at most every ten seconds. Raises ConfigError if there is no such flow, and TooManyWait."""
        ...

    async def translate(self, question: Question) -> Answer:
        """Return the offset at which a consumer of one cluster resumes on the other cluster.

        Raises ConfigError if the flow, topic or partition is unknown. Raises EnvironmentFault if the ledger cannot be
        read. If the question gives a time instead of an offset, the cluster from which to translate is asked for the
        offset that corresponds to this time. EnvironmentFault is then also raised if that cluster does not answer.
        """
        ...

    async def reload(self, given: FileDigest | None, *, dry_run: bool, giver: Giver) -> ConfigChanges:
        """Read the daemon's own file again, apply it, and return the changes. See
        `mirrord.daemon.daemon.Supervisor.reload`."""
        ...

    def configuration(self) -> ConfigDigests:
        """Return the digests of the daemon's configuration, which standbys compare with their own."""
        ...

    async def order(self, order: Order, *, dry_run: bool, giver: Giver) -> OrderAnswer:
        """Carry out an operator command, such as pause, resume, move or drain. `giver` is the client that has sent it.

        Raises ConfigError if the command is impossible or names something that does not exist. Raises EnvironmentFault
        if the command cannot be accepted at the moment.
        """
        ...

    async def hand_over(self, call: HandoverCall, giver: Giver) -> HandoverAnswer:
        """Answer a request from the daemon that replaces this daemon."""
        ...

    async def ordered_stop(self, by: str, giver: Giver) -> None:
        """Record who has ordered the daemon to stop, and begin to stop it. `by` is the name that the client gives."""
        ...

    def command_refused(self, refused: RefusedCommand, giver: Giver) -> None:
        """Begin to record that a client has given a command that the role of its token does not permit."""
        ...

    async def stop(self) -> None:
        """Begin to drain all flows. The method returns without waiting for them to be drained. Later calls have no
        effect."""
        ...


_COMMANDS: dict[str, DaemonCommand] = {"/stop": "stop", "/apply": "apply", "/handover": "upgrade", "/order": "order"}
CALLER: web.RequestKey[Caller | None] = web.RequestKey("caller")
"""The key of a request under which the client is stored that has sent it; None for a health check."""


class HttpServer:
    """An HTTP server for one `StatusSource`. It runs until `close` is called."""

    def __init__(self, source: StatusSource, http: HttpConfig, clock: Clock, *, elsewhere: bool = False) -> None:
        """Create the server. If the configuration names no address, the server uses the first free default address. The
        default addresses are the ports from `DEFAULT_PORT` upward on 127.0.0.1.

        `elsewhere` is set if this daemon replaces a daemon that may still be using the configured address. If this
        address is taken, the server initially listens on a default address. `move_in` later adds the configured
        address.
        """
        self._elsewhere = elsewhere
        self._source = source
        self._http = http
        self._listen = http.listen
        self._clock = clock
        self._local: LocalToken | None = None
        self._access: HttpAccess | None = None
        self._tls: ServerTls | None = None
        self.refused = RefusedRequests(clock)
        """The requests that this server has refused."""
        self._limits = ConnectionLimits()
        self._listening: list[asyncio.Server | TlsListener] = []
        self._status_document = CachedAnswer(source.status, clock)
        self._status_bytes = CachedAnswer(lambda: self._status_document.get().encode(), clock)
        self._metrics_bytes = CachedAnswer(source.metrics_text, clock)
        self._group_reports = SharedAnswers[list[GroupsReport]]()
        application = web.Application(client_max_size=LONGEST_HANDOVER_BYTES, middlewares=[with_json_errors])
        application.add_routes(
            [
                web.get("/", self._admitting("view", self._page)),
                web.get("/livez", self._admitting("probe", self._livez)),
                web.get("/readyz", self._admitting("probe", self._readyz)),
                web.get("/challenge", self._admitting("open", self._challenge)),
                web.get("/status", self._admitting("view", self._status)),
                web.get("/metrics", self._admitting("view", self._metrics)),
                web.get("/configuration", self._admitting("view", self._configuration)),
                web.get("/groups", self._admitting("view", self._groups)),
                web.get("/readiness", self._admitting("view", self._readiness)),
                web.get("/translate", self._admitting("view", self._translate)),
                web.post("/stop", self._admitting("configure", self._stop, LONGEST_ORDER_BYTES)),
                web.post("/apply", self._admitting("configure", self._apply, LONGEST_ORDER_BYTES)),
                web.post("/order", self._admitting("operate", self._order, LONGEST_ORDER_BYTES)),
                web.post("/handover", self._admitting("configure", self._handover, LONGEST_HANDOVER_BYTES)),
            ]
        )
        self._moved_in = True
        self._runner = web.AppRunner(
            application,
            access_log=None,
            shutdown_timeout=1.0,
            max_line_size=LONGEST_LINE_BYTES,
            max_headers=MOST_HEADERS,
            max_field_size=LONGEST_HEADER_BYTES,
            lingering_time=1.0,
            auto_decompress=False,
            logger=_SILENT,
        )

    async def start(self) -> HostPort:
        """Start listening, and return the address.

        Raises EnvironmentFault if a token cannot be used, or if the server cannot listen on any of the addresses that
        `__init__` describes.
        """
        if faults := list(token_faults(self._http)):
            raise EnvironmentFault("\n".join(faults))
        self._tls = ServerTls(self._http.tls) if self._http.tls.certificate is not None else None
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
                self._open(address)
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
        # First, because waiting for clients may be cut short.
        if self._local is not None:
            self._local.remove()
        for each in self._listening:
            each.close()
        self._listening.clear()
        await self._runner.cleanup()

    def _open(self, address: HostPort) -> None:
        """Begin to answer requests at this address. Until then, every request is refused."""
        try:
            self._local = LocalToken(control_directory())
        except EnvironmentFault as fault:
            log.warning("no_local_token", reason=str(fault))
        addresses = {address, advertised(address, self._http.advertised), self._listen or address}
        self._access = HttpAccess(self._http, self._local, self._clock, tuple(addresses))

    def _admitting(self, need: Requirement, handler: Handler, longest_bytes: int = 0) -> Handler:
        """Return a handler that answers only requests that may be sent, with bodies of at most `longest_bytes`.

        Reading needs no body: otherwise, a client without a token could keep a connection busy by not sending it.
        """

        async def handle(request: web.Request) -> web.StreamResponse:
            transport = request.transport
            self._limits.begin(transport)
            try:
                if self._access is None:
                    return json_answer({"error": "the daemon is starting"}, status=503)
                check_body(request, longest_bytes)
                request[CALLER] = await self._received(self._access, request, need)
                try:
                    return await handler(request)
                finally:
                    if need in {"operate", "configure"}:
                        # Refused requests do not get here: otherwise, any client could make the daemon compute the
                        # answers as often as it likes.
                        self._drop_answers()
            except NotACommand as fault:
                return json_answer({"error": str(fault)}, status=400)
            except TooManyWait as fault:
                return json_answer({"error": str(fault)}, status=503)
            except Refused as refusal:
                return self._refuse(request, refusal)
            except Exception:
                log.exception("request_failed", path=printable(request.path, LONGEST_NAME))
                return json_answer({"error": "internal error; the log of the daemon has the details"}, status=500)
            finally:
                self._limits.end(transport)

        return handle

    async def _received(self, access: HttpAccess, request: web.Request, need: Requirement) -> Caller | None:
        """Wait until the whole request has arrived, and return who sent it. Raises Refused."""
        try:
            async with asyncio.timeout(WHOLE_S):
                caller = await self._caller(access, request, need)
                await request.read()
        except TimeoutError:
            raise Refused(408, f"the request did not arrive within {WHOLE_S:g} s") from None
        except (OSError, web.RequestPayloadError):
            raise Refused(400, "the connection ended before the whole request had arrived") from None
        return caller

    async def _caller(self, access: HttpAccess, request: web.Request, need: Requirement) -> Caller | None:
        """Return who sent this request; None for a health check of an unknown client. Raises Refused."""
        if need != "probe":
            return await access.admit(request, need)
        try:
            return await access.admit(request, "view")
        except Refused as refusal:
            if hdrs.AUTHORIZATION in request.headers:
                # The check is answered, but the answer shows whether the token is right: attempts must not stay unseen.
                self._record_refusal(request, refusal)
            return None

    def _drop_answers(self) -> None:
        for each in (self._status_document, self._status_bytes, self._metrics_bytes):
            each.drop()

    def _refuse(self, request: web.Request, refusal: Refused) -> web.Response:
        self._record_refusal(request, refusal)
        command, caller = _COMMANDS.get(request.path), refusal.caller
        if command is not None and caller is not None and (number := self.refused.omitted(caller.name)) is not None:
            refused = RefusedCommand(command, str(refusal), number)
            self._source.command_refused(refused, Giver(caller.name, request.remote or ""))
        return refusal_answer(refusal)

    def _record_refusal(self, request: web.Request, refusal: Refused) -> None:
        self.refused.add(
            status=refusal.status,
            reason=str(refusal),
            method=request.method,
            path=request.path,
            peer=request.remote or "",
            claimed=refusal.claimed,
        )

    async def _listen_at(self, address: HostPort) -> None:
        """Listen on an additional address. Raises OSError if this is impossible."""
        server = self._runner.server
        if server is None:
            raise EnvironmentFault("the HTTP server has been closed")
        factory = self._limits.guarding(server)
        if self._tls is None:
            loop = asyncio.get_running_loop()
            self._listening.append(await loop.create_server(factory, address.host, address.port))
            return
        sockets = await listening_sockets(address)
        self._listening.append(TlsListener(sockets, self._tls.context, factory, self._limits.most, WHOLE_S))

    def _candidates(self) -> Iterator[HostPort]:
        if self._listen is not None:
            yield self._listen
        if self._listen is None or self._elsewhere:
            yield from (HostPort("127.0.0.1", DEFAULT_PORT + step) for step in range(PORTS_TRIED))

    async def _page(self, request: web.Request) -> web.Response:  # noqa: ARG002 - a handler has this signature
        return web.Response(text=_PAGE.read_text(encoding="utf-8"), content_type="text/html", headers=_PAGE_HEADERS)

    async def _livez(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return json_answer({"alive": True})

    async def _readyz(self, request: web.Request) -> web.Response:
        ready, reasons = self._source.ready()
        body: dict[str, object] = {"ready": ready}
        if request[CALLER] is not None:
            body |= {"reasons": reasons, "losses": losses(self._status_document.get())}
        return json_answer(body, status=200 if ready else 503)

    async def _challenge(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return json_answer(self._access.challenge() if self._access is not None else {})

    async def _status(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.Response(body=self._status_bytes.get(), content_type="application/json", headers=HEADERS)

    async def _groups(self, request: web.Request) -> web.Response:
        reverse = "reverse" in request.query
        reports = await self._group_reports.get(reverse, lambda: self._source.groups(reverse=reverse))
        return json_answer({"flows": reports})

    async def _configuration(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return json_answer(self._source.configuration())

    async def _metrics(self, request: web.Request) -> web.Response:  # noqa: ARG002
        return web.Response(body=self._metrics_bytes.get(), headers=HEADERS | {"Content-Type": CONTENT_TYPE})

    async def _readiness(self, request: web.Request) -> web.Response:
        try:
            question = question_of(request.query.items())
        except ConfigError as error:
            return json_answer({"error": str(error)}, status=400)
        try:
            body = await self._source.readiness(question)
        except ConfigError as error:
            return json_answer({"error": str(error)}, status=404)
        return web.Response(body=body, content_type="application/json", headers=HEADERS)

    async def _translate(self, request: web.Request) -> web.Response:
        try:
            return json_answer(await self._source.translate(_question(request.query)))
        except ValueError as error:
            return json_answer({"error": str(error)}, status=400)
        except ConfigError as error:
            return json_answer({"error": str(error)}, status=404)
        except EnvironmentFault as error:
            return json_answer({"error": str(error)}, status=503)

    async def _stop(self, request: web.Request) -> web.Response:
        by = decoded(await request.read() or b"{}", StopOrder).by
        await self._source.ordered_stop(printable(by, LONGEST_NAME), _giver(request))
        return json_answer({"stopping": True}, status=202)

    async def _apply(self, request: web.Request) -> web.Response:
        given = decoded(await request.read(), FileDigest)
        try:
            return json_answer(
                await self._source.reload(given, dry_run="dry_run" in request.query, giver=_giver(request))
            )
        except EnvironmentFault as error:
            return json_answer({"error": str(error)}, status=503)

    async def _order(self, request: web.Request) -> web.Response:
        giver = _giver(request)
        order = decoded(await request.read(), Order)
        try:
            return json_answer(await self._source.order(order, dry_run="dry_run" in request.query, giver=giver))
        except (ConfigError, EnvironmentFault) as error:
            texts = {name: printable(getattr(order, name), LONGEST_NAME) for name in ("verb", "name", "flow", "by")}
            log.warning("order_not_carried_out", reason=str(error), client=giver.client, peer=giver.peer, order=texts)
            return json_answer({"error": str(error)}, status=404 if isinstance(error, ConfigError) else 503)

    async def _handover(self, request: web.Request) -> web.Response:
        call = decoded(await request.read(), HandoverCall)
        return json_answer(await self._source.hand_over(call, _giver(request)))


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


class StopOrder(msgspec.Struct, frozen=True):
    """The body of `POST /stop`."""

    by: str = ""
    """Who gives the command, as the client says."""


def _giver(request: web.Request) -> Giver:
    caller = request[CALLER]
    return Giver(caller.name if caller is not None else "", request.remote or "")
