"""The bodies of requests and answers of the daemon's HTTP API."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec
from aiohttp import hdrs, web

from mirrord.daemon.http_access import Refused

HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
"""The headers of every answer."""
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
T = TypeVar("T")


class NotACommand(Exception):
    """Raised when the body of a request is not a command of this version."""


def decoded(body: bytes, kind: type[T]) -> T:
    """Return the command in the body of a request. Raises NotACommand."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise NotACommand(f"not a command of this version of mirrord: {error}") from None


def check_body(request: web.Request, longest_bytes: int) -> None:
    """Raise Refused for a body that is too long, or whose length the client does not say. A short compressed body could
    become a long one."""
    if request.headers.getall(hdrs.CONTENT_ENCODING, []):
        raise Refused(415, "a compressed body is not allowed")
    if request.headers.getall("Transfer-Encoding", []):
        raise Refused(411, "the length of the body is needed")
    if (request.content_length or 0) > longest_bytes:
        raise Refused(413, f"at most {longest_bytes} bytes are allowed")


def json_answer(value: object, status: int = 200) -> web.Response:
    """Return an answer with this value as JSON."""
    body = msgspec.json.encode(value)
    return web.Response(body=body, status=status, content_type="application/json", headers=HEADERS)


def refusal_answer(refusal: Refused) -> web.Response:
    """Return the answer to a refused request."""
    answer = json_answer({"error": str(refusal)}, status=refusal.status)
    answer.headers.update(refusal.headers)
    # The unread rest of a body must not be taken for the next request.
    answer.force_close()
    return answer


@web.middleware
async def with_json_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer a request for an unknown path or with a wrong method like any other wrong request."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        answer = json_answer({"error": error.reason}, status=error.status)
        if hdrs.ALLOW in error.headers:
            answer.headers[hdrs.ALLOW] = error.headers[hdrs.ALLOW]
        return answer
