"""Provides OAUTHBEARER tokens: configured ones, tokens from a token endpoint, or unsigned ones for brokers that require
no signature."""

# pyright: reportMissingTypeStubs=false

import base64
import json
import time
from typing import cast

from aiokafka.abc import AbstractTokenProvider

from mirrord.config.security import Security
from mirrord.model.errors import EnvironmentFault

FETCH_S = 8.0
"""Time limit for a request to the token endpoint, in seconds. Opening a connection may take 10 s in total."""
_KEPT_SHARE = 0.8
"""Share of its lifetime during which a token is used for further connections."""
_UNSIGNED_S = 3_600

_kept: dict[tuple[str, str, str], tuple[str, float]] = {}
"""Tokens by token endpoint, client and scope, with the time until which they are used (monotonic)."""


def token_provider(security: Security) -> AbstractTokenProvider:
    """Return the provider that aiokafka asks for a token at every connection (KIP-255)."""
    return _Token(security)


class _Token(AbstractTokenProvider):
    def __init__(self, security: Security) -> None:
        self._security = security

    async def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride] - the base has no body
        """Return a token. Raises EnvironmentFault."""
        security = self._security
        if security.unsigned:
            return unsigned_token(security.username or "", time.time())
        if security.token_url is not None:
            return await _granted(security, security.token_url)
        return security.password.resolve() if security.password else ""


def unsigned_token(subject: str, now: float) -> str:
    """Return an unsigned token as OAuthBearerUnsecuredLoginCallbackHandler makes it. `now` is in epoch seconds."""
    # The time is rounded down to whole milliseconds, because brokers count in milliseconds. Otherwise a broker could
    # refuse the token because its time of issue seems to lie in the future.
    issued = int(now * 1000) / 1000
    claims: dict[str, object] = {"sub": subject, "iat": issued, "exp": issued + _UNSIGNED_S}
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def _part(content: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


async def _granted(security: Security, url: str) -> str:
    """Return a token from OAuth's client credentials grant (RFC 6749 §4.4)."""
    import aiohttp  # noqa: PLC0415 - a third of all that a process would load, and few need it

    key = (url, security.username or "", security.scope or "")
    token, until = _kept.get(key, ("", 0.0))
    if time.monotonic() < until:
        return token
    form = {"grant_type": "client_credentials"} | ({"scope": security.scope} if security.scope else {})
    secret = security.password.resolve() if security.password else ""
    proof = base64.b64encode(f"{security.username or ''}:{secret}".encode()).decode()
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=FETCH_S)) as session,
            session.post(url, data=form, headers={"Authorization": f"Basic {proof}"}) as answer,
        ):
            if answer.status != 200:
                raise EnvironmentFault(f"{url} gives {security.username!r} no token: {answer.status} {answer.reason}")
            document = cast(object, await answer.json(content_type=None))
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        raise EnvironmentFault(f"{url} gives no token: {error or type(error).__name__}") from None
    fields = cast(dict[str, object], document) if isinstance(document, dict) else {}
    token, lifetime = fields.get("access_token"), fields.get("expires_in")
    if not isinstance(token, str) or not token:
        raise EnvironmentFault(f"{url} answers without an access_token")
    if isinstance(lifetime, int | float):
        _kept[key] = (token, time.monotonic() + lifetime * _KEPT_SHARE)
    return token
