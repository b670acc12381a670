"""The follower of a flow's groups: started, replaced, restarted, and its reports passed on."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest

from mirrord.config.flow_features import GroupsConfig, Mm2RecordsConfig, SyncConfig
from mirrord.config.schema import ClusterConfig, FlowConfig, RuntimeConfig
from mirrord.config.security import Security
from mirrord.ledger.store.memory_log import MemoryLedger
from mirrord.model.errors import EnvironmentFault
from mirrord.model.group_status import TranslatedPosition
from mirrord.model.names import ClusterId
from mirrord.replication.lane.assignment import FlowSetup
from mirrord.supervision import group_follower_keeper
from mirrord.supervision.fleet.engine import ReplicatorUnsure
from mirrord.supervision.group_follower_keeper import GroupKeeper
from tests.fixtures.supervision import FakeEngine, eventually

FLOW = FlowConfig(name="eu-us", source="eu", target="us", topics=(".*",))
CLUSTER = ClusterConfig(("127.0.0.1:1",), Security())
SETUP = FlowSetup(FLOW, CLUSTER, CLUSTER, RuntimeConfig(), 3, ClusterId("a"), ClusterId("b"))


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_follower_keeper, "POLL_S", 0.01)
    monkeypatch.setattr(group_follower_keeper, "SILENT_S", 0.05)


class Kept:
    def __init__(self) -> None:
        self.engine = FakeEngine(MemoryLedger())
        self.keeper = GroupKeeper(self.engine, "mirrord")
        self.flow = FLOW


@asynccontextmanager
async def kept(flow: FlowConfig = FLOW, refusal: EnvironmentFault | None = None) -> AsyncGenerator[Kept]:
    made = Kept()
    made.flow, made.engine.refusal = flow, refusal
    running = asyncio.create_task(made.keeper.run(SETUP, lambda: made.flow))
    try:
        yield made
    finally:
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        assert all(each.dead for each in made.engine.groups)


async def test_one_follower_runs_and_is_asked() -> None:
    async with kept() as made:
        await eventually(lambda: made.engine.groups)
        (follower,) = made.engine.groups
        assert follower.name == "mirrord/eu-us/groups.g3.1"
        translated: list[TranslatedPosition] = []
        made.keeper.on_translated = translated.extend
        position = TranslatedPosition("billing", "orders", "eu.orders", 0, 10, 7, "")
        follower.translated = (position,)
        follower.note = "READ is missing"
        await eventually(lambda: translated and made.keeper.remarks)
        assert (translated, made.keeper.remarks) == ([position], ("READ is missing",))
        report = await made.keeper.report()
        assert report is not None
        assert report.flow == "eu-us"
    assert await made.keeper.report() is None


async def test_one_that_dies_or_falls_silent_is_replaced() -> None:
    async with kept() as made:
        await eventually(lambda: made.engine.groups)
        made.engine.groups[0].die()
        await eventually(lambda: len(made.engine.groups) == 2)
        made.engine.groups[1].silent = True
        await eventually(lambda: len(made.engine.groups) == 3)
        assert [each.name[-2:] for each in made.engine.groups] == [".1", ".2", ".3"]
        await eventually(lambda: made.engine.groups[0].dead and made.engine.groups[1].dead)


async def test_what_a_follower_does_not_work_by_changes_without_another_one() -> None:
    translated: list[TranslatedPosition] = []
    async with kept() as made:
        made.keeper.on_translated = translated.extend
        await eventually(lambda: made.engine.groups)
        (follower,) = made.engine.groups
        made.flow = msgspec.structs.replace(FLOW, topics=("other",), rpo_ms=1_000, sync=SyncConfig(acls="off"))
        for round_ in range(2):
            follower.translated = (TranslatedPosition("billing", "orders", "eu.orders", 0, 10, 7, ""),)
            await eventually(lambda expected=round_ + 1: len(translated) == expected)
        assert made.engine.groups == [follower]


def test_every_field_that_a_follower_ignores_exists() -> None:
    assert set(FlowConfig.__struct_fields__) > group_follower_keeper.NOT_ITS_OWN


async def test_another_configuration_has_another_follower() -> None:
    async with kept() as made:
        await eventually(lambda: made.engine.groups)
        made.flow = msgspec.structs.replace(FLOW, groups=GroupsConfig(mode="forward-only"))
        await eventually(lambda: len(made.engine.groups) == 2)
        assert made.engine.groups[1].setup.flow == made.flow
        # MirrorMaker 2's checkpoints are translated positions, too.
        made.flow = msgspec.structs.replace(FLOW, groups=GroupsConfig(mode="off"))
        await eventually(lambda: len(made.engine.groups) == 3)
        made.flow = msgspec.structs.replace(made.flow, mm2_records=Mm2RecordsConfig(checkpoints=False))
        await eventually(lambda: all(each.dead for each in made.engine.groups))
        assert await made.keeper.report() is None


async def test_the_reason_for_a_missing_follower_is_reported() -> None:
    async with kept(refusal=EnvironmentFault("no room")) as made:
        await eventually(lambda: made.keeper.note)
        assert made.keeper.remarks == ("groups are not followed: no room",)
        made.engine.refusal = None
        await eventually(lambda: made.engine.groups)
        await eventually(lambda: not made.keeper.remarks)


async def test_a_follower_of_another_version_is_replaced_whatever_it_says() -> None:
    former = FakeEngine(MemoryLedger())
    old = await former.start_groups("mirrord/eu-us/groups.g3.1", SETUP, lambda: None)
    old.program, old.reported_setup = "0.0.9", b"nothing that is known here"
    engine = FakeEngine(MemoryLedger(), former=former)
    running = asyncio.create_task(GroupKeeper(engine, "mirrord").run(SETUP, lambda: FLOW, turn=2))
    await eventually(lambda: old.dead and len(engine.groups) == 2)
    assert engine.groups[1].name == "mirrord/eu-us/groups.g3.2.1"
    assert not running.done()
    running.cancel()


async def test_whom_the_process_before_has_left_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    former = FakeEngine(MemoryLedger())
    await former.start_groups("mirrord/eu-us/groups.g3.1", SETUP, lambda: None)
    engine = FakeEngine(MemoryLedger(), former=former)
    found, asked = engine.found, list[str]()

    async def hesitant(prefix: str) -> list[str]:
        asked.append(prefix)
        if len(asked) == 1:
            raise ReplicatorUnsure("Ray does not list its actors")
        return await found(prefix)

    monkeypatch.setattr(engine, "found", hesitant)
    keeper = GroupKeeper(engine, "mirrord")
    running = asyncio.create_task(keeper.run(SETUP, lambda: FLOW, turn=2))
    await eventually(lambda: [each.name for each in engine.groups] == ["mirrord/eu-us/groups.g3.1"])
    assert not running.done()
    running.cancel()
