"""The nonces that a daemon issues. Each nonce is valid for one proof, and only for a short time."""

import hashlib
import hmac
import secrets

from mirrord.runtime.clock import Clock

VALID_S = 30.0
MOST_SPENT = 10_000
"""Maximum number of spent nonces that are remembered. Only clients that know a token spend nonces."""


class Challenges:
    """Issues nonces and remembers which ones have been spent.

    A nonce contains the time at which it expires, and a code that only this process can compute. Issued nonces are
    therefore not stored, so requests for nonces cannot use up memory or displace the nonces of other clients.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._key = secrets.token_bytes(32)
        self._spent: dict[str, float] = {}
        """The spent nonces that are still valid, and the times at which they expire, in the order of spending."""

    def issue(self) -> str:
        """Return a new nonce."""
        text = f"{int((self._clock.monotonic() + VALID_S) * 1000)}.{secrets.token_hex(16)}"
        return f"{text}.{self._code(text)}"

    def spend(self, nonce: str) -> bool:
        """Return whether the nonce is valid, and make it invalid. Call this only after the proof has been checked."""
        text, _, code = nonce.rpartition(".")
        if not hmac.compare_digest(code.encode(), self._code(text).encode()):
            return False
        expires = int(text.partition(".")[0]) / 1000
        now = self._clock.monotonic()
        for spent in [each for each, end in self._spent.items() if end <= now]:
            del self._spent[spent]
        if expires <= now or nonce in self._spent or len(self._spent) >= MOST_SPENT:
            return False
        self._spent[nonce] = expires
        return True

    def _code(self, text: str) -> str:
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()
