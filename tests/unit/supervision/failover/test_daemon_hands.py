"""The last step of a daemon before clients move: the final positions of consumer groups."""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirrord.config.schema import FlowConfig
from mirrord.kafka.rules.topic import Topic
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import AnyFact, LaneTaken, LeaseTaken, SourceRun
from mirrord.ledger.facts.recovery import CopyingEnded, Recovery, RecoveryBegan, RecoveryMode
from mirrord.ledger.fold import fold
from mirrord.ledger.source_ends import CopiedPart
from mirrord.ledger.state import FlowState
from mirrord.model.errors import EnvironmentFault
from mirrord.model.group_status import GroupsReport
from mirrord.model.names import LaneId
from mirrord.model.runs import Run
from mirrord.runtime.clock import SystemClock
from mirrord.supervision.failover import daemon_hands as module
from mirrord.supervision.failover.daemon_hands import DaemonHands, DaemonParts
from mirrord.supervision.failover.source_use import SourceGroups
from mirrord.supervision.rules.final_positions import SourceCommit
from mirrord.supervision.settled_lanes import SettledLanes
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

SILENT = "eu does not answer"


class Settled(SettledLanes):
    """What the lanes have copied is known at once."""

    def __init__(self, done: list[str]) -> None:
        self._done = done

    async def until_settled(
        self,
        flow: FlowConfig,
        ledger: Callable[[], FlowState],
        lanes: Sequence[LaneId],
        targets: Mapping[str, Topic],
        waits: Callable[[int], None],
    ) -> dict[LaneId, CopiedPart]:
        del flow, targets, waits
        assert set(lanes) <= set(ledger().lanes)
        self._done.append(f"settled {len(lanes)}")
        return {lane: CopiedPart(12) for lane in lanes}


class World:
    """A failover that has ended the copying, the hands that continue it, and what they do."""

    def __init__(self, mode: RecoveryMode, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state, self.done = FlowState(), list[str]()
        run = SourceRun(lane_id(0), 1, (Run(0, 0),))
        facts: tuple[AnyFact, ...] = (FLOW, LeaseTaken(1, HOLDER, 6_000), opened(0), LaneTaken(lane_id(0), 1, "r-1"))
        recovery = (RecoveryBegan(1, mode, (), Origin("ada@host", "", 1)), CopyingEnded(1, (), 1, 5))
        for fact in (*facts, run, *recovery):
            fold(self.state, entry(fact), self.state.next_offset)
        self.answers: list[SourceGroups | EnvironmentFault] = []
        """What the source says when it is asked for the commits. The last answer is repeated."""
        self.committed: Collection[SourceCommit] = ()
        self.examined: list[Any] = []
        monkeypatch.setattr(module, "LOOK_S", 0.001)
        monkeypatch.setattr(module, "GROUPS_S", 0.05)
        monkeypatch.setattr(module, "source_groups", self._source_groups)
        monkeypatch.setattr(module, "commit_final", self._commit_final)

    @property
    def recovery(self) -> Recovery:
        (recovery,) = self.state.recoveries
        return recovery

    def hands(self) -> DaemonHands:
        async def report() -> GroupsReport:
            return GroupsReport(flow="eu-us", at_ms=1, source="log", groups=tuple(self.examined))

        async def describe(names: Collection[str]) -> Any:
            return SimpleNamespace(topics={})

        flow = FlowConfig(name="eu-us", source="eu", target="us", topics=(".*",))
        parts = SimpleNamespace(
            setup=SimpleNamespace(target=None),
            flow=lambda: flow,
            recorder=SimpleNamespace(state=self.state),
            groups=SimpleNamespace(report=report),
            target=SimpleNamespace(describe=describe),
            may_write=lambda: True,
        )
        return DaemonHands(cast(DaemonParts, parts), Settled(self.done), SystemClock())

    async def _source_groups(self, *_: object) -> SourceGroups:
        self.done.append("asked the source")
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, EnvironmentFault):
            raise answer
        return answer

    async def _commit_final(self, *given: Any) -> str:
        positions: Collection[SourceCommit] = given[4]
        self.done.append("committed")
        self.committed = positions
        return f"{len(positions)} positions"


async def test_a_source_that_was_turned_off_does_not_keep_a_planned_failover(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("planned", monkeypatch)
    world.answers = [EnvironmentFault(SILENT)]
    hands = world.hands()
    notes = set[str]()
    work = asyncio.create_task(hands.finish_groups(world.recovery))
    async with asyncio.timeout(10):
        while not work.done():
            notes.add(hands.note)
            await asyncio.wait({work}, timeout=0.001)
    assert await work == f"0 positions; the last commits on the source could not be verified: {SILENT}"
    assert f"waiting for the commits on the source: {SILENT}" in notes
    assert world.done.count("asked the source") > 1
    assert world.done[-1] == "committed"


async def test_a_source_that_answers_again_is_asked_for_the_last_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("planned", monkeypatch)
    monkeypatch.setattr(module, "GROUPS_S", 60.0)
    commits = SourceGroups({"billing": {("orders", 0): 7}}, ())
    world.answers = [EnvironmentFault(SILENT), EnvironmentFault(SILENT), commits]
    assert await world.hands().finish_groups(world.recovery) == "1 positions"
    assert [(each.group, each.topic, each.offset) for each in world.committed] == [("billing", "orders", 7)]
    assert world.done == ["settled 1", *["asked the source"] * 3, "committed"]


async def test_a_lost_source_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World("source-lost", monkeypatch)
    assert await world.hands().finish_groups(world.recovery) == "0 positions"
    assert world.done == ["settled 1", "committed"]


@pytest.mark.parametrize("mode", ["planned", "source-lost"])
async def test_a_daemon_that_continues_finds_out_first_what_was_copied(
    mode: RecoveryMode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that has carried out the step "end" may have died: the offset maps are not complete before that."""
    world = World(mode, monkeypatch)
    world.answers = [SourceGroups({}, ())]
    await world.hands().finish_groups(world.recovery)
    assert world.done[0] == "settled 1"
