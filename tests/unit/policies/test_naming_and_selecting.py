"""Naming and selecting."""

import msgspec
import pytest

from mirrord.config.flow_features import HeartbeatsConfig
from mirrord.config.schema import FlowConfig
from mirrord.model.errors import ConfigError
from policies.flow_policies import selection_of
from policies.naming import IdentityNaming, Naming, PrefixNaming, naming
from policies.selecting import Refusal, Selection, is_internal


@pytest.mark.parametrize("name", ["prefix", "identity", "dr-{topic}", "{topic}.v2"])
@pytest.mark.parametrize("topic", ["orders", "payments.card", "eu.orders", "a_b-c", "heartbeats", "us.heartbeats"])
@pytest.mark.parametrize("separator", [".", "__"])
def test_the_way_back_undoes_the_way_there(name: str, topic: str, separator: str) -> None:
    policy = naming(name, "eu", separator)
    assert policy.source_topic(policy.target_topic(topic)) == topic


def test_prefix_names() -> None:
    policy = PrefixNaming("eu")
    assert policy.target_topic("orders") == "eu.orders"
    assert policy.source_topic("orders") is None
    assert policy.source_topic("europe.orders") is None
    assert policy.source_topic("eu.") is None
    assert policy.hops("us.eu.orders") == ("us", "eu")
    assert policy.hops("orders") == ()


def test_another_separator() -> None:
    policy = naming("prefix", "eu", "__")
    assert policy.target_topic("orders") == "eu__orders"
    assert policy.source_topic("eu.orders") is None
    assert policy.hops("us__eu__orders") == ("us", "eu")


def test_template_names() -> None:
    policy = naming("dr-{topic}", "eu")
    assert policy.target_topic("orders") == "dr-orders"
    assert policy.source_topic("orders") is None
    assert policy.source_topic("dr-") is None
    assert policy.hops("eu.orders") == ()


@pytest.mark.parametrize("name", ["prefix", "identity", "dr-{topic}"])
def test_heartbeats_always_show_where_they_come_from(name: str) -> None:
    policy = naming(name, "eu")
    assert policy.target_topic("heartbeats") == "eu.heartbeats"
    assert policy.target_topic("us.heartbeats") == "eu.us.heartbeats"
    assert policy.hops("us.eu.heartbeats") == ("us", "eu")
    assert policy.source_topic("heartbeats") is None
    assert policy.source_topic("asia.heartbeats") is None


def test_a_user_topic_that_ends_like_heartbeats_keeps_its_name() -> None:
    assert naming("identity", "eu").target_topic("patient-heartbeats") == "patient-heartbeats"


@pytest.mark.parametrize("name", ["prefix", "identity", "dr-{topic}"])
@pytest.mark.parametrize("topic", ["orders", "orders-2", "ord", "payments", "eu.orders", "dr-orders"])
@pytest.mark.parametrize("prefix", ["", "o", "orders", "orders-", "eu.", "dr-"])
def test_a_prefix_fits_the_copies_of_what_it_fits(name: str, topic: str, prefix: str) -> None:
    policy = naming(name, "eu")
    mapped = policy.target_prefix(prefix)
    assert mapped is not None
    assert policy.target_topic(topic).startswith(mapped) == topic.startswith(prefix)


def test_text_after_the_name_leaves_no_prefix() -> None:
    assert naming("dr-{topic}-copy", "eu").target_prefix("orders") is None


def test_an_unknown_naming_names_the_nearest() -> None:
    with pytest.raises(ConfigError, match='allowed: "prefix" or "identity"; did you mean "identity"'):
        naming("identiti", "eu")


@pytest.mark.parametrize(
    "topic",
    [
        "__consumer_offsets",
        "__transaction_state",
        "mirrord.eu-us.ledger",
        "mirrord.eu-us.state",
        "mirrord.eu-us.probe",
        "mirrord.eu-us.dead",
        "mirrord.eu-us.repair",
        "mm2-offset-syncs.us.internal",
        "mm2-configs.eu.internal",
        "mm2-offsets.eu.internal",
        "mm2-status.eu.internal",
        "mm2-offset-syncs-us-internal",
        "eu.checkpoints.internal",
        "eu-checkpoints-internal",
    ],
)
def test_internal_topics(topic: str) -> None:
    assert is_internal(topic)


