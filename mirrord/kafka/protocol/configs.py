"""Encodes and decodes DescribeConfigs (API 32, version 4) and IncrementalAlterConfigs (API 44, version 1; KIP-339), for
topic configs.

Kafka's older AlterConfigs is not used, because it resets every config that the request does not contain.
"""

from collections.abc import Iterable, Mapping
from struct import Struct

import msgspec

from mirrord.kafka.protocol.primitives import (
    INT8,
    NO_TAGS,
    NULL,
    Reader,
    compact_array,
    compact_nullable_string,
    compact_string,
)

_TOPIC = INT8.pack(2)
"""The code of ConfigResource.Type.TOPIC (org.apache.kafka.common.config)."""
_FALSE, _TRUE = b"\x00", b"\x01"
_OF_TOPIC = 1
"""The protocol's code for ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG (org.apache.kafka.clients.admin)."""
_SET, _DELETE = INT8.pack(0), INT8.pack(1)
_SHARED = 16
"""Maximum number of different sets of configs that are cached while a response is decoded."""
# The fields are: read-only, source, sensitive.
_FLAGS = Struct(">?b?")


class Setting(msgspec.Struct, frozen=True):
    """The effective value of one config of a topic."""

    value: str | None
    """None if the config has no value, or if the broker hides the value because it is sensitive."""
    own: bool
    """Whether the value is set on the topic itself. Otherwise the value comes from the brokers' configs or is Kafka's
    default."""
    fixed: bool = False
    """Whether the config is read-only."""
    sensitive: bool = False


class TopicSettings(msgspec.Struct, frozen=True):
    """All configs of a topic by name, or the error that explains why they cannot be read."""

    topic: str
    error: int
    message: str | None
    settings: dict[str, Setting]


class AlteredTopic(msgspec.Struct, frozen=True):
    """The result of an IncrementalAlterConfigs request for one topic. If there is an error, none of the changes was
    applied."""

    topic: str
    error: int
    message: str | None


def encode_describe(topics: Iterable[str]) -> bytes:
    """Encode the body of a DescribeConfigs request for all configs of these topics."""
    all_names = NULL
    wanted = compact_array(_TOPIC + compact_string(topic) + all_names + NO_TAGS for topic in topics)
    synonyms = documentation = _FALSE
    return wanted + synonyms + documentation + NO_TAGS


def decode_describe(reader: Reader) -> list[TopicSettings]:
    """Decode a DescribeConfigs response. Topics with the same configs share one dictionary. Raises WireError."""
    reader.int32()  # throttle time
    shared: list[tuple[bytes, dict[str, Setting]]] = []
    answers = reader.compact_array(lambda topic: _topic_settings(topic, shared))
    reader.skip_tags()
    reader.expect_end()
    return answers


def encode_alter(changes: Mapping[str, Mapping[str, str | None]], *, validate_only: bool = False) -> bytes:
    """Encode the body of an IncrementalAlterConfigs request. The value None removes a config from the topic."""
    topics = (
        _TOPIC + compact_string(topic) + compact_array(map(_change, settings, settings.values())) + NO_TAGS
        for topic, settings in changes.items()
    )
    return compact_array(topics) + (_TRUE if validate_only else _FALSE) + NO_TAGS


def decode_alter(reader: Reader) -> list[AlteredTopic]:
    """Decode an IncrementalAlterConfigs response. Raises WireError."""
    reader.int32()  # throttle time
    answers = reader.compact_array(_altered)
    reader.skip_tags()
    reader.expect_end()
    return answers


def _change(name: str, value: str | None) -> bytes:
    return compact_string(name) + (_DELETE if value is None else _SET) + compact_nullable_string(value) + NO_TAGS


def _topic_settings(reader: Reader, shared: list[tuple[bytes, dict[str, Setting]]]) -> TopicSettings:
    error, message = reader.int16(), reader.compact_nullable_string()
    reader.int8()  # type
    topic = reader.compact_string()
    answer = TopicSettings(topic, error, message, _settings(reader, shared))
    reader.skip_tags()
    return answer


def _settings(reader: Reader, shared: list[tuple[bytes, dict[str, Setting]]]) -> dict[str, Setting]:
    """Decode the configs of one topic. If the bytes equal those of an earlier topic, return the decoded configs of that
    topic.

    Most topics have the same configs as another topic, and comparing bytes is much faster than decoding. An encoded
    array contains the lengths of all its parts, so the encoding itself determines where the array ends. Therefore it is
    enough to check whether the unread bytes begin with the encoded array of an earlier topic.
    """
    start = reader.position
    for encoded, settings in shared:
        end = start + len(encoded)
        if end <= reader.end and reader.buffer[start:end] == encoded:
            reader.advance(len(encoded))
            return settings
    settings = dict(reader.compact_array(_setting))
    shared.append((bytes(reader.buffer[start : reader.position]), settings))
    del shared[:-_SHARED]
    return settings


def _setting(reader: Reader) -> tuple[str, Setting]:
    name, value = reader.compact_string(), reader.compact_nullable_string()
    fixed, source, sensitive = reader.unpack(_FLAGS)
    for _ in range(reader.compact_count()):  # synonyms
        reader.compact_string()
        reader.compact_nullable_string()
        reader.int8()
        reader.skip_tags()
    reader.int8()  # type
    reader.compact_nullable_string()  # documentation
    reader.skip_tags()
    return name, Setting(value, source == _OF_TOPIC, fixed, sensitive)


def _altered(reader: Reader) -> AlteredTopic:
    error, message = reader.int16(), reader.compact_nullable_string()
    reader.int8()  # type
    answer = AlteredTopic(reader.compact_string(), error, message)
    reader.skip_tags()
    return answer
