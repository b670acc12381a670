"""Start times, addresses and topic patterns."""

import pytest

from mirrord.config.value_parsers import HostPort, host_port, regex, start_point


@pytest.mark.parametrize(
    ("found", "start"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        (1_769_860_800_000, 1_769_860_800_000),
        ("2026-01-31T12:00:00Z", 1_769_860_800_000),
        ("2026-01-31T13:00:00.250+01:00", 1_769_860_800_250),
    ],
)
def test_starts(found: object, start: object) -> None:
    assert start_point(found) == start


@pytest.mark.parametrize("wrong", ["2026-01-31T12:00:00", "2026-01-31", "first", -1, True, "1960-01-01T00:00:00Z", 1.5])
def test_a_start_names_a_moment(wrong: object) -> None:
    with pytest.raises(ValueError, match="RFC 3339"):
        start_point(wrong)


def test_addresses() -> None:
    assert host_port("kafka-1.example:9092") == HostPort("kafka-1.example", 9092)
    assert str(host_port("[::1]:9092")) == "[::1]:9092"


@pytest.mark.parametrize("wrong", ["kafka1", "kafka1:", ":9092", "kafka1:0", "kafka1:70000", "a b:1", 9092])
def test_an_address_has_host_and_port(wrong: object) -> None:
    with pytest.raises(ValueError, match="host:port"):
        host_port(wrong)


def test_a_regex_that_does_not_compile_says_why() -> None:
    with pytest.raises(ValueError, match="unterminated"):
        regex("orders(")
