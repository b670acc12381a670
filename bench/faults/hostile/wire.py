"""The requests that a hostile broker reads, and its answers as bytes. Pure.

Metadata is answered in versions 11 to 13, Fetch in version 13, ListOffsets in version 7. The versions that are offered
allow no others.
"""

import base64
import hashlib
import hmac
from collections.abc import Iterable, Sequence
from struct import Struct
from typing import NamedTuple

from bench.faults.hostile.rotation import API_VERSIONS, SASL_AUTHENTICATE
from mirrord.kafka.protocol.api_versions import (
    DESCRIBE_PRODUCERS,
    FETCH,
    INIT_PRODUCER_ID,
    LIST_OFFSETS,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
)
from mirrord.kafka.protocol.primitives import (
    INT16,
    INT32,
    NO_TAGS,
    NULL,
    UUID_LENGTH,
    Reader,
    compact_array,
    compact_string,
    unsigned_varint,
)

SASL_HANDSHAKE = 17
NODE = 1
END = 1 << 40
"""The end of every partition."""
EARLIEST = -2, -4
"""The log start offset, and the first local one (KIP-405). No records are in remote storage."""
_SALT, _ITERATIONS = b"salt of the bench", 4_096
_CLUSTER = "hostile-cluster-000000"
_VERSIONS: tuple[tuple[int, int, int], ...] = (
    (PRODUCE.key, PRODUCE.least, PRODUCE.greatest),
    (FETCH.key, 13, 13),
    (LIST_OFFSETS.key, 7, 7),
    (METADATA.key, METADATA.least, METADATA.greatest),
    (INIT_PRODUCER_ID.key, INIT_PRODUCER_ID.least, INIT_PRODUCER_ID.greatest),
    (OFFSET_FOR_LEADER_EPOCH.key, 4, 4),
    (DESCRIBE_PRODUCERS.key, 0, 0),
    (SASL_HANDSHAKE, 0, 1),
    (API_VERSIONS, 0, 0),
    (SASL_AUTHENTICATE, 0, 1),
)
_ABSURD: tuple[tuple[tuple[int, int, int], ...], ...] = (
    tuple((api, -32_768, 32_767) for api in range(80)),
    tuple((api, 32_767, -32_768) for api in range(80)),
    tuple((api, 30_000, 32_767) for api in range(80)),
    tuple((api % 65_536 - 32_768, 0, 100) for api in range(150_000)),
    ((API_VERSIONS, 0, 0),) * 100,
    (),
)
ABSURD_KINDS = len(_ABSURD)
_VERSION = Struct(">hhh")
_HEAD = Struct(">hhi")
_FETCH_HEAD = Struct(">iiiibii")
_FETCH_PARTITION = Struct(">iiqiqib")
_FETCHED = Struct(">ihqqqBi")
_LIST_PARTITION = Struct(">iiqb")
_LISTED = Struct(">ihqqib")
_EPOCH_PARTITION = Struct(">iiib")
_EPOCH_END = Struct(">hiiqb")
_PARTITION = Struct(">hiii")
_NO_ABORTED = 1
_WITHOUT_TAGS = frozenset({API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE})
"""APIs that are answered with header version 0."""


class Request(NamedTuple):
    """A request. `body` reads what follows the header."""

    api: int
    version: int
    correlation_id: int
    body: Reader


class Asked(NamedTuple):
    """What a Fetch or ListOffsets request asks of one partition. `topic` is the id or the name."""

    topic: bytes
    partition: int
    position: int


class Topic(NamedTuple):
    """A topic in Metadata. `name` may be any bytes."""

    name: bytes
    partitions: int
    leader: int = NODE
    error: int = 0


def request(frame: bytes) -> Request:
    """Read the header of a request. Raises WireError."""
    reader = Reader(frame)
    api, version, correlation_id = reader.unpack(_HEAD)
    reader.advance(max(reader.int16(), 0))
    if api not in _WITHOUT_TAGS:
        reader.skip_tags()
    return Request(api, version, correlation_id, reader)


