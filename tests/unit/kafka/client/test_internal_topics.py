"""Topics of mirrord's own: what is tried when a cluster does not accept them as they should be."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from mirrord.kafka.client.internal_topics import create, safe_shape
from mirrord.kafka.client.topic_admin import TopicAdmin
from mirrord.kafka.rules.topic import TopicShape
from mirrord.model.errors import EnvironmentFault

FORGETS = {"cleanup.policy": "delete"}
LATER = {"message.timestamp.after.max.ms": "9"}


class Cluster:
    """Refuses with each error in turn."""

    def __init__(self, *refusals: str) -> None:
        self.refusals = list(refusals)
        self.asked: list[TopicShape] = []

    async def create(self, topics: Mapping[str, TopicShape]) -> dict[str, str]:
        self.asked += topics.values()
        line = self.refusals.pop(0) if self.refusals else ""
        return dict.fromkeys(topics, line) if line else {}

    async def made(self, replicas: int, brokers: int, later: dict[str, str] | None = None) -> list[tuple[int, bool]]:
        """For each attempt its replicas, and whether it has the later configs."""
        admin = cast(TopicAdmin, cast(Any, self))
        await create(admin, "own", TopicShape(1, replicas, FORGETS), brokers, later)
        assert all(shape.settings.items() >= FORGETS.items() for shape in self.asked)
        return [(shape.replication_factor, shape.settings.items() >= LATER.items()) for shape in self.asked]


@pytest.mark.parametrize(
    ("refusals", "tries"),
    [
        ([], [(3, True)]),
        (["TOPIC_ALREADY_EXISTS: it is there"], [(3, True)]),
        (["INVALID_CONFIG: unknown"], [(3, True), (3, False)]),
        (["INVALID_REPLICATION_FACTOR: 3"], [(3, True), (2, True)]),
        (["INVALID_CONFIG: unknown", "INVALID_REPLICATION_FACTOR: 3"], [(3, True), (3, False), (2, False)]),
    ],
)
async def test_what_is_tried_next(refusals: list[str], tries: list[tuple[int, bool]]) -> None:
    assert await Cluster(*refusals).made(3, 2, LATER) == tries


async def test_what_stays_refused_is_reported() -> None:
    with pytest.raises(EnvironmentFault, match=r"own cannot be created: TOPIC_AUTHORIZATION_FAILED; CREATE is missing"):
        await Cluster("TOPIC_AUTHORIZATION_FAILED").made(3, 3)
    with pytest.raises(EnvironmentFault, match="INVALID_CONFIG: no such setting"):
        await Cluster("INVALID_CONFIG: no such setting").made(3, 3)
    with pytest.raises(EnvironmentFault, match="INVALID_REPLICATION_FACTOR"):
        await Cluster("INVALID_REPLICATION_FACTOR").made(-1, 1)


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(0, 1, "1"), (2, 2, "1"), (3, 3, "2"), (9, 3, "2")])
def test_what_must_lose_nothing(brokers: int, replicas: int, in_sync: str) -> None:
    shape = safe_shape(FORGETS, brokers)
    assert (shape.replication_factor, shape.settings["min.insync.replicas"]) == (replicas, in_sync)
