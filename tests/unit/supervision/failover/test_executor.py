"""The executor of failovers: each step once, whichever process carries it out."""

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import AnyFact, LaneTaken, LeaseTaken, SourceRun
from mirrord.ledger.facts.recovery import CopyingEnded, Recovery, RecoveryBegan, RecoveryFinished, RecoveryMode
from mirrord.ledger.fold import fold
from mirrord.ledger.folding.failovers import in_progress, is_final
from mirrord.ledger.last_seen.source_ends import SeenEnd
from mirrord.ledger.source_ends import CopiedPart, SourcePartition
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId, TopicId
from mirrord.model.runs import Run
from mirrord.runtime.clock import SystemClock
from mirrord.supervision.failover import executor as module
from mirrord.supervision.failover.client_steps import NOTHING, ClientSteps, HookOutcome
from mirrord.supervision.failover.executor import FailoverExecutor
from mirrord.supervision.rules.failover_plan import STEPS
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened

ADA = Origin("ada@host", "fire", 1)
WHERE = SourcePartition("orders", TopicId("source-topic"), 0)


class Killed(BaseException):
    """The process ends here."""


class Ledger:
    """A ledger in memory. The process that writes to it dies after a number of facts."""

    def __init__(self, mode: RecoveryMode, topics: tuple[str, ...] = ()) -> None:
        self.state = FlowState()
        self.facts: list[AnyFact] = []
        self.dies_after = 99
        self.refuses = 0
        run = SourceRun(lane_id(0), 1, (Run(0, 0),))
        facts: tuple[AnyFact, ...] = (opened(0), LaneTaken(lane_id(0), 1, "r-1"), run)
        for each in (entry(FLOW), entry(LeaseTaken(1, HOLDER, 6_000)), entry(*facts)):
            fold(self.state, each, self.state.next_offset)
        assert self.take(RecoveryBegan(1, mode, topics, ADA))

    def take(self, fact: AnyFact) -> bool:
        (bound,) = fold(self.state, entry(fact), self.state.next_offset)
        self.facts += [fact] if bound else []
        return bound

    async def write(self, fact: AnyFact) -> bool:
        if self.refuses:
            self.refuses -= 1
            return False
        bound = self.take(fact)
        if len(self.facts) > self.dies_after:
            raise Killed
        return bound


class Hands:
    """Everything works at once, unless a test changes it."""

    def __init__(self) -> None:
        self.note = ""
        self.done: list[str] = []
        self.source_end = 12
        self.position = 12
        self.late = 0
        """How many records arrive before the fence and after the target was first read."""
        self.faults: list[str] = []
        self.stuck = ""

    async def _do(self, step: str) -> None:
        if self.faults:
            raise EnvironmentFault(self.faults.pop())
        if self.stuck == step:
            self.note = "it is stuck"
            await asyncio.Event().wait()
        self.done.append(step)

    async def catch_up(self, recovery: Recovery) -> str:
        assert recovery.mode == "planned"
        await self._do("catch up")
        return "all is there"

    async def stop(self, lanes: Sequence[LaneState]) -> None:
        assert {lane.key.id for lane in lanes} <= {lane_id(0)}
        await self._do("stop")

    async def copied(self, lanes: Sequence[LaneState]) -> Mapping[LaneId, CopiedPart]:
        # Nothing may arrive any more once the end of what was copied is read for the last time.
        await self._do("copied, fenced" if "fence" in self.done else "copied")
        return {lane.key.id: CopiedPart(self.position) for lane in lanes}

    async def fence(self, recovery: Recovery) -> str:
        # A lane of a failover that is cancelled must be able to write.
        assert is_final(recovery)
        await self._do("fence")
        self.position += self.late
        return "refused from now on"

    async def source_ends(self, recovery: Recovery) -> Mapping[SourcePartition, SeenEnd]:
        assert not recovery.ended
        return {WHERE: SeenEnd(self.source_end, 5)}

    async def target_ends(self, lanes: Sequence[LaneState]) -> Mapping[LaneId, int]:
        return {lane.key.id: 40 for lane in lanes}

    async def finish_groups(self, recovery: Recovery) -> str:
        assert recovery.ended
        await self._do("groups")
        return "7 positions"