def framed(asked: Request, body: bytes, *, wrong_by: int = 0) -> bytes:
    """Return the answer to a request as a frame. `wrong_by` is added to its correlation id."""
    tags = b"" if asked.api in _WITHOUT_TAGS else NO_TAGS
    head = INT32.pack((asked.correlation_id + wrong_by) % (1 << 31)) + tags
    return INT32.pack(len(head) + len(body)) + head + body


def api_versions(absurd: int | None = None) -> bytes:
    """Return ApiVersions in version 0, valid or of one of the `ABSURD_KINDS`."""
    rows = _VERSIONS if absurd is None else _ABSURD[absurd]
    return INT16.pack(0) + INT32.pack(len(rows)) + b"".join(_VERSION.pack(*row) for row in rows)


def topic_id(name: bytes) -> bytes:
    """Return the id that a topic always has."""
    return hashlib.blake2s(name, digest_size=UUID_LENGTH).digest()


def metadata(version: int, brokers: Sequence[tuple[int, int]], topics: Iterable[Topic]) -> bytes:
    """Return Metadata. `brokers` contains the number and the port of each broker, all of them at 127.0.0.1."""
    listed = (
        INT32.pack(node) + compact_string("127.0.0.1") + INT32.pack(port) + NULL + NO_TAGS for node, port in brokers
    )
    parts = [INT32.pack(0), compact_array(listed), compact_string(_CLUSTER), INT32.pack(NODE)]
    parts.append(compact_array(_topic(topic) for topic in topics))
    if version >= METADATA.greatest:
        parts.append(INT16.pack(0))
    return b"".join([*parts, NO_TAGS])


def _topic(topic: Topic) -> bytes:
    nodes = compact_array([INT32.pack(topic.leader)])
    rest = nodes + nodes + compact_array([]) + NO_TAGS
    partitions = compact_array(_PARTITION.pack(0, at, topic.leader, 0) + rest for at in range(topic.partitions))
    name = unsigned_varint(len(topic.name) + 1) + topic.name
    not_internal = b"\0"
    return (
        INT16.pack(topic.error)
        + name
        + topic_id(topic.name)
        + not_internal
        + partitions
        + INT32.pack(-(1 << 31))
        + NO_TAGS
    )


def asked_by_metadata(body: Reader) -> list[bytes] | None:
    """Return the names of the topics that a Metadata request asks for. None: all. Raises WireError."""
    if (count := body.unsigned_varint()) == 0:
        return None
    names: list[bytes] = []
    for _ in range(count - 1):
        body.advance(UUID_LENGTH)
        names.append((body.compact_nullable_string() or "").encode())
        body.skip_tags()
    return names


def asked_by_fetch(body: Reader) -> tuple[float, list[Asked]]:
    """Return for how many seconds a Fetch of version 13 wants to wait, and its partitions. Raises WireError."""
    _, wait_ms, *_ = body.unpack(_FETCH_HEAD)
    found: list[Asked] = []
    for _ in range(body.compact_count()):
        start = body.advance(UUID_LENGTH)
        topic = bytes(body.buffer[start : start + UUID_LENGTH])
        for _ in range(body.compact_count()):
            partition, _, offset, *_ = body.unpack(_FETCH_PARTITION)
            found.append(Asked(topic, partition, offset))
        body.skip_tags()
    return wait_ms / 1_000, found


def fetched(answers: Iterable[tuple[Asked, bytes, int]]) -> bytes:
    """Return a Fetch answer without a session: the records of each partition, and by how many bytes their announced
    length is longer."""
    topics = (
        asked.topic
        + compact_array(
            [
                _FETCHED.pack(asked.partition, 0, END, END, 0, _NO_ABORTED, -1)
                + unsigned_varint(len(records) + 1 + longer)
                + records
                + NO_TAGS
            ]
        )
        + NO_TAGS
        for asked, records, longer in answers
    )
    return INT32.pack(0) + INT16.pack(0) + INT32.pack(0) + compact_array(topics) + NO_TAGS


