"""How long the target remembers producers: the shortest time of all brokers, read again, or none if not reported."""

import asyncio
from collections.abc import Mapping

import pytest

from mirrord.config.schema import ClusterConfig
from mirrord.config.security import Security
from mirrord.kafka.client import producer_expiry as module
from mirrord.kafka.client.connection import Unreachable
from mirrord.kafka.client.producer_expiry import NOT_VISIBLE, ProducerExpiry
from mirrord.replication.lane.limits import Limits
from mirrord.replication.lane.signals import ProducerEntry
from mirrord.replication.lane.target.evidence import remembers
from mirrord.runtime.clock import SystemClock
from tests.fixtures.fake_pipe import until
from tests.unit.replication.lane.source.test_source_epochs import idle

CLUSTER = ClusterConfig(("h:1",), Security())


class Brokers:
    """Brokers with a config each; None: it may not be described; absent: the broker does not answer."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, settings: Mapping[int, int | None]) -> None:
        self.settings = dict(settings)
        self.nodes = list(settings)
        monkeypatch.setattr(module, "producer_expiry_ms", self.ask)
        monkeypatch.setattr(module, "LOOK_S", 0.01)
        self.expiry = ProducerExpiry("us", CLUSTER, lambda: self.nodes, SystemClock())

    async def ask(self, _cluster: ClusterConfig, node: int, _timeout_s: float) -> int | None:
        if node not in self.settings:
            raise Unreachable("it is down")
        return self.settings[node]


async def test_the_shortest_counts_and_changes_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, {1: 9_000, 2: 5_000, 3: 7_000})
    await brokers.expiry.until_known()
    assert brokers.expiry.shortest_ms == 9_000
    reported: list[int] = []
    following = asyncio.create_task(brokers.expiry.follow(reported.append))
    await until(lambda: reported[-1:] == [5_000])
    del brokers.settings[2]  # it does not answer and may lead again
    brokers.settings[1] = 6_000
    seen = len(reported)
    await until(lambda: len(reported) > seen + 2)
    assert reported[-1] == 5_000
    brokers.nodes.remove(2)
    await until(lambda: reported[-1] == 6_000)
    following.cancel()


async def test_a_setting_that_may_not_be_seen_protects_no_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(monkeypatch, {1: None, 2: 5_000})
    await brokers.expiry.until_known()
    assert brokers.expiry.shortest_ms == NOT_VISIBLE
    lane, _, _ = idle()
    lane.log.entry = ProducerEntry(0, 0)
    assert remembers(lane)
    lane.limits = Limits(producer_expiry_ms=brokers.expiry.shortest_ms)
    assert not remembers(lane)
