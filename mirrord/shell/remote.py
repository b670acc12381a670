"""What another process asks of a running daemon, by its HTTP door."""

import aiohttp

from mirrord.model.config import Config
from mirrord.model.errors import EnvironmentFault
from mirrord.model.status import Status

ANSWER_S = 2.0


class NoAnswer(EnvironmentFault):
    """Nobody answers at a daemon's address, or somebody else does."""


class Refused(EnvironmentFault):
    """The daemon does not take this order from us."""


async def ask_status(http: str) -> Status:
    """The status of the daemon at this address. Raises NoAnswer."""
    try:
        async with _session() as session, session.get(f"{http}/status") as response:
            if response.status != 200:
                raise NoAnswer(f"{http} answers with {response.status}")
            return Status.decode(await response.read())
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise NoAnswer(f"{http} does not answer: {_reason(error)}") from error


async def order_stop(http: str, config: Config) -> None:
    """Let the daemon at this address drain and end. Raises NoAnswer, Refused."""
    token = config.http.token
    headers = {"Authorization": f"Bearer {token.resolve()}"} if token else {}
    try:
        async with _session() as session, session.post(f"{http}/stop", headers=headers) as response:
            if response.status == 403:
                raise Refused(f"{http} takes orders from its own machine, or with the token of [http] token")
            if response.status != 202:
                raise NoAnswer(f"{http} answers with {response.status}")
    except (TimeoutError, aiohttp.ClientError) as error:
        raise NoAnswer(f"{http} does not answer: {_reason(error)}") from error


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=ANSWER_S))


def _reason(error: Exception) -> str:
    return str(error) or f"nothing within {ANSWER_S:g} s"
