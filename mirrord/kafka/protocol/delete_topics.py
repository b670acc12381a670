"""Encodes and decodes DeleteTopics (API 20, version 6), which deletes topics by id."""

from collections.abc import Iterable

from mirrord.kafka.protocol.primitives import (
    INT32,
    NO_TAGS,
    Reader,
    compact_array,
    compact_nullable_string,
    uuid_bytes,
)


def encode_delete_topics(ids: Iterable[str], timeout_ms: int) -> bytes:
    """Encode the body of a DeleteTopics request. The request identifies topics by id. If it identified them by name, it
    could delete a newer topic with the same name."""
    topics = (compact_nullable_string(None) + uuid_bytes(topic_id) + NO_TAGS for topic_id in ids)
    return compact_array(topics) + INT32.pack(timeout_ms) + NO_TAGS


def decode_delete_topics(reader: Reader) -> dict[str, tuple[int, str | None]]:
    """Return the error code and the message for each topic id in a DeleteTopics response. Raises WireError."""
    reader.int32()  # throttle time
    answers = dict(reader.compact_array(_deleted))
    reader.skip_tags()
    reader.expect_end()
    return answers


def _deleted(reader: Reader) -> tuple[str, tuple[int, str | None]]:
    reader.compact_nullable_string()  # name
    topic_id = reader.uuid()
    answer = topic_id, (reader.int16(), reader.compact_nullable_string())
    reader.skip_tags()
    return answer
