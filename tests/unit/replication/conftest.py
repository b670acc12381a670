"""Fixtures for tests of replication."""

import pytest

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.replication.host import superseded_lookup
from tests.fixtures.superseded_logs import FakeLog


@pytest.fixture
def known_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look-ups of superseded records learn the ends of logs from the fake logs."""

    async def bounds(log: FakeLog, partition: PartitionId) -> tuple[int, int]:
        del partition
        return log.end, log.begin

    async def last_stable_offset(log: FakeLog, partition: PartitionId) -> int:
        del partition
        return log.stable

    monkeypatch.setattr(superseded_lookup, "bounds", bounds)
    monkeypatch.setattr(superseded_lookup, "last_stable_offset", last_stable_offset)
