"""The proof with which a client shows that it knows a token, without sending the token.

The daemon issues a nonce. The client computes an HMAC over the nonce and over the request: the address, the method, the
path, and the digest of the body. A proof is therefore useless for any other request, for any other daemon, and for a
second request.
"""

import hashlib
import hmac
import re

import msgspec

SCHEME = "Mirrord"
LONGEST_HEADER = 512
_LABEL = b"mirrord command 1"
_HEADER = re.compile(
    rf"{SCHEME} name=(?P<name>[A-Za-z0-9_-]{{1,64}}), nonce=(?P<nonce>[A-Za-z0-9._-]{{1,200}}), "
    r"body=(?P<body>[0-9a-f]{64}), proof=(?P<proof>[0-9a-f]{64})",
    re.ASCII,
)


class RequestLine(msgspec.Struct, frozen=True):
    """The part of a request that a proof covers, in addition to the nonce and the body."""

    authority: str
    """Host and port, as in the header Host."""
    method: str
    target: str
    """Path and query, exactly as they are sent."""


class CommandProof(msgspec.Struct, frozen=True):
    """A proof, as in the header Authorization."""

    name: str
    """The name of the token that the client claims to know."""
    nonce: str
    body: str
    """The SHA-256 digest of the body."""
    proof: str

    def header(self) -> str:
        """Return the value of the header."""
        return f"{SCHEME} name={self.name}, nonce={self.nonce}, body={self.body}, proof={self.proof}"

    def is_of(self, token: str, line: RequestLine) -> bool:
        """Return whether only a client that knows the token could have made this proof for this request."""
        return hmac.compare_digest(self.proof, _compute(token, self.nonce, self.body, line))


def prove(name: str, token: str, nonce: str, line: RequestLine, body: bytes) -> CommandProof:
    """Return the proof for one request."""
    digest = hashlib.sha256(body).hexdigest()
    return CommandProof(name, nonce, digest, _compute(token, nonce, digest, line))


def parse_proof(header: str) -> CommandProof | None:
    """Return the proof in this header, or None if there is none."""
    if len(header) > LONGEST_HEADER or (found := _HEADER.fullmatch(header)) is None:
        return None
    return CommandProof(found["name"], found["nonce"], found["body"], found["proof"])


def _compute(token: str, nonce: str, body: str, line: RequestLine) -> str:
    parts = (nonce, line.authority.lower(), line.method, line.target, body)
    # Each part is preceded by its length, so that no two requests have the same text.
    text = b"".join(b"%d:%b" % (len(part), part) for part in (_LABEL, *(part.encode() for part in parts)))
    return hmac.new(token.encode(), text, hashlib.sha256).hexdigest()