class Clients(ClientSteps):
    """Hooks and permissions that work at once, unless a test changes it."""

    def __init__(self, done: list[str]) -> None:
        self.done = done
        self.fails = False

    async def close(self) -> None:
        pass

    async def before(self, recovery: Recovery) -> HookOutcome:
        self.done.append("before")
        return HookOutcome(self.fails, f"hook of {recovery.number}")

    async def grant(self, recovery: Recovery) -> str:
        assert recovery.ended
        self.done.append("grant")
        return NOTHING

    async def after(self, recovery: Recovery) -> HookOutcome:
        assert recovery.ended
        self.done.append("after")
        return HookOutcome(self.fails, "another hook")


def executor(ledger: Ledger, hands: Hands, *, hooks_fail: bool = False) -> FailoverExecutor:
    clients = Clients(hands.done)
    clients.fails = hooks_fail
    known = (lambda: ledger.state, ledger.write, hands, clients, SystemClock())
    return FailoverExecutor("eu-us", *known, lambda _: lambda *_: 0)


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "POLL_S", 0.001)
    monkeypatch.setattr(module, "RETRY_S", 0.001)


@pytest.mark.parametrize("mode", ["planned", "source-lost"])
async def test_the_facts_of_a_failover(mode: RecoveryMode) -> None:
    ledger, hands = Ledger(mode), Hands()
    await executor(ledger, hands).run()
    (recovery,) = ledger.state.recoveries
    assert (recovery.ended, recovery.cancelled, recovery.partitions, recovery.lost) == (True, False, 1, ())
    assert in_progress(ledger.state.recoveries) is None
    copied = {"settle": "copied", "end": "copied" if mode == "planned" else "copied, fenced"}
    assert hands.done == [copied.get(step, step) for step in STEPS[mode] if step != "finish"]


@pytest.mark.parametrize("mode", ["planned", "source-lost"])
async def test_death_after_every_step_leads_to_the_same_end(mode: RecoveryMode) -> None:
    whole = Ledger(mode)
    await executor(whole, Hands()).run()
    for dies_after in range(1, len(whole.facts)):
        ledger, hands = Ledger(mode), Hands()
        hands.source_end = 12
        ledger.dies_after = dies_after
        with pytest.raises(Killed):
            await executor(ledger, hands).run()
        ledger.dies_after = 99
        await executor(ledger, hands).run()
        assert [each for each in ledger.facts if not isinstance(each, RecoveryFinished)] == [
            each for each in whole.facts if not isinstance(each, RecoveryFinished)
        ]
        assert len(hands.done) == len(set(hands.done)), "a step that was recorded is not repeated"


async def test_what_is_lost_is_recorded() -> None:
    ledger, hands = Ledger("source-lost"), Hands()
    hands.source_end = 20
    await executor(ledger, hands).run()
    (lost,) = ledger.state.recoveries[0].lost
    assert (lost.start, lost.end, lost.seen_ms, lost.target_end) == (12, 20, 5, 40)


async def test_what_arrives_before_the_fence_is_not_lost() -> None:
    ledger, hands = Ledger("source-lost"), Hands()
    hands.source_end, hands.late = 20, 3
    await executor(ledger, hands).run()
    (recovery,) = ledger.state.recoveries
    assert (recovery.lost[0].start, recovery.lost[0].end) == (15, 20)
    assert ("fence", "refused from now on") in [(each.step, each.outcome) for each in recovery.steps]


