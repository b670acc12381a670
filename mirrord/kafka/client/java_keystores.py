"""Reads Java key stores (JKS and PKCS12), and returns their contents as PEM text for Python's `ssl` module.

The `cryptography` package reads PKCS12. This module itself implements the necessary parts of JKS. A JKS file contains
certificates in DER, and keys that are encrypted with a cipher that only Java uses (JavaKeyStore and KeyProtector in
sun.security.provider). As in Java, the format is recognized by the file's content, not by its name. No secret is
written to disk.
"""

import base64
import hashlib
import hmac
import ssl
import struct

import msgspec

from mirrord.config.property_providers import read_bytes
from mirrord.model.errors import EnvironmentFault

_JKS = b"\xfe\xed\xfe\xed"
_JCEKS = b"\xce\xce\xce\xce"
_DER_SEQUENCE = 0x30
_DER_OCTETS = 0x04
_SALT = _CHECK = 20
"""Lengths of the salt and of the SHA-1 digest, in bytes. A JKS file stores a key as salt, ciphertext and digest."""
_WHITENER = b"Mighty Aphrodite"


class Store(msgspec.Struct, frozen=True):
    """The contents of a key store, as PEM. `key` and its `chain` are empty if there is no private key."""

    authorities: str
    """The trusted certificates."""
    chain: str = ""
    key: str = ""

    def __repr__(self) -> str:
        return "Store(***)"

    __str__ = __repr__


class _Broken(Exception):
    """Raised when the store cannot be read. The text of the exception says why."""


def read_store(path: str, password: str | None, key_password: str | None = None) -> Store:
    """Read a key store from a file. If no password is given, only the certificates of a JKS store are read, and the
    digest of the store is not checked.

    Raises EnvironmentFault if the file is missing or is not a key store, or if a password is wrong.
    """
    data = read_bytes(path)
    try:
        if data.startswith(_JKS):
            return _jks(data, password, key_password)
        if data[:1] == bytes([_DER_SEQUENCE]):
            return _pkcs12(data, password)
    except _Broken as fault:
        raise EnvironmentFault(f"the key store {path} cannot be read: {fault}") from None
    kind = "a JCEKS store" if data.startswith(_JCEKS) else "neither a JKS nor a PKCS12 store"
    raise EnvironmentFault(f"{path} is {kind}; `keytool -importkeystore -deststoretype PKCS12` makes one")


def _pkcs12(data: bytes, password: str | None) -> Store:
    # `cryptography` is imported here, because the import is slow and only PKCS12 needs it.
    from cryptography.hazmat.primitives import serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.serialization import pkcs12  # noqa: PLC0415

    try:
        store = pkcs12.load_pkcs12(data, password.encode() if password else None)
    except (ValueError, TypeError):
        raise _Broken("its password is wrong, or it is damaged") from None
    others = [each.certificate.public_bytes(serialization.Encoding.PEM).decode() for each in store.additional_certs]
    if store.key is None:
        own = [store.cert.certificate.public_bytes(serialization.Encoding.PEM).decode()] if store.cert else []
        return Store(authorities="".join([*own, *others]))
    if store.cert is None:
        raise _Broken("it holds a key, but not the certificate for it")
    key = store.key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    own_certificate = store.cert.certificate.public_bytes(serialization.Encoding.PEM).decode()
    return Store(authorities="".join(others), chain="".join([own_certificate, *others]), key=key.decode())


def _jks(data: bytes, password: str | None, key_password: str | None) -> Store:
    if password is not None and not _is_whole(data, password):
        raise _Broken("its password is wrong, or it is damaged")
    reader = _Reader(data, 4)
    version, count = reader.number(">I"), reader.number(">I")
    if version not in {1, 2}:
        raise _Broken(f"JKS of version {version} is not known")
    authorities: list[str] = []
    chain = key = ""
    for _ in range(count):
        tag = reader.number(">I")
        reader.text()  # the alias
        reader.take(8)  # the creation time
        if tag == 2:
            authorities.append(_certificate(reader, version))
            continue
        if tag != 1:
            raise _Broken(f"an entry of kind {tag}")
        protected = reader.block()
        certificates = [_certificate(reader, version) for _ in range(reader.number(">I"))]
        # As in Java, only one key is used. If there are several keys, Java does not guarantee which one it uses.
        if not key and password is not None:
            key = _pem_key(_unprotect(_octets(protected), key_password or password))
            chain = "".join(certificates)
    return Store("".join(authorities), chain, key)


def _is_whole(data: bytes, password: str) -> bool:
    digest = hashlib.sha1(password.encode("utf-16-be") + _WHITENER + data[:-20], usedforsecurity=False).digest()
    return hmac.compare_digest(digest, data[-20:])


def _certificate(reader: "_Reader", version: int) -> str:
    if version == 2:
        reader.text()  # "X.509"
    return ssl.DER_cert_to_PEM_cert(reader.block())


def _unprotect(data: bytes, password: str) -> bytes:
    """Return the decrypted PKCS8 key. The ciphertext is XORed with a sequence of SHA-1 digests.

    The first digest is computed over the password and the salt, and each subsequent digest over the password and the
    preceding digest.
    """
    secret = password.encode("utf-16-be")
    block, cipher, check = data[:_SALT], data[_SALT:-_CHECK], data[-_CHECK:]
    stream = b""
    while len(stream) < len(cipher):
        block = hashlib.sha1(secret + block, usedforsecurity=False).digest()
        stream += block
    plain = bytes(one ^ other for one, other in zip(cipher, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + plain, usedforsecurity=False).digest(), check):
        raise _Broken("the password of its key is wrong")
    return plain


def _pem_key(der: bytes) -> str:
    body = base64.encodebytes(der).decode()
    return f"-----BEGIN PRIVATE KEY-----\n{body}-----END PRIVATE KEY-----\n"


def _octets(der: bytes) -> bytes:
    """Return the octet string of an EncryptedPrivateKeyInfo in DER: SEQUENCE { AlgorithmIdentifier, OCTET STRING }."""
    outer = _Reader(_Reader(der, 0).element(_DER_SEQUENCE), 0)
    outer.element(_DER_SEQUENCE)
    return outer.element(_DER_OCTETS)


class _Reader:
    """Reads consecutive numbers, strings, blocks and DER elements from bytes. Raises _Broken if the bytes end too
    early."""

    def __init__(self, data: bytes, position: int) -> None:
        self._data = data
        self._position = position

    def take(self, length: int) -> bytes:
        end = self._position + length
        if end > len(self._data):
            raise _Broken("it is truncated")
        part = self._data[self._position : end]
        self._position = end
        return part

    def number(self, form: str) -> int:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def text(self) -> bytes:
        return self.take(self.number(">H"))

    def block(self) -> bytes:
        return self.take(self.number(">I"))

    def element(self, tag: int) -> bytes:
        """Read a DER element with this tag and return its content."""
        if self.number("B") != tag:
            raise _Broken("a key is malformed")
        length = self.number("B")
        if length & 0x80:
            length = int.from_bytes(self.take(length & 0x7F), "big")
        return self.take(length)
