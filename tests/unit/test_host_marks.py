"""Marks of lanes, and the lease under which a replicator may save them."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirrord.shell import host
from mirrord.shell.clock import SystemClock
from mirrord.shell.host import Host
from mirrord.shell.hosted import Hosted


@pytest.mark.parametrize("valid", [True, False])
async def test_no_mark_is_saved_without_the_lease(monkeypatch: pytest.MonkeyPatch, valid: bool) -> None:
    """After a long sleep the flow may have another holder, or another ledger."""
    saved: list[str] = []

    async def save(*marks: str) -> None:
        saved.extend(marks)

    monkeypatch.setattr(host, "progress", lambda *_: "mark")
    stub: Any = Host.__new__(Host)
    stub._clock, stub._setup = SystemClock(), SimpleNamespace(lease_epoch=1)
    stub._store, stub._target = SimpleNamespace(save=save), SimpleNamespace(may_write=lambda: valid)
    lane: Any = Hosted.__new__(Hosted)
    lane.lane = SimpleNamespace(grant=1, phase=None)
    await cast(Host, stub)._save([lane])
    assert saved == (["mark"] if valid else [])
