"""Carries out the steps of a failover, in the process that holds the flow's lease.

The state of a failover is in the ledger alone. If this process ends, the next holder of the lease continues with the
first step that has not been completed. Each step can be repeated without harm.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

import structlog

from mirrord.ledger.facts.core import AnyFact
from mirrord.ledger.facts.recovery import CopyingEnded, Recovery, RecoveryFinished, RecoveryStepDone
from mirrord.ledger.folding.failovers import in_progress
from mirrord.ledger.last_seen.source_ends import SeenEnd, SeenEnds
from mirrord.ledger.source_ends import CopiedPart, SourcePartition, StartOffset, has_begun
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.errors import EnvironmentFault, MirrordError, internal_error
from mirrord.model.names import LaneId
from mirrord.runtime.clock import Clock
from mirrord.supervision.failover.client_steps import ClientSteps
from mirrord.supervision.failover.ended_flow import is_ended
from mirrord.supervision.rules.failover_plan import Step, concerned_lanes, loss_of, next_step

POLL_S = 0.1
"""Interval, in seconds, at which the ledger is checked for a new or cancelled failover."""
RETRY_S = 1.0
"""Pause before a step is repeated that failed because a cluster did not answer."""

log = structlog.get_logger()


class FailoverHands(Protocol):
    """What differs between the processes that can carry out a failover: a daemon, and the command itself."""

    note: str
    """What the current step waits for, as one line for operators, or an empty string."""

    async def catch_up(self, recovery: Recovery) -> str:
        """Wait until the target has all records of the source, and the source is not used. Return what was
        found. Raises EnvironmentFault if a cluster does not answer."""
        ...

    async def stop(self, lanes: Sequence[LaneState]) -> None:
        """Wait until no process copies these lanes any longer, apart from processes that can no longer write once their
        lease has expired. Raises EnvironmentFault."""
        ...

    async def copied(self, lanes: Sequence[LaneState]) -> Mapping[LaneId, CopiedPart]:
        """Return what each of these lanes has copied in the end. Raises EnvironmentFault."""
        ...

    async def fence(self, recovery: Recovery) -> str:
        """Make the target refuse late batches of processes that were suspended. Return what was done, and of which
        partitions it is impossible. From then on, `copied` reads the target again. Raises EnvironmentFault if the
        target does not answer at all."""
        ...

    async def source_ends(self, recovery: Recovery) -> Mapping[SourcePartition, SeenEnd]:
        """Return the high watermarks of the partitions whose leaders answer. Raises EnvironmentFault if the failover is
        planned and a leader does not answer."""
        ...

    async def target_ends(self, lanes: Sequence[LaneState]) -> Mapping[LaneId, int]:
        """Return the high watermarks of the target partitions. Raises EnvironmentFault."""
        ...

    async def finish_groups(self, recovery: Recovery) -> str:
        """Commit the final positions of the consumer groups on the target. Return what was done. Raises
        EnvironmentFault."""
        ...


class FailoverExecutor:
    """Carries out the failovers of one flow while this process holds its lease."""

    def __init__(
        self,
        flow: str,
        ledger: Callable[[], FlowState],
        write: Callable[[AnyFact], Awaitable[bool]],
        hands: FailoverHands,
        clients: ClientSteps,
        clock: Clock,
        start_offset: Callable[[FlowState], StartOffset],
    ) -> None:
        """`write` appends a fact, and returns whether it took effect. `start_offset` returns the function that says
        where lanes without a position begin."""
        self._ledger = ledger
        self._write = write
        self._hands = hands
        self._clients = clients
        self._clock = clock
        self._start_offset = start_offset
        self._log = log.bind(flow=flow)
        self._fault = ""

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the failover in progress waits for, as one line for operators. Empty if there is none."""
        recovery = in_progress(self._ledger().recoveries)
        if recovery is None:
            return ()
        return (f"failover {recovery.number}: {self._fault or self._hands.note or next_step(recovery)}",)

    async def run(self) -> None:
        """Carry out failovers until one has ended the copying of the whole flow. Then return."""
        try:
            while not self.is_over:
                if in_progress(self._ledger().recoveries) is None:
                    await asyncio.sleep(POLL_S)
                else:
                    await self.carry_out()
        finally:
            await self._clients.close()

    @property
    def is_over(self) -> bool:
        """Whether a completed failover has ended the copying of the whole flow."""
        return is_ended(self._ledger())

    async def carry_out(self) -> None:
        """Carry out the failover that is in progress, and return when it has been completed or cancelled."""
        while (recovery := in_progress(self._ledger().recoveries)) is not None:
            step = next_step(recovery)
            if step is None:
                return
            self._hands.note = ""
            work = asyncio.create_task(self._carry_out(recovery, step))
            try:
                while not work.done() and self._is_current(recovery):
                    await asyncio.wait({work}, timeout=POLL_S)
            finally:
                work.cancel()
                await asyncio.gather(work, return_exceptions=True)
            if work.cancelled():
                continue  # an operator has cancelled the failover
            fault = work.exception()
            if fault is not None and not isinstance(fault, Exception):
                raise fault
            self._note_fault(step, fault)
            if fault is not None:
                await asyncio.sleep(RETRY_S)

    def _is_current(self, recovery: Recovery) -> bool:
        """Return whether a failover is still in progress. If it was cancelled, another one may have begun already."""
        current = in_progress(self._ledger().recoveries)
        return current is not None and current.number == recovery.number

    async def _carry_out(self, recovery: Recovery, step: Step) -> None:
        match step:
            case "before":
                await self._before(recovery)
            case "catch up":
                await self._done(recovery, step, await self._hands.catch_up(recovery))
            case "stop":
                await self._hands.stop(concerned_lanes(self._ledger(), recovery))
                await self._done(recovery, step, "")
            case "settle":
                await self._hands.copied(self._begun(recovery))
                await self._done(recovery, step, "")
            case "fence":
                await self._done(recovery, step, await self._hands.fence(recovery))
            case "end":
                await self._end(recovery)
            case "groups":
                await self._done(recovery, step, await self._hands.finish_groups(recovery))
            case "grant":
                await self._done(recovery, step, await self._clients.grant(recovery))
            case "after":
                await self._done(recovery, step, (await self._clients.after(recovery)).line)
            case "finish":
                await self._record(RecoveryFinished(recovery.number, False, self._clock.wall_ms()))

    async def _before(self, recovery: Recovery) -> None:
        outcome = await self._clients.before(recovery)
        if outcome.failed and recovery.mode == "planned":
            await self._cancel(recovery, outcome.line)
        else:
            await self._done(recovery, "before", outcome.line)

    async def _cancel(self, recovery: Recovery, why: str) -> None:
        self._log.error("failover_cancelled", number=recovery.number, reason=why)
        await self._record(RecoveryFinished(recovery.number, True, self._clock.wall_ms(), why))

    async def _end(self, recovery: Recovery) -> None:
        state = self._ledger()
        lanes = concerned_lanes(state, recovery)
        copied = await self._hands.copied(self._begun(recovery))
        ends = await self._hands.source_ends(recovery)
        targets = await self._hands.target_ends(lanes)
        loss = loss_of(SeenEnds(self._ledger()), recovery, copied, ends, targets, self._start_offset(state))
        if recovery.mode == "planned" and loss.ranges:
            first, more = loss.ranges[0], len(loss.ranges) - 1
            others = f" (and {more} more partitions)" if more else ""
            lacks = f"the target lacks records of {first.topic}-{first.partition} from offset {first.start} on{others}"
            await self._cancel(recovery, f"{lacks}: producers may still write")
            return
        await self._record(CopyingEnded(recovery.number, loss.ranges, loss.partitions, loss.seen_ms))

    def _begun(self, recovery: Recovery) -> list[LaneState]:
        state = self._ledger()
        return [lane for lane in concerned_lanes(state, recovery) if lane.grant and has_begun(state, lane)]

    async def _done(self, recovery: Recovery, step: Step, outcome: str) -> None:
        await self._record(RecoveryStepDone(recovery.number, step, outcome))

    async def _record(self, fact: AnyFact) -> None:
        """Append a fact. Raises EnvironmentFault if it did not take effect. The step is then repeated."""
        if not await self._write(fact):
            raise EnvironmentFault("the step could not be recorded in the ledger")
        step = fact.step if isinstance(fact, RecoveryStepDone) else type(fact).__name__
        self._log.info("failover_step", step=step)

    def _note_fault(self, step: Step, fault: Exception | None) -> None:
        """Show why a step has failed. A step that fails because of an error in mirrord itself is repeated as well: the
        flow must not end because of it."""
        if fault is None:
            self._fault = ""
            return
        is_expected = isinstance(fault, MirrordError)
        line = f"{step}: {fault if is_expected else internal_error(fault)}"
        if line != self._fault:
            self._log.warning("failover_waits", reason=line, exc_info=None if is_expected else fault)
        self._fault = line
