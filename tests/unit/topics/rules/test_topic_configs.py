"""What a target topic is created with, and what is altered later; the rules by name."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrord.config.flow_features import UNWANTED_CONFIGS
from mirrord.kafka.protocol.configs import Setting
from mirrord.kafka.rules.topic import BROKER_DEFAULT, Topic, capped
from mirrord.ledger.facts.core import ConfigChange
from mirrord.model.errors import ConfigError
from mirrord.model.names import TopicId
from mirrord.topics.rules.topic_configs import (
    SettingsPlan,
    fewer_replicas,
    own_settings,
    plan_settings,
    replication_factor,
)
from policies.properties import properties

OF_TARGET = properties("target", UNWANTED_CONFIGS)
OF_SOURCE = properties("source", UNWANTED_CONFIGS)


def own(value: str) -> Setting:
    return Setting(value, own=True)


def default(value: str) -> Setting:
    return Setting(value, own=False)


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        pytest.param({"a": own("1")}, {"a": default("0")}, ConfigChange("a", None, "1"), id="set"),
        pytest.param({"a": own("1")}, {"a": own("2")}, ConfigChange("a", "2", "1"), id="altered by hand"),
        pytest.param({"a": own("1")}, {"a": own("1")}, None, id="in step"),
        pytest.param({"a": own("1")}, {"a": default("1")}, ConfigChange("a", None, "1"), id="own, whatever counts"),
        pytest.param({"a": default("1")}, {"a": own("1")}, ConfigChange("a", "1", None), id="removed"),
        pytest.param({"a": default("1")}, {"a": default("2")}, None, id="each cluster has its defaults"),
        pytest.param({"min.insync.replicas": own("1")}, {"min.insync.replicas": own("2")}, None, id="excluded"),
        pytest.param({"a": Setting("1", own=True, fixed=True)}, {"a": own("2")}, None, id="read-only"),
        pytest.param({"a": own("1")}, {"a": Setting("2", own=True, fixed=True)}, None, id="read-only on the target"),
        pytest.param({"a": Setting(None, own=True, sensitive=True)}, {"a": own("2")}, None, id="secret"),
        pytest.param({}, {"a": own("2")}, None, id="only the target's brokers know it"),
    ],
)
def test_defaults_of_the_target(
    source: dict[str, Setting], target: dict[str, Setting], expected: ConfigChange | None
) -> None:
    assert plan_settings(source, target, OF_TARGET) == SettingsPlan((expected,) if expected else ())


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        pytest.param({"a": default("1")}, {"a": default("2")}, ConfigChange("a", None, "1"), id="set"),
        pytest.param({"a": default("1")}, {"a": own("2")}, ConfigChange("a", "2", "1"), id="set again"),
        pytest.param({"a": default("1")}, {"a": own("1")}, None, id="in step"),
        pytest.param({"a": default("1")}, {"a": default("1")}, None, id="the same default"),
        pytest.param({"min.insync.replicas": default("1")}, {"min.insync.replicas": default("2")}, None, id="excluded"),
    ],
)
def test_defaults_of_the_source(
    source: dict[str, Setting], target: dict[str, Setting], expected: ConfigChange | None
) -> None:
    assert plan_settings(source, target, OF_SOURCE) == SettingsPlan((expected,) if expected else ())


def test_what_the_target_does_not_know_is_reported_and_stops_nothing_else() -> None:
    source = {"new": own("1"), "a": own("1"), "other": default("1")}
    plan = plan_settings(source, {"a": default("2")}, OF_SOURCE)
    assert plan == SettingsPlan((ConfigChange("a", None, "1"),), ("new",))
    assert own_settings(source, OF_SOURCE, {"a"}) == {"a": "1"}


def test_a_new_topic_gets_what_the_source_topic_has_of_its_own() -> None:
    source = {
        "a": own("1"),
        "b": default("2"),
        "min.insync.replicas": own("1"),
        "fixed": Setting("1", own=True, fixed=True),
        "secret": Setting(None, own=True, sensitive=True),
    }
    assert own_settings(source, OF_TARGET, None) == {"a": "1"}
    assert own_settings(source, OF_SOURCE, None) == {"a": "1", "b": "2"}


TIERED = {
    "remote.storage.enable": own("true"),
    "remote.log.copy.disable": own("false"),
    "remote.log.delete.on.disable": own("false"),
    "local.retention.ms": own("1000"),
    "local.retention.bytes": own("1000"),
}


@pytest.mark.parametrize("defaults_from", ["target", "source"])
@pytest.mark.parametrize("exclude", [UNWANTED_CONFIGS, (), ("a",)])
def test_tiered_storage_belongs_to_each_cluster(defaults_from: str, exclude: tuple[str, ...]) -> None:
    rule = properties(defaults_from, exclude)
    source = {**TIERED, "retention.ms": own("5")}
    # The target has no tiered storage: it knows the configs, and rejects them.
    assert own_settings(source, rule, source.keys()) == {"retention.ms": "5"}
    change = ConfigChange("retention.ms", None, "5")
    at_default = {name: default("false") for name in source}
    assert plan_settings(source, at_default, rule) == SettingsPlan((change,))
    # It has tiered storage, and the source has not.
    assert plan_settings(at_default, TIERED, rule) == SettingsPlan()


SETTINGS = st.dictionaries(
    st.sampled_from("abcdefgh"),
    st.builds(Setting, st.sampled_from("123"), st.booleans(), st.booleans(), st.booleans()),
)


@given(SETTINGS, SETTINGS, st.sampled_from([OF_TARGET, OF_SOURCE]))
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(source, target, rule) -> None:  # type: ignore[no-untyped-def]
    plan = plan_settings(source, target, rule)
    after = dict(target)
    for change in plan.changes:
        assert not target[change.name].fixed
        # Without a value of its own the topic has the cluster's, which may be any.
        after[change.name] = default("9") if change.after is None else own(change.after)
    assert plan_settings(source, after, rule).changes == ()


@pytest.mark.parametrize(
    ("rule", "replicas", "expected"),
    [("broker", 3, BROKER_DEFAULT), ("source", 3, 3), ("source", 0, BROKER_DEFAULT), (2, 3, 2)],
)
def test_replication_factor(rule: int | str, replicas: int, expected: int) -> None:
    assert replication_factor(rule, replicas) == expected  # type: ignore[arg-type]


def test_a_factor_is_capped_by_the_brokers_there_are() -> None:
    assert (capped(3, 1), capped(3, 5), capped(3, 0), capped(BROKER_DEFAULT, 2)) == (1, 3, 3, BROKER_DEFAULT)
    source = Topic("orders", TopicId("s"), 1, 3)
    pair = source, Topic("eu.orders", TopicId("t"), 1, 1)
    line = "eu.orders has 1 replica instead of 3: the target has 1 broker"
    assert fewer_replicas("source", [pair], 1) == line
    assert fewer_replicas(3, [pair, pair], 1) == line.replace(":", " (and 1 more topics):")
    # With brokers enough, the smaller number was a choice.
    assert fewer_replicas("source", [pair], 3) == ""
    assert fewer_replicas("broker", [pair], 1) == ""


def test_an_unknown_rule_is_reported_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match='found "sourc"; allowed: "target" or "source"; did you mean "source"'):
        properties("sourc", ())
