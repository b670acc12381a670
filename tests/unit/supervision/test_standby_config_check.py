"""A standby reports that its configuration differs from the one the lease holder runs with."""

import asyncio

import pytest

from mirrord.config.changes import ConfigChanges, FlowChange
from mirrord.config.schema import Config
from mirrord.supervision import standby_config_check
from mirrord.supervision.daemon_http_client import CommandRefused, NoAnswer
from mirrord.supervision.standby_config_check import StandbyLook
from tests.fixtures.fake_pipe import as_any
from tests.fixtures.supervision import eventually

HTTP = "http://127.0.0.1:8182"


@pytest.mark.parametrize(
    ("changes", "difference"),
    [
        (ConfigChanges(), ""),
        (ConfigChanges(flows=(FlowChange("other", "changed", ("topics: a",)),)), ""),
        (ConfigChanges(flows=(FlowChange("eu-us", "changed", ("topics: a", "rpo: 3 s")),)), "topics: a; rpo: 3 s"),
        (ConfigChanges(flows=(FlowChange("eu-us", "added"),), replicators=("count: 2",)), "added (and 1 more)"),
        (ConfigChanges(refused=("clusters.eu: bootstrap",)), "clusters.eu: bootstrap"),
        (ConfigChanges(refused=("http: it is read only when a daemon starts", "instance: as well")), ""),
    ],
)
async def test_the_holder_is_asked_what_differs(
    monkeypatch: pytest.MonkeyPatch, changes: ConfigChanges, difference: str
) -> None:
    asked: list[str] = []

    async def order_apply(http: str, config: Config, *, dry_run: bool) -> ConfigChanges:
        assert dry_run, "nothing is altered"
        assert config is not None
        asked.append(http)
        if len(asked) == 1:
            raise NoAnswer("no answer in time")
        return changes

    monkeypatch.setattr(standby_config_check, "order_apply", order_apply)
    monkeypatch.setattr(standby_config_check, "EVERY_S", 0.01)
    monkeypatch.setattr(standby_config_check, "SOON_S", 0.01)
    holders = {"eu-us": HTTP}
    look = StandbyLook(lambda: as_any(object()), lambda: holders)
    running = asyncio.create_task(look.run())
    await eventually(lambda: len(asked) > 2)
    line = f"is a standby with a different configuration from that of {HTTP}: {difference}"
    assert look.remarks == ({"eu-us": line} if difference else {})
    assert set(asked) == {HTTP}
    holders.clear()
    await eventually(lambda: look.remarks == {})
    running.cancel()


async def test_a_holder_that_takes_no_orders_from_here_is_not_pressed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    async def order_apply(http: str, config: Config, *, dry_run: bool) -> ConfigChanges:
        asked.append(http)
        raise CommandRefused(f"{http} accepts commands from its own machine: {config}, {dry_run}")

    monkeypatch.setattr(standby_config_check, "order_apply", order_apply)
    monkeypatch.setattr(standby_config_check, "SOON_S", 0.0)
    look = StandbyLook(lambda: as_any(object()), lambda: {"eu-us": HTTP})
    running = asyncio.create_task(look.run())
    await eventually(lambda: bool(asked))
    await asyncio.sleep(0.05)
    assert (asked, look.remarks) == ([HTTP], {})
    running.cancel()
