"""The value of sasl.jaas.config."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrord.config.jaas import parse_jaas

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


@pytest.mark.parametrize(
    ("text", "options"),
    [
        (f'{PLAIN} required username="u" password="p";', {"username": "u", "password": "p"}),
        (f"{PLAIN} required username='u' password=p ;", {"username": "u", "password": "p"}),
        (f'{PLAIN} required\n  username = "a b;=" ; ', {"username": "a b;="}),
        (f'{PLAIN} required password="q\\"uo\\\\te\\n\\101";', {"password": 'q"uo\\te\nA'}),
        (f'{PLAIN} required // a comment\n u="x" /* and\n another */ v="//y";', {"u": "x", "v": "//y"}),
        (f'{PLAIN} required password="";', {"password": ""}),
        (f"{PLAIN} required;", {}),
    ],
)
def test_options(text: str, options: dict[str, str]) -> None:
    entry = parse_jaas(text)
    assert (entry.module, entry.options) == (PLAIN, options)


@pytest.mark.parametrize(
    "text",
    ["", PLAIN, f"{PLAIN} required", f'{PLAIN} required password="hunter2"', f'{PLAIN} required password "hunter2";'],
)
def test_what_is_none_shows_nothing_of_it(text: str) -> None:
    with pytest.raises(ValueError, match="semicolon") as fault:
        parse_jaas(text)
    assert "hunter2" not in str(fault.value)


def test_open_quotes() -> None:
    with pytest.raises(ValueError, match="quotes that are closed"):
        parse_jaas(f'{PLAIN} required password="hunter2;')


def test_it_does_not_print_its_values() -> None:
    assert "hunter2" not in repr(parse_jaas(f'{PLAIN} required password="hunter2";'))


@given(st.dictionaries(st.from_regex(r"[a-zA-Z_.]{1,5}", fullmatch=True), st.text(max_size=8), max_size=4))
def test_every_value_survives_its_quotes(options: dict[str, str]) -> None:
    def quoted(value: str) -> str:
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'

    text = " ".join([PLAIN, "required", *(f"{name}={quoted(value)}" for name, value in options.items())]) + ";"
    assert parse_jaas(text).options == options
