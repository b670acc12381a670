"""Encodes and decodes DescribeClientQuotas (API key 48, version 1), for the client quotas of all users, client ids and
addresses (KIP-546)."""

import msgspec

from mirrord.kafka.protocol.primitives import EMPTY_ARRAY, INT8, NO_TAGS, Reader
from mirrord.model.quotas import ClientQuota


class DescribedQuotas(msgspec.Struct, frozen=True):
    """The decoded DescribeClientQuotas response. If there is an error, it contains no quotas."""

    error: int
    message: str | None
    quotas: list[ClientQuota]


def encode_describe() -> bytes:
    """Encode the body of a DescribeClientQuotas request for all quotas."""
    no_components, is_strict = EMPTY_ARRAY, INT8.pack(0)
    return no_components + is_strict + NO_TAGS


def decode_describe(reader: Reader) -> DescribedQuotas:
    """Decode a DescribeClientQuotas response. Raises WireError."""
    reader.int32()  # throttle time
    error, message = reader.int16(), reader.compact_nullable_string()
    quotas = [quota for entry in reader.compact_array(_entry) for quota in entry]
    reader.skip_tags()
    reader.expect_end()
    return DescribedQuotas(error, message, quotas)


def _entry(reader: Reader) -> list[ClientQuota]:
    entity = tuple(sorted(reader.compact_array(_entity), key=lambda pair: pair[0]))
    quotas = [ClientQuota(entity, name, value) for name, value in reader.compact_array(_value)]
    reader.skip_tags()
    return quotas


def _entity(reader: Reader) -> tuple[str, str | None]:
    pair = reader.compact_string(), reader.compact_nullable_string()
    reader.skip_tags()
    return pair


def _value(reader: Reader) -> tuple[str, float]:
    pair = reader.compact_string(), reader.float64()
    reader.skip_tags()
    return pair
