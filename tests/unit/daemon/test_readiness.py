"""What a daemon answers about the readiness of its flows, and what that costs the target."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from structlog.testing import capture_logs

from mirrord.config.schema import ClusterConfig, Config, FlowConfig
from mirrord.config.security import Security
from mirrord.daemon import readiness
from mirrord.daemon.cached_answer import TooManyWait
from mirrord.daemon.readiness import FlowLook, ReadinessKeeper, ReadinessQuestion, question_of
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.acls import AclRule
from mirrord.model.errors import ConfigError
from mirrord.model.names import ClusterId
from mirrord.model.readiness import FlowReadiness, PartitionReadiness, ReadinessStatus
from mirrord.model.status import ClusterStatus, FlowPhase, FlowStatus, Totals
from mirrord.recovery.flow_readiness import FlowAssessment, Live, ReadinessOptions
from mirrord.recovery.target_survey import TargetClients
from mirrord.recovery.turns import Turns
from tests.fixtures.clock import FakeClock, settle
from tests.fixtures.supervision import FakeAdmin, FakeCluster, FakeUpkeep

US = ClusterConfig(("127.0.0.1:1",), Security())
FLOWS = tuple(FlowConfig(name=name, source="eu", target="us", topics=("orders",)) for name in ("eu-us", "other"))
CONFIG = Config(clusters={"eu": US, "us": US}, flows=FLOWS)
PARTITION = PartitionReadiness(
    topic="orders", partition=0, target_topic="eu.orders", state="copying", lag_records=5, lag_s=2.0
)
ADA_READS = AclRule("TOPIC", "LITERAL", "eu.orders", "User:ada", "*", "ALL", "ALLOW")


class World(ClusterAccess):
    """A daemon with two flows. The assessments are counted, and the target is not asked."""

    def __init__(self) -> None:
        super().__init__(CONFIG)
        self.clock = self.time = FakeClock()
        self.states: dict[str, FlowPhase] = {"eu-us": "running", "other": "standby"}
        self.assessed = Counter[str]()
        self.blockers: tuple[str, ...] = ()
        self.spent_s = 0.0
        self.has_ledger = True
        self.fault: Exception | None = None
        self.gate = asyncio.Event()
        self.gate.set()
        self.keeper = ReadinessKeeper(self.looks, self, lambda: CONFIG)

    def admin(self, alias: str) -> FakeAdmin:  # noqa: ARG002
        return FakeAdmin(FakeCluster(ClusterId("us-id")))

    def upkeep(self, alias: str) -> FakeUpkeep:  # noqa: ARG002
        return FakeUpkeep(FakeCluster(ClusterId("us-id")))

    def looks(self) -> dict[str, FlowLook]:
        def status(flow: FlowConfig) -> FlowStatus:
            cluster = ClusterStatus("eu", None, reachable=True)
            return FlowStatus(
                name=flow.name,
                source=cluster,
                target=cluster,
                state=self.states[flow.name],
                lease=None,
                totals=Totals.of(()),
                lanes=(),
            )

        ledger = FlowState() if self.has_ledger else None
        return {
            flow.name: FlowLook(
                flow, self.states[flow.name] == "running", lambda flow=flow: status(flow), lambda: ledger
            )
            for flow in FLOWS
            if flow.name in self.states
        }

    async def assess(
        self, flow: FlowConfig, state: FlowState, live: Live, clients: TargetClients, now_ms: int, turns: Turns
    ) -> FlowAssessment:
        assert state.lease_epoch == 0
        assert clients.reads_acls, "later questions may be about principals"
        self.assessed[flow.name] += 1
        await turns.outside(self.gate.wait())
        turns.spent_s = self.spent_s
        if self.fault is not None:
            raise self.fault
        found = FlowReadiness(
            flow=flow.name,
            source="eu",
            target="us",
            ready=False,
            at_ms=now_ms,
            grounds="ledger" if live.reported is None else "daemon",
            blockers=self.blockers,
            partitions=(PARTITION,),
            lag_records=5,
            lag_s=2.0,
        )
        return FlowAssessment(found, 60.0, frozenset({ADA_READS}), ("eu.orders",))

    async def ask(self, flow: str | None = None, **options: Any) -> dict[str, Any]:
        return json.loads(await self.keeper.report(ReadinessQuestion(flow, ReadinessOptions(**options))))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    made = World()
    monkeypatch.setattr(readiness, "assess", made.assess)
    return made


@pytest.fixture
async def running(world: World) -> AsyncGenerator[World]:
    task = asyncio.create_task(world.keeper.run())
    await settle()
    yield world
    task.cancel()


async def test_the_answer_is_about_all_flows_or_about_one(world: World) -> None:
    report = await world.ask()
    assert (report["ready"], [each["flow"] for each in report["flows"]]) == (True, ["eu-us", "other"])
    assert [each["grounds"] for each in report["flows"]] == ["daemon", "ledger"]
    report = await world.ask("other")
    assert [each["flow"] for each in report["flows"]] == ["other"]
    for unknown in ("nope", "eu-uss"):
        with pytest.raises(ConfigError, match=f'no flow "{unknown}" in the configuration; there are: eu-us, other'):
            await world.ask(unknown)
    del world.states["other"]
    with pytest.raises(ConfigError, match='the flow "other" is only just being added or removed'):
        await world.ask("other")


async def test_many_questions_cost_the_target_as_much_as_one(world: World) -> None:
    world.gate.clear()
    asked = [asyncio.create_task(world.ask(rpo_s=float(each % 4))) for each in range(20)]
    await settle()
    asked[0].cancel()
    world.gate.set()
    assert len(await asyncio.gather(*asked[1:])) == 19
    assert world.assessed == {"eu-us": 1, "other": 1}
    world.time.now += 9.9
    await world.ask("other", principals=("User:ada",))
    assert world.assessed == {"eu-us": 1, "other": 1}
    world.time.now += 0.2
    await world.ask("other")
    assert world.assessed == {"eu-us": 1, "other": 2}


async def test_the_options_change_the_answer_and_ask_nothing_again(world: World) -> None:
    assert (await world.ask("other"))["ready"]
    (flow,) = (await world.ask("other", rpo_s=1.0))["flows"]
    assert (flow["ready"], flow["blockers"]) == (False, ["orders-0 is 2 s behind; 1 s are allowed"])
    assert (await world.ask("other", principals=("User:ada",)))["ready"]
    (flow,) = (await world.ask("other", principals=("User:bob",)))["flows"]
    assert flow["blockers"] == [
        f"User:bob may not {operation} eu.orders: no ACL allows it, unless it is a super user"
        for operation in ("READ", "WRITE")
    ]
    assert world.assessed == {"other": 1}


async def test_clients_cannot_ask_many_different_questions(world: World) -> None:
    for each in range(readiness.MOST_QUESTIONS):
        await world.ask(rpo_s=float(each))
    await world.ask(rpo_s=0.0)
    with pytest.raises(TooManyWait, match="8 other questions have just been asked; try again in 10 s"):
        await world.ask(rpo_s=99.0)
    world.time.now += 11.0
    await world.ask(rpo_s=99.0)


async def test_an_expensive_assessment_is_kept_longer(world: World) -> None:
    world.spent_s = 1.0
    await world.ask("other")
    world.time.now += 19.0
    await world.ask("other")
    assert world.assessed["other"] == 1
    world.time.now += 2.0
    await world.ask("other")
    assert world.assessed["other"] == 2


async def test_a_flow_that_has_ceased_to_run_here_is_assessed_again(world: World) -> None:
    await world.ask("eu-us")
    world.states["eu-us"] = "ended"
    (flow,) = (await world.ask("eu-us"))["flows"]
    assert (flow["grounds"], world.assessed["eu-us"]) == ("ledger", 2)
    await world.ask("eu-us")
    assert world.assessed["eu-us"] == 2


@pytest.mark.parametrize(
    ("state", "line"),
    [("starting", "the flow is starting in this daemon"), ("running", "the ledger has not been read yet")],
)
async def test_a_flow_about_which_nothing_is_known_is_not_ready(world: World, state: FlowPhase, line: str) -> None:
    world.states["eu-us"], world.has_ledger = state, False
    (flow,) = (await world.ask("eu-us"))["flows"]
    assert (flow["ready"], flow["blockers"], world.assessed) == (False, [line], {})


async def test_flows_that_run_here_are_assessed_once_a_minute(running: World) -> None:
    assert running.assessed == {"eu-us": 1}
    assert running.keeper.summary("eu-us") == ReadinessStatus(
        ready=True, at_ms=running.time.wall, lag_records=5, lag_s=2.0
    )
    await running.ask("other")
    assert running.keeper.summary("other") is None
    running.states["other"] = "running"
    await running.time.advance(2.0)
    assert running.keeper.summary("other") is not None
    assert running.assessed == {"eu-us": 1, "other": 2}
    await running.time.advance(57.0)
    assert running.assessed["eu-us"] == 1
    await running.time.advance(2.0)
    assert running.assessed["eu-us"] == 2


async def test_a_flow_that_is_not_ready_is_assessed_again_soon(running: World) -> None:
    running.blockers = tuple(f"reason {each}" for each in range(12))
    await running.time.advance(61.0)
    summary = running.keeper.summary("eu-us")
    assert summary is not None
    assert (summary.ready, len(summary.blockers), summary.omitted) == (False, 10, 2)
    before, running.blockers = running.assessed["eu-us"], ()
    await running.time.advance(11.0)
    summary = running.keeper.summary("eu-us")
    assert summary is not None
    assert (summary.ready, running.assessed["eu-us"]) == (True, before + 1)


async def test_a_flow_that_is_gone_is_forgotten_and_a_failure_is_not_the_end(running: World) -> None:
    del running.states["eu-us"]
    await running.time.advance(2.0)
    assert running.keeper.summary("eu-us") is None
    running.states["eu-us"], running.fault = "running", ValueError("no")
    with capture_logs() as logs:
        await running.time.advance(2.0)
    assert {each["event"] for each in logs} == {"readiness_failed"}
    running.fault = None
    await running.time.advance(2.0)
    assert running.keeper.summary("eu-us") is not None


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ([("flw", "eu-us")], 'found the parameter "flw"; allowed: flow, rpo, as'),
        ([("flow", "a"), ("flow", "b")], "flow: found 2 values; allowed: one"),
        ([("rpo", "soon")], 'rpo: found "soon"; allowed: a duration such as "500ms", "5s", "2m" or "1h"'),
        ([("rpo", "")], 'rpo: found ""; allowed: a duration such as "500ms", "5s", "2m" or "1h"'),
        ([("rpo", "1s"), ("rpo", "2s")], "rpo: found 2 values; allowed: one"),
        ([("as", "ada")], 'as: found "ada"; allowed: a principal with its type, such as User:app'),
        ([("as", "User:\n")] * 11, "as: found 11 principals; allowed: at most 10"),
    ],
)
def test_a_wrong_question_gets_one_clear_line(query: list[tuple[str, str]], line: str) -> None:
    with pytest.raises(ConfigError) as raised:
        question_of(query)
    assert str(raised.value) == line


def test_a_question() -> None:
    assert question_of([]) == ReadinessQuestion()
    query = [("flow", "eu-us"), ("rpo", "10s"), ("as", "User:a"), ("as", "User:b")]
    assert question_of(query) == ReadinessQuestion("eu-us", ReadinessOptions(10.0, ("User:a", "User:b")))
