"""Agreeing on versions, and the names of errors."""

import pytest

from mirrord.kafka.protocol.api_versions import APIS, DESCRIBE_PRODUCERS, FETCH, PRODUCE, UPKEEP_APIS, choose
from mirrord.kafka.protocol.errors import ErrorCode, UnsupportedBroker

# What ApiVersions of Kafka 2.8.0 returns for the APIs that mirrord uses.
KAFKA_2_8 = {
    0: (0, 9),
    1: (0, 12),
    2: (0, 6),
    3: (0, 11),
    20: (0, 6),
    22: (0, 4),
    23: (0, 4),
    29: (0, 2),
    30: (0, 2),
    31: (0, 2),
    32: (0, 4),
    44: (0, 1),
    60: (0, 0),
    61: (0, 0),
}


def test_the_newest_common_version_is_chosen() -> None:
    assert choose(FETCH, {1: (4, 18)}) == 18
    assert choose(FETCH, {1: (4, 99)}) == FETCH.greatest
    assert choose(FETCH, {1: (4, 15)}) == 15
    assert choose(FETCH, {1: (4, 18)}, at_most=12) == 12


def test_the_oldest_kafka_will_do() -> None:
    assert [choose(api, KAFKA_2_8) for api in (*APIS, *UPKEEP_APIS)] == [9, 12, 6, 11, 4, 4, 0, 6, 2, 2, 2, 4, 1, 0]


def test_an_older_kafka_is_reported() -> None:
    with pytest.raises(
        UnsupportedBroker,
        match=r"^the broker offers Fetch in versions 0 to 11, mirrord supports 12 to 18; Kafka 2\.8 or newer is needed",
    ):
        choose(FETCH, {1: (0, 11)})
    with pytest.raises(UnsupportedBroker, match=r"does not offer DescribeProducers; Kafka 2\.8 or newer is needed"):
        choose(DESCRIBE_PRODUCERS, {})


def test_a_broker_newer_than_this_program_is_reported() -> None:
    with pytest.raises(UnsupportedBroker, match="versions 14 to 20, mirrord supports 9 to 13; this broker needs a"):
        choose(PRODUCE, {0: (14, 20)})


def test_error_codes_have_kafkas_names() -> None:
    assert sorted(ErrorCode) == list(range(-1, 134))
    assert ErrorCode.name_of(45) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
    assert ErrorCode.name_of(4711) == "error 4711"
