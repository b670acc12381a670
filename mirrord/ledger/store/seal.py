"""Signs the records of a ledger, and checks signatures.

A signed record is the byte `SIGNED`, followed by a msgpack array: the id of the key, an HMAC-SHA256, and the record
without the signature. The HMAC covers the name and the id of the ledger topic for entries, and the name of the state
topic and the key for records of the state topic, so a record is valid only at its own place. Records of the state topic
are not bound to the id of a topic, because they have to show that the ledger topic was created again.

Versions of mirrord without signatures refuse `SIGNED` as an unknown version.
"""

import hashlib
import hmac
from collections.abc import Sequence

import msgspec

from mirrord.ledger.codec import SIGNED, is_framed
from mirrord.ledger.errors import NotOurs, NotSigned, SignedLedger, UnknownKey

LEAST_KEY = 16
"""Least number of characters of a key."""
_CONTEXT = b"mirrord ledger 1"
_KEY_ID = b"mirrord ledger key id"
ID_BYTES = 8
NOT_SIGNED = "a record has no signature, although a key is configured; `mirrord ledger sign` signs the ledger as it is"


class _Envelope(msgspec.Struct, frozen=True, array_like=True):
    key_id: bytes
    code: bytes
    record: bytes


_encode = msgspec.msgpack.Encoder().encode
_envelopes = msgspec.msgpack.Decoder(_Envelope)


class SigningKey:
    """A key, and the id by which a signature names it."""

    def __init__(self, secret: str) -> None:
        """Raises ValueError if the secret is too short."""
        if len(secret) < LEAST_KEY:
            raise ValueError(f"it has less than {LEAST_KEY} characters")
        self._secret = secret.encode()
        self.id = self.code(_KEY_ID)[:ID_BYTES]

    def code(self, message: bytes) -> bytes:
        """Return the HMAC of a message."""
        return hmac.digest(self._secret, message, hashlib.sha256)


class Seal:
    """Signs and checks the records of one ledger. Without a key, it changes nothing, and refuses signed records."""

    def __init__(self, ledger: str, state: str, keys: Sequence[SigningKey] = (), *, adopts: bool = False) -> None:
        """`ledger` and `state` are the names of the topics. The first of the keys signs. `adopts` means that records
        without a signature are accepted, because an operator vouches for them."""
        self._ledger = ledger
        self._state = state
        self._signer = keys[0] if keys else None
        self._keys = {key.id: key for key in keys}
        self.adopts = adopts
        self.topic_id = ""
        """The id of the ledger topic. It must be set before entries are signed or checked."""

    @property
    def is_used(self) -> bool:
        """Whether records are signed."""
        return self._signer is not None

    def sign_entry(self, data: bytes) -> bytes:
        """Return an entry with its signature."""
        return self._sign(self._of_entry(), data)

    def sign_row(self, key: str, data: bytes) -> bytes:
        """Return a record of the state topic with its signature."""
        return self._sign(self._of_row(key), data)

    def entry(self, data: bytes | None) -> bytes | None:
        """Return an entry without its signature. Raises NotSigned if it has none, NotOurs if the signature is wrong,
        UnknownKey if its key is not configured, and SignedLedger if no key is configured."""
        return self._check(self._of_entry(), data)

    def row(self, key: str, data: bytes) -> bytes:
        """Return a record of the state topic without its signature. Raises the same errors as `entry`."""
        return self._check(self._of_row(key), data) or b""

    def _sign(self, context: bytes, data: bytes) -> bytes:
        if self._signer is None:
            return data
        return bytes([SIGNED]) + _encode(_Envelope(self._signer.id, self._signer.code(context + data), data))

    def _check(self, context: bytes, data: bytes | None) -> bytes | None:
        if not data or not is_framed(data):
            return data
        if data[0] != SIGNED:
            if self._signer is not None and not self.adopts:
                raise NotSigned(NOT_SIGNED)
            return data
        if self._signer is None:
            raise SignedLedger("this ledger is signed, but `key` in [ledger] is not set, or the flow is in `unsigned`")
        try:
            envelope = _envelopes.decode(memoryview(data)[1:])
        except (msgspec.DecodeError, ValueError, RecursionError):
            raise NotOurs("a record has a malformed signature") from None
        key = self._keys.get(envelope.key_id)
        if key is None:
            shown = envelope.key_id[:ID_BYTES].hex()
            raise UnknownKey(f"a record is signed with a key that is not configured (id {shown}): add it to `keys`")
        if not hmac.compare_digest(key.code(context + envelope.record), envelope.code):
            raise NotOurs("a record has a wrong signature")
        return envelope.record

    def _of_entry(self) -> bytes:
        return _joined(_CONTEXT, b"entry", self._ledger.encode(), self.topic_id.encode())

    def _of_row(self, key: str) -> bytes:
        return _joined(_CONTEXT, b"row", self._state.encode(), key.encode())


NO_SEAL = Seal("", "")


def _joined(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(4) + part for part in parts)