def test_internal_topics_by_another_separator() -> None:
    assert is_internal("mm2-offset-syncs__us__internal", "__")
    assert is_internal("eu__checkpoints__internal", "__")
    assert is_internal("eu.checkpoints.internal", "__")
    assert not is_internal("eu__checkpoints__internal")


@pytest.mark.parametrize(
    "topic",
    ["orders", "orders.internal", "orders-internal", "_schemas", "heartbeats", "checkpoints.internal", "mirrord"],
)
def test_user_topics_are_not_internal(topic: str) -> None:
    assert not is_internal(topic)


@pytest.mark.parametrize(
    ("topic", "policy", "refusal"),
    [
        ("orders", PrefixNaming("eu"), None),
        ("payments.card", PrefixNaming("eu"), None),
        ("payments.card.tmp", PrefixNaming("eu"), "excluded"),
        ("my-orders", PrefixNaming("eu"), "not-included"),
        ("__consumer_offsets", PrefixNaming("eu"), "internal"),
        ("us.orders", PrefixNaming("eu"), "cycle"),
        ("asia.us.orders", PrefixNaming("eu"), "cycle"),
        ("asia.orders", PrefixNaming("eu"), None),
        ("orders.us", PrefixNaming("eu"), None),
        ("us.orders", IdentityNaming("eu"), None),
    ],
)
def test_selection_says_why_not(topic: str, policy: Naming, refusal: Refusal | None) -> None:
    include = ["orders", r"payments\..*", r"(us|asia)\..*", r"__.*", r"orders\..*"]
    selection = Selection(include, [r".*\.tmp"], "us", policy)
    assert selection.refusal(topic) == refusal
    assert selection.selects(topic) == (refusal is None)


@pytest.mark.parametrize("naming_name", ["prefix", "identity", "dr-{topic}"])
def test_heartbeats_are_copied_whatever_the_lists_say(naming_name: str) -> None:
    flow = FlowConfig(
        name="eu-us", source="eu", target="us", topics=("orders",), exclude=(".*beats",), naming=naming_name
    )
    selection = selection_of(flow)
    assert selection.copy_of("heartbeats") == "eu.heartbeats"
    assert selection.copy_of("asia.heartbeats") == "eu.asia.heartbeats"
    assert selection.refusal("us.heartbeats") == "cycle"
    assert selection.refusal("hearts") == "not-included"
    without = msgspec.structs.replace(flow, heartbeats=HeartbeatsConfig(replicate=False))
    assert selection_of(without).refusal("heartbeats") == "not-included"


@pytest.mark.parametrize(
    ("naming_name", "source", "topic"),
    [
        ("mirrord.{topic}", "eu", "eu-us.ledger"),
        ("mirrord.{topic}", "eu", "orders"),
        ("{topic}.eu-us.ledger", "eu", "mirrord"),
        ("_{topic}", "eu", "_consumer_offsets"),
        ("{topic}.ledger", "eu", "mirrord.eu-us"),
        ("identity", "eu", "mirrord.eu-us.later"),
        ("prefix", "mirrord", "eu-us.ledger"),
        ("prefix", "mirrord", "heartbeats"),
        ("prefix", "__eu", "orders"),
        ("mm2-{topic}", "eu", "offset-syncs.us.internal"),
    ],
)
def test_no_naming_makes_a_target_topic_of_kafka_or_mirrord(naming_name: str, source: str, topic: str) -> None:
    flow = FlowConfig(name="eu-us", source=source, target="us", topics=(".*",), naming=naming_name)
    selection = selection_of(flow)
    assert selection.refusal(topic) == "internal"
    assert selection.copy_of(topic) is None


def test_a_source_topic_may_have_a_name_that_only_its_target_topic_could_not_have() -> None:
    flow = FlowConfig(name="eu-us", source="eu", target="us", topics=(".*",))
    assert selection_of(flow).copy_of("mirrord.audit-log") == "eu.mirrord.audit-log"
