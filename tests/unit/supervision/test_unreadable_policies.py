"""Operators learn in advance that mirrord may not read the cleanup policies of target topics."""

from collections.abc import Collection

from mirrord.kafka.client.config_and_acl_admin import SeenSettings
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import ClusterId
from mirrord.supervision.unreadable_policies import UnreadablePolicies
from tests.fixtures.supervision import FakeCluster, FakeUpkeep
from tests.unit.supervision.test_internal_topic_sync import FLOW

UNAUTHORIZED = "TOPIC_AUTHORIZATION_FAILED: Topic authorization failed."


class Counting(FakeUpkeep):
    """Notes which topics it was asked about."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__(cluster)
        self.asked: list[str] = []

    async def settings(self, topics: Collection[str], *, watch: bool = False) -> SeenSettings:
        self.asked += topics
        return await super().settings(topics, watch=watch)


def cluster_of(*names: str) -> FakeCluster:
    cluster = FakeCluster(ClusterId("us-id"))
    for name in names:
        cluster.add(name, 1)
    return cluster


async def test_the_missing_permission_and_what_it_means() -> None:
    cluster = cluster_of("eu.a", "eu.b")
    cluster.unseen["eu.a"] = UNAUTHORIZED
    policies = UnreadablePolicies(FLOW, FakeUpkeep(cluster))
    await policies.round(["eu.a", "eu.b"])
    (line,) = policies.remarks
    assert line.startswith(f"cluster {FLOW.target}: DESCRIBE_CONFIGS is missing on eu.a; without this permission")
    assert "does not know whether a target topic is compacted" in line
    del cluster.unseen["eu.a"]
    await policies.round(["eu.a", "eu.b"])
    assert policies.remarks == ()


async def test_a_readable_topic_is_asked_about_once() -> None:
    cluster = cluster_of("eu.a", "eu.b")
    cluster.unseen["eu.a"] = UNAUTHORIZED
    target = Counting(cluster)
    policies = UnreadablePolicies(FLOW, target)
    for _ in range(3):
        await policies.round(["eu.a", "eu.b"])
    assert sorted(target.asked) == ["eu.a", "eu.a", "eu.a", "eu.b"]
    await policies.round(["eu.b"])
    assert policies.remarks == ()


async def test_many_topics_are_not_all_named() -> None:
    names = [f"eu.{letter}" for letter in "abcdef"]
    cluster = cluster_of(*names)
    cluster.unseen |= dict.fromkeys(names, UNAUTHORIZED)
    policies = UnreadablePolicies(FLOW, FakeUpkeep(cluster))
    await policies.round(names)
    assert "on eu.a, eu.b, eu.c and 3 others;" in policies.remarks[0]


async def test_another_error_is_not_a_missing_permission() -> None:
    cluster = cluster_of("eu.a")
    cluster.unseen["eu.a"] = "UNKNOWN_SERVER_ERROR: "
    policies = UnreadablePolicies(FLOW, FakeUpkeep(cluster))
    await policies.round(["eu.a"])
    assert policies.remarks == ()


async def test_an_answer_that_fails_changes_nothing() -> None:
    class Unreachable(FakeUpkeep):
        is_gone = False

        async def settings(self, topics: Collection[str], *, watch: bool = False) -> SeenSettings:
            if self.is_gone:
                raise EnvironmentFault("no broker answers")
            return await super().settings(topics, watch=watch)

    cluster = cluster_of("eu.a")
    cluster.unseen["eu.a"] = UNAUTHORIZED
    target = Unreachable(cluster)
    policies = UnreadablePolicies(FLOW, target)
    await policies.round(["eu.a"])
    former, target.is_gone = policies.remarks, True
    await policies.round(["eu.a"])
    assert former
    assert policies.remarks == former
