"""The nonces that a daemon issues. Each nonce is valid for one proof, and only for a short time."""

import hashlib
import hmac
import secrets

from mirrord.runtime.clock import Clock

VALID_S = 30.0
MOST_SPENT = 10_000
"""Maximum number of spent nonces that are remembered for each token. Only clients that know a token spend nonces, and a
client must not use up the nonces of clients with other tokens."""


class Challenges:
    """Issues nonces and remembers which ones have been spent.

    A nonce contains the time at which it expires, and a code that only this process can compute. Issued nonces are
    therefore not stored, so requests for nonces cannot use up memory or displace the nonces of other clients.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._spent: dict[str, dict[str, float]] = {}
        """By the name of the token, the spent nonces that are still valid, and the times at which they expire."""

    def issue(self) -> str:
        """Return a new nonce."""
        text = f"{int((self._clock.monotonic() + VALID_S) * 1000)}.{secrets.token_hex(16)}"
        return f"{text}.{self._code(text)}"

    def spend(self, nonce: str, token: str) -> bool:
        """Return whether the nonce is valid, and make it invalid. `token` is the name of the token that the client has
        proved. Call this only after the proof has been checked."""
        text, _, code = nonce.rpartition(".")
        if not hmac.compare_digest(code.encode(), self._code(text).encode()):
            return False
        expires = int(text.partition(".")[0]) / 1000
        now = self._clock.monotonic()
        for name, nonces in self._spent.items():
            self._spent[name] = {each: end for each, end in nonces.items() if end > now}
        own = self._spent.setdefault(token, {})
        if expires <= now or any(nonce in nonces for nonces in self._spent.values()) or len(own) >= MOST_SPENT:
            return False
        own[nonce] = expires
        return True

    def _code(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()
