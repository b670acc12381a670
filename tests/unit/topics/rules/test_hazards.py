"""Hazards of names and of the target's content, and the steps of a plan."""

import msgspec

from mirrord.config.schema import FlowConfig
from mirrord.kafka.rules.topic import Topic
from mirrord.model.findings import Finding, worst_first
from mirrord.model.names import TopicId
from mirrord.topics.rules.hazards import foreign_content, other_writers, status_hazards, topic_hazards
from mirrord.topics.rules.plan_steps import topic_steps
from mirrord.topics.rules.topic_list import TopicLine
from mirrord.topics.rules.topic_plan import plan_topics
from policies.naming import naming

FLOW = FlowConfig(name="eu-us", source="eu", target="us", topics=(".*",))


def topic(name: str, partitions: int = 3) -> Topic:
    return Topic(name, TopicId(f"id-{name}"), partitions)


def hazards(*lines: TopicLine, flow: FlowConfig = FLOW, target: tuple[str, ...] = ()) -> list[Finding]:
    return list(topic_hazards(flow, lines, {name: topic(name) for name in target}, ("eu", "us", "asia")))


def test_a_local_topic_that_looks_like_a_copy() -> None:
    line = TopicLine("us.orders", "", 3, "cycle")
    (found,) = hazards(line)
    assert (found.severity, found.where) == ("warning", "eu: topic us.orders")
    assert "us has no such topic" in found.what
    assert hazards(line, target=("orders",)) == []


def test_local_topics_with_the_separator_in_their_names() -> None:
    lines = [TopicLine(f"team.{number}", f"eu.team.{number}", 1, "copied") for number in range(5)]
    (found,) = hazards(*lines)
    assert found.severity == "note"
    assert found.where == "eu: topics team.0, team.1, team.2 and 2 more"
    assert (
        hazards(TopicLine("asia.orders", "eu.asia.orders", 1, "copied"), TopicLine("orders", "eu.orders", 1, "copied"))
        == []
    )
    assert hazards(*lines, flow=msgspec.structs.replace(FLOW, naming="identity")) == []


def test_a_collision_and_a_remark() -> None:
    collision = TopicLine("a", "eu.a", 1, "fault", "topic name collision: ...")
    remark = TopicLine("b", "eu.b", 1, "copied", "the target topic has 4 partitions")
    assert [(found.severity, found.what) for found in hazards(collision, remark)] == [
        ("error", "topic name collision: ..."),
        ("warning", "the target topic has 4 partitions"),
    ]


def test_a_target_topic_that_holds_something_else() -> None:
    (found,) = foreign_content(FLOW, {"eu.a": 5, "eu.b": 0, "eu.c": 7}, {"eu.c": TopicId("c")})
    assert found.where == "us: topic eu.a"
    assert "holds 5 offsets that this flow did not write" in found.what


def test_another_flow_that_writes_the_same_topic() -> None:
    targets = {"eu.a": "a", "eu.b": "b"}
    (found,) = other_writers(FLOW, targets, {"old": ["eu.b", "eu.x"], "fine": ["eu.y"]})
    assert (found.severity, found.where) == ("error", "us: topic eu.b")
    assert "the flow old also copies into it" in found.what


def test_what_the_status_reports() -> None:
    source = ["orders", "us.mine", "us.orders"]
    lines = list(status_hazards(FLOW, source, {"orders"}, {"eu.a-0": 7, "eu.a-1": 0}))
    assert lines == [
        "topic us.mine: not copied, because the name looks like a copy from us, which has no such topic",
        "target partition eu.a-0: held other records before the first copied record",
    ]
    assert list(status_hazards(msgspec.structs.replace(FLOW, naming="identity"), source, {"orders"}, {})) == []


def test_findings_are_reported_once_and_the_worst_first() -> None:
    note, error = Finding(severity="note", where="x", what="n"), Finding(severity="error", where="y", what="e")
    assert worst_first([note, error, note]) == [error, note]


def test_the_steps_of_a_first_start_and_of_a_later_one() -> None:
    names = naming("prefix", "eu")
    target = {"eu.old": topic("eu.old", 1)}
    plan = plan_topics([topic("new", 1), topic("old", 3)], target, names.target_topic, {})
    steps = list(topic_steps(FLOW, plan, target))
    assert [(step.action, step.name, step.detail) for step in steps[:2]] == [
        ("create", "eu.new", "for new: 1 partition, the brokers' default replication factor"),
        ("grow", "eu.old", "from 1 to 3 partitions"),
    ]
    assert [step.name for step in steps[2:]] == ["mirrord.eu-us.ledger", "mirrord.eu-us.probe", "mirrord.eu-us.state"]
    all_there = {name: topic(name) for name in ("eu.new", "eu.old", "mirrord.eu-us.ledger", "mirrord.eu-us.state")}
    again = plan_topics([topic("new", 1), topic("old", 3)], all_there, names.target_topic, {})
    assert list(topic_steps(FLOW, again, all_there)) == []
