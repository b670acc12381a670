"""What a replicator knows about the cleanup policies of target topics."""

from collections.abc import Iterable, Sequence

import pytest

from mirrord.config.schema import ClusterConfig
from mirrord.kafka.client.effective_configs import Effective
from mirrord.replication.host import cleanup_policy
from mirrord.replication.host.cleanup_policy import CleanupPolicies
from tests.fixtures.fake_pipe import as_any

Policies = list[str | None]


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Policies:
    """The answers of the cluster; None if mirrord has no permission. Nothing is cached."""
    found: Policies = []

    async def settings(
        _cluster: ClusterConfig, topics: Sequence[str], _keys: Iterable[str], _timeout_s: float
    ) -> dict[str, Effective]:
        policy = found.pop(0)
        return {} if policy is None else {each: Effective({"cleanup.policy": policy}, frozenset()) for each in topics}

    monkeypatch.setattr(cleanup_policy, "topic_settings", settings)
    monkeypatch.setattr(cleanup_policy, "KNOWN_S", 0.0)
    monkeypatch.setattr(cleanup_policy, "UNKNOWN_S", 0.0)
    return found


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("policies", "last"),
    [
        ([None], None),
        ([None, "compact"], True),
        ([None, "delete"], False),
        (["compact", None], True),
        (["delete", None], False),
        (["compact", None, "delete", None], False),
    ],
)
async def test_the_last_known_policy_counts(answers: Policies, policies: Policies, last: bool | None) -> None:
    answers += policies
    target = CleanupPolicies(as_any(None), 1.0)
    found = [await target.compacts("orders") for _ in policies]
    assert found[-1] is last


@pytest.mark.asyncio
@pytest.mark.parametrize("first", [None, "compact"])
async def test_answers_are_cached(answers: Policies, first: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup_policy, "KNOWN_S", 60.0)
    monkeypatch.setattr(cleanup_policy, "UNKNOWN_S", 60.0)
    answers.append(first)
    target = CleanupPolicies(as_any(None), 1.0)
    assert await target.compacts("orders") is await target.compacts("orders")
    assert not answers
