"""Configs of mirrord's own topics: what is repaired, and what only an operator can change."""

import msgspec
import pytest

from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.topic_admin import ClusterTopics
from mirrord.kafka.rules.internal_topic_configs import TWO_BROKERS, Wrong, few_replicas, ledger_findings, wrong_settings
from mirrord.kafka.rules.topic import Topic
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import ClusterId, TopicId
from mirrord.supervision.internal_topic_sync import OwnSettings, needed_settings
from tests.fixtures.supervision import FakeCluster, FakeUpkeep

FLOW = FlowConfig(name="eu-us", source="eu", target="us", topics=("orders.*",))
LEDGER, STATE = "mirrord.eu-us.ledger", "mirrord.eu-us.state"
RIGHT = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
COMPACT = {"cleanup.policy": "compact"}


def topic(name: str, replicas: int) -> Topic:
    return Topic(name, TopicId(f"id of {name}"), 1, replicas)


@pytest.mark.parametrize(
    ("values", "replicas", "wrong"),
    [
        ({}, 3, []),
        ({**RIGHT, "min.insync.replicas": "2"}, 3, []),
        ({**RIGHT, "min.insync.replicas": "3"}, 3, []),
        ({**RIGHT, "min.insync.replicas": "1"}, 2, []),
        ({**RIGHT, "min.insync.replicas": "1"}, 0, []),
        ({**RIGHT, "min.insync.replicas": "1"}, 3, [Wrong("min.insync.replicas", "1", "2")]),
        ({**RIGHT, "retention.ms": "1000"}, 1, [Wrong("retention.ms", "1000", "-1")]),
        ({**RIGHT, "cleanup.policy": "compact"}, 1, [Wrong("cleanup.policy", "compact", "delete")]),
        ({"cleanup.policy": None, "retention.ms": None}, 3, []),
    ],
)
def test_what_is_wrong(values: dict[str, str | None], replicas: int, wrong: list[Wrong]) -> None:
    assert wrong_settings(RIGHT, values, replicas) == wrong


@pytest.mark.parametrize(
    ("replicas", "brokers", "reason"),
    [(3, 3, ""), (3, 5, ""), (2, 2, ""), (0, 3, ""), (1, 0, ""), (2, 3, "2 of 3 replicas"), (1, 2, "1 of 2 replicas")],
)
def test_fewer_replicas_than_there_could_be(replicas: int, brokers: int, reason: str) -> None:
    line = few_replicas(topic(LEDGER, replicas), "us", brokers)
    assert reason in line
    assert bool(line) == bool(reason)


def findings(brokers: int, replicas: int, in_sync: str) -> list[tuple[str, str]]:
    topics = {name: topic(name, replicas) for name in (LEDGER, STATE) if replicas}
    values = {LEDGER: {**RIGHT, "min.insync.replicas": in_sync}, STATE: {**COMPACT, "min.insync.replicas": in_sync}}
    values = {name: values[name] for name in topics}
    found = ledger_findings(FLOW, {LEDGER: RIGHT, STATE: COMPACT}, topics, values, brokers)
    return [(each.severity, each.what) for each in found]


def test_check_explains_what_two_brokers_mean() -> None:
    assert findings(3, 3, "2") == findings(3, 0, "") == findings(1, 1, "1") == findings(2, 2, "2") == []
    assert findings(2, 0, "") == findings(2, 2, "1") == [("note", TWO_BROKERS)]
    assert "`mirrord rebuild`" in TWO_BROKERS
    wrong = ("warning", "it has min.insync.replicas=1, which loses facts")
    assert findings(3, 3, "1") == [wrong, wrong]
    assert [severity for severity, _ in findings(3, 2, "1")] == ["warning", "warning"]


class Refusing(FakeUpkeep):
    async def alter(self, changes: object) -> dict[str, str]:
        return dict.fromkeys(changes if isinstance(changes, dict) else (), "TOPIC_AUTHORIZATION_FAILED")


def shown(cluster: FakeCluster, replicas: int, brokers: int) -> ClusterTopics:
    topics = {name: msgspec.structs.replace(each, replicas=replicas) for name, each in cluster.topics.items()}
    return ClusterTopics(ClusterId("us-id"), topics, brokers=brokers)


def test_the_dead_letters_are_kept_as_well() -> None:
    assert needed_settings(FLOW)["mirrord.eu-us.dead"]["retention.ms"] == "-1"


async def test_what_somebody_changed_is_put_right() -> None:
    cluster = FakeCluster(ClusterId("us-id"))
    for name, values in ((LEDGER, RIGHT), (STATE, COMPACT)):
        cluster.add(name, 1)
        cluster.own[name] = values | {"min.insync.replicas": "1"}
    cluster.own[LEDGER]["retention.ms"] = "1000"
    own = OwnSettings(FLOW, FakeUpkeep(cluster))
    await own.round(shown(cluster, 2, 3))
    assert cluster.own[LEDGER] == {**RIGHT, "min.insync.replicas": "1"}
    assert len(own.remarks) == 2
    await own.round(shown(cluster, 3, 3))
    assert cluster.own[LEDGER] == {**RIGHT, "min.insync.replicas": "2"}
    assert cluster.own[STATE] == {**COMPACT, "min.insync.replicas": "2"}
    assert own.remarks == ()
    cluster.own[LEDGER]["retention.bytes"] = "9"
    with pytest.raises(EnvironmentFault, match=r"retention.bytes=9, which .* must be -1 and cannot be set"):
        await OwnSettings(FLOW, Refusing(cluster)).round(shown(cluster, 3, 3))
