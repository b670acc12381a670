"""Progress records of lanes, and the lease under which a replicator may save them."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirrord.replication.host import lane_host
from mirrord.replication.host.hosted_lane import HostedLane
from mirrord.replication.host.lane_host import LaneHost
from mirrord.runtime.clock import SystemClock


@pytest.mark.parametrize("valid", [True, False])
async def test_no_progress_record_is_saved_without_the_lease(monkeypatch: pytest.MonkeyPatch, valid: bool) -> None:
    """After a long suspension the flow may have another holder, or another ledger."""
    saved: list[str] = []

    async def save(*records: str) -> None:
        saved.extend(records)

    monkeypatch.setattr(lane_host, "progress_record", lambda *_: "progress")
    stub: Any = LaneHost.__new__(LaneHost)
    stub._clock, stub._setup = SystemClock(), SimpleNamespace(lease_epoch=1)
    stub._store, stub._target = SimpleNamespace(save=save), SimpleNamespace(may_write=lambda: valid)
    lane: Any = HostedLane.__new__(HostedLane)
    lane.lane = SimpleNamespace(grant=1, phase=None)
    await cast(LaneHost, stub)._save([lane])
    assert saved == (["progress"] if valid else [])
