"""Durations and sizes."""

import pytest

from mirrord.config.units import duration_ms, size_bytes


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
