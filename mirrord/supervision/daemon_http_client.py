"""The requests that a process sends to a daemon in another process: which ones there are, which role each one needs,
and what the answers mean."""

from typing import TypeVar

import msgspec

from mirrord.config.changes import ConfigChanges
from mirrord.config.digests import ConfigDigests
from mirrord.config.own_file import FileDigest
from mirrord.config.schema import Config
from mirrord.control.command_sender import CommandSender, HttpAnswer, NoAnswer
from mirrord.ledger.standing_orders import Order, OrderAnswer
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.group_status import GroupsReport
from mirrord.model.status import Status
from mirrord.supervision.upgrade.protocol import HandoverAnswer, HandoverCall

ANSWER_S = 2.0
STOP_S = 5.0
"""Timeout for `stop`. The daemon records the command before it answers."""
GROUPS_S = 15.0
"""Timeout for requests about consumer groups. The daemon queries the target cluster before it answers."""
APPLIED_S = 30.0
"""Timeout for `apply` and for operator commands. The daemon queries both clusters before it answers."""


Decoded = TypeVar("Decoded")


async def ask_status(http: str, config: Config) -> Status:
    """Return the status of the daemon at this address. Raises NoAnswer or CommandRefused."""
    body = await _read(http, config, "/status", ANSWER_S)
    try:
        return Status.decode(body)
    except ValueError as error:
        raise NoAnswer(f"{http} does not answer: {error}") from error


async def ask_groups(http: str, config: Config, *, reverse: bool = False) -> list[GroupsReport]:
    """Return the positions of consumer groups from the daemon at this address. Raises NoAnswer or CommandRefused.

    With `reverse`, return the positions that are synced from the target to the source (`groups.reverse`).
    """
    body = await _read(http, config, f"/groups{'?reverse' if reverse else ''}", GROUPS_S)
    return _decoded(http, body, dict[str, list[GroupsReport]]).get("flows", [])


async def ask_configuration(http: str, config: Config) -> ConfigDigests:
    """Return the digests of the configuration of the daemon at this address. Raises NoAnswer or CommandRefused."""
    return _decoded(http, await _read(http, config, "/configuration", ANSWER_S), ConfigDigests)


async def order_stop(http: str, config: Config, by: str = "") -> None:
    """Order the daemon at this address to drain its flows and exit. `by` is who gives the order. Raises NoAnswer or
    CommandRefused."""
    body = msgspec.json.encode({"by": by})
    answer = await CommandSender(http, config.http, STOP_S).send("POST", "/stop", body, "configure")
    if answer.status != 202:
        raise _odd(http, answer)


async def order_apply(http: str, config: Config, digest: FileDigest, *, dry_run: bool) -> ConfigChanges:
    """Order the daemon at this address to read its own file again, if the file has this digest, and return the changes.
    With `dry_run`, return only the changes that the daemon would make.

    Raises EnvironmentFault if the daemon cannot apply its file at the moment. Also raises NoAnswer and CommandRefused.
    """
    target = f"/apply{'?dry_run' if dry_run else ''}"
    sender = CommandSender(http, config.http, APPLIED_S)
    answer = await sender.send("POST", target, msgspec.json.encode(digest), "configure")
    if answer.status == 503:
        raise EnvironmentFault(_decoded(http, answer.body, dict[str, str]).get("error", ""))
    if answer.status != 200:
        raise _odd(http, answer)
    return _decoded(http, answer.body, ConfigChanges)


async def give_order(http: str, config: Config, order: Order, *, dry_run: bool) -> OrderAnswer:
    """Send an operator command to the daemon at this address, and return the answer. With `dry_run`, return only the
    effect that the command would have.

    Raises ConfigError if the command is impossible or names something that does not exist. Raises EnvironmentFault if
    the daemon cannot carry out the command at the moment. Also raises NoAnswer and CommandRefused.
    """
    target = f"/order{'?dry_run' if dry_run else ''}"
    sender = CommandSender(http, config.http, APPLIED_S)
    answer = await sender.send("POST", target, msgspec.json.encode(order), "operate")
    if answer.status == 200:
        return _decoded(http, answer.body, OrderAnswer)
    if answer.status not in {400, 404, 503}:
        raise _odd(http, answer)
    error = _decoded(http, answer.body, dict[str, str]).get("error", "")
    raise (ConfigError if answer.status == 404 else EnvironmentFault)(error)


async def hand_over(http: str, config: Config, call: HandoverCall, seconds: float) -> HandoverAnswer:
    """Send a handover request to the daemon at this address, which the daemon in this process will replace.

    Raises NoAnswer or CommandRefused.
    """
    sender = CommandSender(http, config.http, seconds)
    answer = await sender.send("POST", "/handover", msgspec.json.encode(call), "configure")
    if answer.status != 200:
        raise _odd(http, answer)
    return _decoded(http, answer.body, HandoverAnswer)


async def _read(http: str, config: Config, target: str, seconds: float) -> bytes:
    answer = await CommandSender(http, config.http, seconds).read(target)
    if answer.status != 200:
        raise NoAnswer(f"{http} answers with {answer.status}")
    return answer.body


def _decoded(http: str, body: bytes, kind: type[Decoded]) -> Decoded:
    try:
        return msgspec.json.decode(body, type=kind)
    except (ValueError, RecursionError) as error:
        raise NoAnswer(f"{http} does not answer: {error}") from error


def _odd(http: str, answer: HttpAnswer) -> NoAnswer:
    return NoAnswer(f"{http} answers with {answer.status}: {answer.body.decode(errors='replace')}")
