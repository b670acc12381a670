"""What `mirrord topics` says of each topic of a source."""

from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.orders import CopyingPaused
from mirrord.ledger.standing_orders import Orders
from mirrord.model.names import TopicId
from mirrord.topics.rules.topic_list import TopicLine, topic_lines, with_orders
from mirrord.topics.rules.topic_plan import plan_topics
from policies.naming import naming
from policies.selecting import Selection


def topic(name: str, partitions: int = 3) -> Topic:
    return Topic(name, TopicId(f"id-{name}"), partitions)


def test_every_topic_has_a_line_that_says_what_becomes_of_it() -> None:
    names = naming("prefix", "eu")
    selection = Selection(("a.*", "us.*", "__.*"), (r".*\.tmp", "a-secret"), "us", names)
    source = [topic(name) for name in ("a", "a-new", "a-more", "a-hit", "a-secret", "other", "us.orders", "__x")]
    there = {name: topic(name, number) for name, number in (("eu.a", 3), ("eu.a-more", 1), ("eu.a-hit", 3))}
    plan = plan_topics(
        [each for each in source if selection.selects(each.name)],
        there,
        names.target_topic,
        {"eu.a-hit": "a-hit in the flow other"},
    )
    lines = topic_lines(source, plan, selection, "us")
    assert [(line.source, line.target, line.state) for line in lines] == [
        ("__x", "", "internal"),
        ("a", "eu.a", "copied"),
        ("a-hit", "eu.a-hit", "fault"),
        ("a-more", "eu.a-more", "to-grow"),
        ("a-new", "eu.a-new", "to-create"),
        ("a-secret", "", "excluded"),
        ("other", "", "not-included"),
        ("us.orders", "", "cycle"),
    ]
    why = {line.source: line.why for line in lines}
    assert why["a-secret"] == 'the pattern "a-secret" of exclude matches it'
    assert why["a-more"] == "the target topic has 1 partitions"
    assert "a-hit in the flow other" in why["a-hit"]
    assert why["us.orders"] == "its name says that it came from us"
    assert lines[1] == TopicLine("a", "eu.a", 3, "copied", "")


def test_a_topic_whose_copying_has_ended_is_not_in_the_plan() -> None:
    selection = Selection(("a.*",), (), "us", naming("prefix", "eu"))
    plan = plan_topics([topic("a")], {}, naming("prefix", "eu").target_topic, {})
    ended, more = topic_lines([topic("a"), topic("a-gone")], plan, selection, "us")[::-1]
    assert (more.source, more.state) == ("a", "to-create")
    assert ended == TopicLine("a-gone", "", 3, "ended", "a failover has ended its copying")


def test_the_paused_partitions_of_a_topic_are_shown() -> None:
    ada = Origin("ada@host", "full", 1_000)
    line = TopicLine("orders", "eu.orders", 3, "copied", "a remark")
    assert with_orders(line, Orders()) == line
    some = with_orders(line, Orders.of([CopyingPaused("orders", 1, ada), CopyingPaused("other", -1, ada)]))
    assert (some.state, some.why) == (
        "copied",
        "a remark; partitions paused: 1 by ada@host at 1970-01-01 00:00:01Z: full",
    )
    whole = with_orders(line, Orders.of([CopyingPaused("orders", -1, ada)]))
    assert (whole.state, whole.why) == ("paused", "a remark; it was paused by ada@host at 1970-01-01 00:00:01Z: full")
    flow = with_orders(TopicLine("new", "eu.new", 1, "to-create"), Orders.of([CopyingPaused("", -1, ada)]))
    assert (flow.state, flow.why) == ("to-create", "the flow was paused by ada@host at 1970-01-01 00:00:01Z: full")
    excluded = TopicLine("x", "", 1, "excluded")
    assert with_orders(excluded, Orders.of([CopyingPaused("", -1, ada)])) == excluded
