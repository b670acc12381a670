"""Durations, sizes, times and addresses."""

import pytest

from mirrord.config.units import HostPort, duration_ms, host_port, regex, size_bytes, start_point


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("500ms", 500), ("5s", 5_000), ("2m", 120_000), ("1h", 3_600_000), ("1.5s", 1_500), ("1 d", 86_400_000)],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("wrong", ["5", "s", "-5s", "5 sec", "0.5ms", "", 5, True, None])
def test_a_duration_says_its_unit(wrong: object) -> None:
    with pytest.raises(ValueError, match='such as "500ms"'):
        duration_ms(wrong)


@pytest.mark.parametrize(
    ("text", "size"), [("8MiB", 8 << 20), ("1GiB", 1 << 30), ("64KiB", 65_536), ("1MB", 1_000_000), (17, 17)]
)
def test_sizes(text: object, size: int) -> None:
    assert size_bytes(text) == size


@pytest.mark.parametrize("wrong", ["8M", "8 mib", "-1B", -1, True, 1.5, "0.3B"])
def test_wrong_sizes(wrong: object) -> None:
    with pytest.raises(ValueError, match='such as "64KiB"'):
        size_bytes(wrong)


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
