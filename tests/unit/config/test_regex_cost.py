"""Which regular expressions a configuration accepts, and how long those take for the worst names."""

import re
import time

import pytest

from mirrord.config.flow_features import UNWANTED_CONFIGS, UNWANTED_GROUPS, GroupsConfig
from mirrord.config.loader import load_text
from mirrord.config.mm2.java_regex import python_regex
from mirrord.config.regex_cost import LONGEST_NAME, TooSlow, check_cost, is_fast
from mirrord.groups.rules.commit_plan import GroupFilter
from mirrord.model.errors import ConfigError

USUAL = (
    ".*", "orders", "orders.*", r".*\.internal", r"(?!secret-).*", "orders|payments-.*|users",
    r"(eu|us)-[a-z]+-v\d{1,3}",
    r".*-prod-.*\..*", r"(?i)Orders(-\d+)?", r"[A-Za-z0-9._-]{1,249}", r"(.*)-\1", "(abc)*", r"logs\..+?", "",
    "^orders$",
    *UNWANTED_GROUPS, *UNWANTED_CONFIGS,
)  # fmt: skip
CATASTROPHIC = (
    r"(\w+\.?)+prod", "(a+)+b", "(a*)*b", "(a|a)*b", "(a|ab|b)*c", "(a?b?)+c", "((a)|(aa))+$",
    "(.*a){20}", "(.*,){11}P",
    ".*.*.*.*b", "a?" * 40 + "a" * 40, "(a+){1,16}b", "(?=(a+)+b).*", "(?>(a|b)+)+c", "(?:(?:aa?)+)?b",
)  # fmt: skip
CONF = """[clusters.eu]
bootstrap = "eu:9092"
[clusters.us]
bootstrap = "us:9092"
[[flows]]
from = "eu"
to = "us"
"""


@pytest.mark.parametrize("pattern", USUAL)
def test_usual_expressions_are_accepted_and_fast(pattern: str) -> None:
    check_cost(pattern)
    began = time.process_time()
    for name in ("a" * LONGEST_NAME, "a" * 248 + "!", "-prod-" * 41, "orders-" * 35, "." * LONGEST_NAME):
        re.fullmatch(pattern, name)
    assert time.process_time() - began < 2


@pytest.mark.parametrize("pattern", CATASTROPHIC)
def test_expressions_that_can_take_for_ever_are_refused(pattern: str) -> None:
    re.compile(pattern)
    with pytest.raises(TooSlow):
        check_cost(pattern)


@pytest.mark.parametrize(
    "key",
    ["topics", "exclude", "groups.match", "groups.exclude", "records.topics", "sync.exclude_configs", "start_of"],
)
def test_every_key_refuses_them(key: str) -> None:
    value = "{ '(a+)+b' = \"latest\" }" if key == "start_of" else "['(a+)+b']"
    topics = "" if key == "topics" else 'topics = ["x"]\n'
    with pytest.raises(ConfigError, match=r"\(a\+\)\+b.*no repetition inside a repetition"):
        load_text(f"{CONF}{topics}{key} = {value}\n", "conf.toml")
    with pytest.raises(ConfigError, match=r"no repetition inside a repetition"):
        load_text(f"{CONF}topics = ['x']\n[replicators]\nalone = ['(a+)+b']\n", "conf.toml")


def test_a_properties_file_refuses_them_as_well() -> None:
    with pytest.raises(ValueError, match="no repetition inside a repetition"):
        python_regex("(a+)+b")


def test_a_group_with_a_long_id_is_only_matched_by_what_is_fast() -> None:
    """Kafka does not limit the ids of groups."""
    long = "a" * 32_000
    assert GroupFilter(GroupsConfig()).passes(long)
    assert not is_fast(".*a.*a.*b", len(long))
    assert not GroupFilter(GroupsConfig(match=(".*a.*a.*",))).passes(long)
    assert GroupFilter(GroupsConfig(match=(".*a.*a.*",))).passes("aaa")
    assert not GroupFilter(GroupsConfig(exclude=(".*a.*a.*b",))).passes(long)


def test_groups_that_are_left_out_are_counted() -> None:
    chosen = GroupFilter(GroupsConfig(match=(".*a.*a.*",)))
    assert (chosen.passes("aaa"), chosen.left_out, chosen.remark) == (True, 0, "")
    for name in ("a\n" + "b" * 300, "c" * 300, "c" * 300):
        assert not chosen.passes(name)
    assert chosen.left_out == 2
    assert chosen.remark == (
        "2 groups are left out, because names of more than 249 characters could take too long with groups.match and "
        f'groups.exclude; the first one: "a?{"b" * 98}..."'
    )
