"""Whatever a conf.toml holds, the answer is a Config or a ConfigError."""

import contextlib
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrord.config.cross_checks import literal_prefix
from mirrord.config.loader import load_text
from mirrord.model.errors import ConfigError

TEXTS = st.sampled_from(
    ["", "eu", "us", "5s", "8MiB", "env:X", "a(", "local", "auto", "prefix", "earliest", "dr-{topic}", "a:B"]
) | st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=6)
SCALARS = TEXTS | st.integers(-1, 2**40) | st.booleans() | st.floats(allow_nan=False, allow_infinity=False)
KEYS = [
    "from",
    "to",
    "topics",
    "naming",
    "start",
    "limits",
    "name",
    "refresh",
    "in_flight_bytes",
    "map_bytes",
    "rebuild_bytes",
    "bootstrap",
    "security",
]
KEYS += [
    "protocol",
    "mechanism",
    "password",
    "count",
    "engine",
    "lease_ttl",
    "listen",
    "token",
    "dir",
    "dashboard",
    "x",
]
KEYS += ["groups", "sync", "heartbeats", "mm2_records", "match", "mode", "every", "acls", "emit", "separator"]
KEYS += ["select", "naming_settings", "select_settings", "filter_configs", "filter_settings"]


def inline(value: object) -> str:
    """A value as inline TOML; JSON's strings, numbers and lists are TOML too."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{json.dumps(key)} = {inline(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(inline(item) for item in value) + "]"
    return json.dumps(value)


VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS) | TEXTS, inner, max_size=5),
    max_leaves=8,
)
TABLES = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=6)
DOCUMENTS = st.fixed_dictionaries(
    {"clusters": st.dictionaries(st.sampled_from(["eu", "us", "a.b", ""]), TABLES | VALUES, max_size=3) | VALUES},
    optional={
        "flows": st.lists(TABLES | VALUES, max_size=3) | VALUES,
        **dict.fromkeys(("runtime", "replicators", "ray", "http", "logs", "instance", "junk"), TABLES | VALUES),
    },
)


@given(DOCUMENTS)
def test_any_toml(document: dict[str, object]) -> None:
    with contextlib.suppress(ConfigError):
        load_text("\n".join(f"{key} = {inline(value)}" for key, value in document.items()), "conf.toml")


@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    with contextlib.suppress(ConfigError):
        load_text(text, "conf.toml")


# Python warns of sets in sets, which mean something else in other engines.
@pytest.mark.filterwarnings("ignore::FutureWarning")
@given(st.from_regex(r"[a-c.*+?{}2|()\[\]\\^$-]{1,8}", fullmatch=True), st.text("abc.", max_size=5))
def test_every_match_begins_with_the_literal_prefix(pattern: str, topic: str) -> None:
    try:
        matches = re.fullmatch(pattern, topic)
    except re.error:
        return
    if matches:
        assert topic.startswith(literal_prefix(pattern))