async def test_a_failover_cannot_be_cancelled_once_lanes_are_fenced() -> None:
    ledger, hands = Ledger("source-lost"), Hands()
    hands.stuck = "fence"
    failover = executor(ledger, hands)
    work = asyncio.create_task(failover.carry_out())
    async with asyncio.timeout(5):
        while failover.remarks != ("failover 1: it is stuck",):
            await asyncio.wait({work}, timeout=0.001)
    assert not ledger.take(RecoveryFinished(1, True, 9))
    assert not ledger.state.recoveries[0].ended
    work.cancel()
    await asyncio.gather(work, return_exceptions=True)


async def test_a_planned_failover_that_is_cancelled_has_fenced_nothing() -> None:
    ledger, hands = Ledger("planned"), Hands()
    hands.source_end = 20
    await executor(ledger, hands).carry_out()
    assert ledger.state.recoveries[0].cancelled
    assert "fence" not in hands.done


async def test_a_planned_failover_loses_nothing_and_is_cancelled_instead() -> None:
    ledger, hands = Ledger("planned"), Hands()
    hands.source_end = 20
    await executor(ledger, hands).carry_out()
    (recovery,) = ledger.state.recoveries
    assert (recovery.ended, recovery.cancelled) == (False, True)
    assert recovery.why == "the target lacks records of orders-0 from offset 12 on: producers may still write"
    assert not any(isinstance(each, CopyingEnded) for each in ledger.facts)


async def test_a_hook_that_fails_cancels_only_a_planned_failover() -> None:
    ledger, hands = Ledger("planned"), Hands()
    await executor(ledger, hands, hooks_fail=True).carry_out()
    assert (hands.done, ledger.state.recoveries[0].why) == (["before"], "hook of 1")
    ledger, hands = Ledger("source-lost"), Hands()
    await executor(ledger, hands, hooks_fail=True).carry_out()
    assert hands.done == ["before", "stop", "copied", "fence", "copied, fenced", "groups", "grant", "after"]


async def test_faults_are_shown_and_the_step_is_repeated() -> None:
    ledger, hands = Ledger("source-lost"), Hands()
    hands.faults, ledger.refuses = ["the target does not answer"] * 3, 2
    failover = executor(ledger, hands)
    shown = set[str]()
    work = asyncio.create_task(failover.run())
    while not work.done():
        shown.update(failover.remarks)
        await asyncio.sleep(0)
    await work
    assert "failover 1: stop: the target does not answer" in shown
    assert "failover 1: before: the step could not be recorded in the ledger" in shown
    assert failover.remarks == ()


async def test_a_failover_is_cancelled_while_a_step_waits() -> None:
    ledger, hands = Ledger("planned"), Hands()
    hands.stuck = "catch up"
    failover = executor(ledger, hands)
    work = asyncio.create_task(failover.carry_out())
    async with asyncio.timeout(5):
        while failover.remarks != ("failover 1: it is stuck",):
            await asyncio.wait({work}, timeout=0.001)
        assert ledger.take(RecoveryFinished(1, True, 9))
        await work
    assert hands.done == ["before"]
    assert failover.remarks == ()


async def test_another_failover_begins_right_after_one_was_cancelled() -> None:
    ledger, hands = Ledger("planned"), Hands()
    hands.stuck = "catch up"
    failover = executor(ledger, hands)
    work = asyncio.create_task(failover.carry_out())
    async with asyncio.timeout(5):
        while failover.remarks != ("failover 1: it is stuck",):
            await asyncio.wait({work}, timeout=0.001)
        assert ledger.take(RecoveryFinished(1, True, 9))
        assert ledger.take(RecoveryBegan(2, "source-lost", (), ADA))
        await work
    assert ledger.state.recoveries[-1].ended


async def test_a_flow_is_left_only_after_all_of_it_has_ended() -> None:
    ledger, hands = Ledger("source-lost", ("orders",)), Hands()
    failover = executor(ledger, hands)
    work = asyncio.create_task(failover.run())
    async with asyncio.timeout(5):
        while in_progress(ledger.state.recoveries) is not None:
            await asyncio.wait({work}, timeout=0.001)
        assert not failover.is_over
        assert ledger.take(RecoveryBegan(2, "source-lost", (), ADA))
        await work
    assert failover.is_over