def asked_by_list_offsets(body: Reader) -> list[Asked]:
    """Return the partitions of a ListOffsets request, with the times that it asks for. Raises WireError."""
    body.unpack(Struct(">ib"))
    return _asked(body, _LIST_PARTITION)


def listed(asked: Iterable[Asked]) -> bytes:
    """Return the answer: the first offset is 0, and all others are at the end."""
    return _by_topic(
        (each, _LISTED.pack(each.partition, 0, -1, 0 if each.position in EARLIEST else END, 0, 0)) for each in asked
    )


def asked_by_epoch_ends(body: Reader) -> list[Asked]:
    """Return the partitions of an OffsetForLeaderEpoch request. Raises WireError."""
    body.int32()
    return _asked(body, _EPOCH_PARTITION)


def epoch_ends(asked: Iterable[Asked]) -> bytes:
    """Return the answer: epoch 0 ends at the end."""
    return _by_topic((each, _EPOCH_END.pack(0, each.partition, 0, END, 0)) for each in asked)


def _asked(body: Reader, layout: Struct) -> list[Asked]:
    found: list[Asked] = []
    for _ in range(body.compact_count()):
        topic = body.compact_string().encode()
        for _ in range(body.compact_count()):
            partition, _, position, _ = body.unpack(layout)
            found.append(Asked(topic, partition, position))
        body.skip_tags()
    return found


def _by_topic(answers: Iterable[tuple[Asked, bytes]]) -> bytes:
    topics = (
        unsigned_varint(len(asked.topic) + 1) + asked.topic + compact_array([answer]) + NO_TAGS
        for asked, answer in answers
    )
    return INT32.pack(0) + compact_array(topics) + NO_TAGS


def sasl_handshake(mechanism: str) -> bytes:
    """Return the answer that offers this mechanism."""
    return INT16.pack(0) + INT32.pack(1) + INT16.pack(len(mechanism)) + mechanism.encode()


def sasl_authenticated(version: int, token: bytes) -> bytes:
    """Return a successful answer with this message of the mechanism."""
    lifetime = bytes(8) if version else b""
    return INT16.pack(0) + INT16.pack(-1) + INT32.pack(len(token)) + token + lifetime


def scram_challenge(attack: str, client_first: bytes) -> bytes:
    """Return the server's first message of SCRAM (RFC 5802) to the client's first message. It is valid if the attack is
    none of those that change it."""
    ours, salt, iterations = nonce(client_first) + b"server", base64.b64encode(_SALT), b"%d" % _ITERATIONS
    match attack:
        case "1 iteration":
            iterations = b"1"
        case "10^9 iterations":
            iterations = b"1000000000"
        case "nonce of another client":
            ours = b"anotherclientserver"
        case "empty salt":
            salt = b""
        case _:
            pass
    return b"r=" + ours + b",s=" + salt + b",i=" + iterations


def nonce(message: bytes) -> bytes:
    """Return the nonce of a message of SCRAM."""
    return message.partition(b"r=")[2].partition(b",")[0]


def scram_signature(password: bytes, client_first: bytes, challenge: bytes, client_final: bytes) -> bytes:
    """Return the server's last message, which proves to the client that the server knows the password."""
    salted = hashlib.pbkdf2_hmac("sha256", password, _SALT, _ITERATIONS)
    bare, without_proof = client_first.partition(b",,")[2], client_final.partition(b",p=")[0]
    key = hmac.digest(salted, b"Server Key", "sha256")
    signature = hmac.digest(key, b",".join((bare, challenge, without_proof)), "sha256")
    return b"v=" + base64.b64encode(signature)
