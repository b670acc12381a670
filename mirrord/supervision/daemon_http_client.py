"""A client for the HTTP API of a daemon in another process."""

from typing import TypeVar

import aiohttp
import msgspec

from mirrord.config.changes import ConfigChanges
from mirrord.config.digests import ConfigDigests
from mirrord.config.own_file import FileDigest
from mirrord.config.schema import Config
from mirrord.ledger.standing_orders import Order, OrderAnswer
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.group_status import GroupsReport
from mirrord.model.status import Status
from mirrord.supervision.upgrade.protocol import HandoverAnswer, HandoverCall

ANSWER_S = 2.0
GROUPS_S = 15.0
"""Timeout for requests about consumer groups. The daemon queries the target cluster before it answers."""
APPLIED_S = 30.0
"""Timeout for `apply` and for operator commands. The daemon queries both clusters before it answers."""


Decoded = TypeVar("Decoded")


class NoAnswer(EnvironmentFault):
    """Raised when no process answers at a daemon's address, or when a different program answers there."""


class CommandRefused(EnvironmentFault):
    """Raised when the daemon does not accept commands from this process."""


async def ask_status(http: str) -> Status:
    """Return the status of the daemon at this address. Raises NoAnswer."""
    try:
        async with _session() as session, session.get(f"{http}/status") as response:
            if response.status != 200:
                raise NoAnswer(f"{http} answers with {response.status}")
            return Status.decode(await response.read())
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise NoAnswer(f"{http} does not answer: {_reason(error)}") from error


async def ask_groups(http: str, *, reverse: bool = False) -> list[GroupsReport]:
    """Return the positions of consumer groups from the daemon at this address. Raises NoAnswer.

    With `reverse`, return the positions that are synced from the target to the source (`groups.reverse`).
    """
    url = f"{http}/groups{'?reverse' if reverse else ''}"
    try:
        async with _session(GROUPS_S) as session, session.get(url) as response:
            if response.status != 200:
                raise NoAnswer(f"{http} answers with {response.status}")
            return msgspec.json.decode(await response.read(), type=dict[str, list[GroupsReport]])["flows"]
    except (aiohttp.ClientError, TimeoutError, ValueError, KeyError) as error:
        raise NoAnswer(f"{http} does not answer: {_reason(error)}") from error


async def ask_configuration(http: str) -> ConfigDigests:
    """Return the digests of the configuration of the daemon at this address. Raises NoAnswer."""
    try:
        async with _session() as session, session.get(f"{http}/configuration") as response:
            if response.status != 200:
                raise NoAnswer(f"{http} answers with {response.status}")
            return msgspec.json.decode(await response.read(), type=ConfigDigests)
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise NoAnswer(f"{http} does not answer: {_reason(error)}") from error


async def order_stop(http: str, config: Config) -> None:
    """Order the daemon at this address to drain its flows and exit. Raises NoAnswer or CommandRefused."""
    status, body = await _post(http, "/stop", config, None, ANSWER_S)
    if status != 202:
        raise _odd(http, status, body)


async def order_apply(http: str, config: Config, digest: FileDigest, *, dry_run: bool) -> ConfigChanges:
    """Order the daemon at this address to read its own file again, if the file has this digest, and return the changes.
    With `dry_run`, return only the changes that the daemon would make.

    Raises EnvironmentFault if the daemon cannot apply its file at the moment. Also raises NoAnswer and CommandRefused.
    """
    status, body = await _post(http, f"/apply{'?dry_run' if dry_run else ''}", config, digest, APPLIED_S)
    if status == 503:
        raise EnvironmentFault(_decoded(http, body, dict[str, str]).get("error", ""))
    if status != 200:
        raise _odd(http, status, body)
    return _decoded(http, body, ConfigChanges)


async def give_order(http: str, config: Config, order: Order, *, dry_run: bool) -> OrderAnswer:
    """Send an operator command to the daemon at this address, and return the answer. With `dry_run`, return only the
    effect that the command would have.

    Raises ConfigError if the command is impossible or names something that does not exist. Raises EnvironmentFault if
    the daemon cannot carry out the command at the moment. Also raises NoAnswer and CommandRefused.
    """
    status, body = await _post(http, f"/order{'?dry_run' if dry_run else ''}", config, order, APPLIED_S)
    if status == 200:
        return _decoded(http, body, OrderAnswer)
    if status not in {400, 404, 503}:
        raise _odd(http, status, body)
    error = _decoded(http, body, dict[str, str]).get("error", "")
    raise (ConfigError if status == 404 else EnvironmentFault)(error)


async def hand_over(http: str, config: Config, call: HandoverCall, seconds: float) -> HandoverAnswer:
    """Send a handover request to the daemon at this address, which the daemon in this process will replace.

    Raises NoAnswer or CommandRefused.
    """
    status, body = await _post(http, "/handover", config, call, seconds)
    if status != 200:
        raise _odd(http, status, body)
    return _decoded(http, body, HandoverAnswer)


async def _post(
    http: str, path: str, config: Config, order: msgspec.Struct | None, seconds: float
) -> tuple[int, bytes]:
    """Send a command to the daemon at this address. Return the HTTP status and the body of the answer. Raises NoAnswer
    or CommandRefused."""
    data = None if order is None else msgspec.json.encode(order)
    try:
        async with (
            _session(seconds) as session,
            session.post(f"{http}{path}", headers=_token(config), data=data) as response,
        ):
            body = await response.read()
    except (TimeoutError, aiohttp.ClientError) as error:
        raise NoAnswer(f"{http} does not answer: {_reason(error)}") from error
    if response.status == 403:
        raise CommandRefused(f"{http} accepts commands from its own machine, or with the token of [http] token")
    return response.status, body


def _decoded(http: str, body: bytes, kind: type[Decoded]) -> Decoded:
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        raise NoAnswer(f"{http} does not answer: {error}") from error


def _odd(http: str, status: int, body: bytes) -> NoAnswer:
    return NoAnswer(f"{http} answers with {status}: {body.decode(errors='replace')}")


def _token(config: Config) -> dict[str, str]:
    token = config.http.token
    return {"Authorization": f"Bearer {token.resolve()}"} if token else {}


def _session(seconds: float = ANSWER_S) -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=seconds))


def _reason(error: Exception) -> str:
    return str(error) or "no answer in time"
