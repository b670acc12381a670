"""The filter `keys`, whose keys come from clients of the source."""

from types import SimpleNamespace

import pytest

from mirrord.model.names import Alias
from policies.records import Keys
from tests.fixtures.fake_pipe import as_any

EU, US = Alias("eu"), Alias("us")


def keeps(filters: Keys, key: bytes | None) -> bool:
    return filters.keeps(as_any(SimpleNamespace(key=key)))


def test_whole_keys_are_matched() -> None:
    filters = Keys(EU, US, match="customer-.*", exclude=".*-test")
    assert [keeps(filters, key) for key in (b"customer-1", b"customer-test", b"order-1", None)] == [
        True,
        False,
        False,
        False,
    ]
    assert keeps(Keys(EU, US, exclude=".*-test"), b"x" * 2_000_000)


@pytest.mark.parametrize("setting", ["match", "exclude"])
def test_an_expression_that_could_take_long_for_any_key_is_refused(setting: str) -> None:
    with pytest.raises(ValueError, match=rf"{setting}: .* could take very long for some keys"):
        Keys(EU, US, **{setting: r"(\w+\.?)+prod"})


def test_a_key_for_which_an_expression_could_take_long_is_an_error() -> None:
    filters = Keys(EU, US, match=".*-.*-.*")
    assert keeps(filters, b"a-b-c")
    with pytest.raises(ValueError, match="could take too long for a key of 100000 bytes"):
        keeps(filters, b"-" * 100_000)
