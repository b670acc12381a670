"""Provides OAUTHBEARER tokens. There are three kinds: configured tokens, tokens from a token endpoint, and unsigned
tokens for brokers that require no signature."""

# pyright: reportMissingTypeStubs=false

import base64
import json
import math
import ssl
import time
from collections.abc import Callable
from typing import cast

from aiokafka.abc import AbstractTokenProvider

from mirrord.config.security import Security
from mirrord.model.errors import EnvironmentFault
from mirrord.model.known_secrets import remember

FETCH_S = 8.0
"""Time limit for a request to the token endpoint, in seconds. This limit is shorter than the 10 s within which a
connection must be opened."""
LONGEST_BYTES = 1 << 20
"""Maximum size of an answer of the token endpoint."""
_KEPT_SHARE = 0.8
"""A token is reused for additional connections until this share of its lifetime has passed."""
_UNSIGNED_S = 3_600

_kept: dict[tuple[str, str, str], tuple[str, float]] = {}
"""Tokens by token endpoint, client id and scope, each with the monotonic time until which it is used."""


def token_provider(security: Security, context: Callable[[], ssl.SSLContext]) -> AbstractTokenProvider:
    """Return the object that aiokafka asks for a token each time it opens a connection (KIP-255). `context` returns the
    TLS context for requests to the token endpoint."""
    return _Token(security, context)


class _Token(AbstractTokenProvider):
    def __init__(self, security: Security, context: Callable[[], ssl.SSLContext]) -> None:
        self._security = security
        self._context = context

    async def token(self) -> str:  # pyright: ignore[reportIncompatibleMethodOverride] - the base has no body
        """Return a token for the configured credentials. Raises EnvironmentFault if the token endpoint returns none."""
        security = self._security
        if security.unsigned:
            return unsigned_token(security.username or "", time.time())
        if security.token_url is not None:
            return await _granted(security, security.token_url, self._context)
        return security.password.resolve() if security.password else ""


def unsigned_token(subject: str, now: float) -> str:
    """Return an unsigned token like those that Kafka's OAuthBearerUnsecuredLoginCallbackHandler creates. `now` is in
    seconds since 1970."""
    # The time is rounded down to whole milliseconds, because brokers count in milliseconds. Otherwise, a broker could
    # refuse the token because its time of issue would seem to be in the future.
    issued = int(now * 1000) / 1000
    claims: dict[str, object] = {"sub": subject, "iat": issued, "exp": issued + _UNSIGNED_S}
    return f"{_part({'alg': 'none'})}.{_part(claims)}."


def _part(content: dict[str, object]) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


async def _granted(security: Security, url: str, context: Callable[[], ssl.SSLContext]) -> str:
    """Return a token from the token endpoint at `url`, obtained with OAuth's client credentials grant (RFC 6749
    §4.4)."""
    import aiohttp  # noqa: PLC0415 - it would be a third of all code that a process loads, and few processes need it

    key = (url, security.username or "", security.scope or "")
    token, until = _kept.get(key, ("", 0.0))
    if time.monotonic() < until:
        return token
    form = {"grant_type": "client_credentials"} | ({"scope": security.scope} if security.scope else {})
    secret = security.password.resolve() if security.password else ""
    proof = base64.b64encode(f"{security.username or ''}:{secret}".encode()).decode()
    encryption = context() if url.startswith("https:") else True
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=FETCH_S)) as session,
            session.post(url, data=form, headers={"Authorization": f"Basic {proof}"}, ssl=encryption) as answer,
        ):
            if answer.status != 200:
                raise EnvironmentFault(f"{url} gives {security.username!r} no token: {answer.status} {answer.reason}")
            body = bytearray()
            async for piece in answer.content.iter_any():
                body += piece
                if len(body) > LONGEST_BYTES:
                    raise EnvironmentFault(f"{url} answers with more than {LONGEST_BYTES} bytes")
            document = cast(object, json.loads(body))
    except (aiohttp.ClientError, TimeoutError, ValueError, RecursionError) as error:
        # The text of aiohttp's own errors contains the TLS context.
        cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
        raise EnvironmentFault(f"{url} did not issue a token: {str(cause) or type(error).__name__}") from None
    fields = cast(dict[str, object], document) if isinstance(document, dict) else {}
    token, lifetime = fields.get("access_token"), fields.get("expires_in")
    if not isinstance(token, str) or not token:
        raise EnvironmentFault(f"{url} answered without an access_token")
    remember(token)
    if isinstance(lifetime, int | float) and math.isfinite(lifetime):
        _kept[key] = (token, time.monotonic() + lifetime * _KEPT_SHARE)
    return token
