"""Mutations of the rules of failovers (`tests.sim.mutations`)."""

from collections.abc import Callable
from typing import Any

import pytest
from msgspec.structs import replace

from mirrord.ledger import fold as folding
from mirrord.ledger.facts.core import Entry
from mirrord.ledger.facts.recovery import RecoveryFact
from mirrord.ledger.last_seen.source_ends import NEVER, SeenEnds
from mirrord.ledger.offset_map import CopiedPosition
from mirrord.ledger.source_ends import CopiedPart
from mirrord.ledger.state import FlowState
from mirrord.replication.lane import ledger_signals
from mirrord.supervision import settled_lanes
from mirrord.supervision.failover import cluster_ends, daemon_hands, executor, final_commits
from mirrord.supervision.failover.executor import FailoverExecutor
from mirrord.supervision.rules import failover_plan, final_positions
from mirrord.supervision.rules.failover_plan import FailoverLoss
from mirrord.supervision.rules.unrecorded_copies import Written
from tests.sim import world
from tests.sim.failover import process

SwitchOff = Callable[[pytest.MonkeyPatch], None]


# The ledger


def facts_about_lanes_take_effect_after_the_end(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(folding, "has_ended", lambda *_: False)


def the_end_fences_no_lane(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ledger_signals, "over", lambda *_: None)


def steps_of_former_holders_take_effect(patch: pytest.MonkeyPatch) -> None:
    true = folding.fold

    def fold(state: FlowState, entry: Entry, offset: int) -> tuple[bool, ...]:
        is_step = all(isinstance(fact, RecoveryFact) for fact in entry.facts)
        return true(state, replace(entry, lease_epoch=state.lease_epoch) if is_step else entry, offset)

    patch.setattr(world, "fold", fold)
    patch.setattr(process, "fold", fold)


# What was copied


def the_target_shows_what_was_copied(patch: pytest.MonkeyPatch) -> None:
    """The end of the target partition counts as the first lost source offset."""
    true = failover_plan.loss_of

    def loss_of(known: SeenEnds, recovery: Any, copied: Any, ends: Any, targets: Any, start: Any) -> FailoverLoss:
        copied = {lane: CopiedPart(targets.get(lane, part.position)) for lane, part in copied.items()}
        return true(known, recovery, copied, ends, targets, start)

    patch.setattr(executor, "loss_of", loss_of)


def _settled_by(patch: pytest.MonkeyPatch, changed: Callable[[CopiedPart], CopiedPart]) -> None:
    true = settled_lanes.settled_by
    patch.setattr(settled_lanes, "settled_by", lambda *known: changed(true(*known)))


def missing_records_are_not_named(patch: pytest.MonkeyPatch) -> None:
    _settled_by(patch, lambda part: part._replace(missing=()))


def the_progress_record_shows_what_was_copied(patch: pytest.MonkeyPatch) -> None:
    true = settled_lanes.settled_by

    def settled_by(lane: Any, progress: Any, position: int, _written: Written) -> CopiedPart:
        return true(lane, progress, position, Written())

    patch.setattr(settled_lanes, "settled_by", settled_by)


def former_holders_are_not_awaited(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(settled_lanes, "longest_s", lambda _: 0.0)


def every_progress_record_is_final(patch: pytest.MonkeyPatch) -> None:
    for module in (settled_lanes, daemon_hands):
        patch.setattr(module, "is_final", lambda _, progress: progress is not None)


def a_drain_of_a_former_holder_is_final(patch: pytest.MonkeyPatch) -> None:
    def is_final(_: Any, progress: Any) -> bool:
        return progress is not None and progress.state == "drained" and progress.settled

    for module in (settled_lanes, daemon_hands):
        patch.setattr(module, "is_final", is_final)


# The end of the source


def recorded_ends_are_not_used(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SeenEnds, "of", lambda *_: NEVER)


def a_planned_failover_does_not_ask_again(patch: pytest.MonkeyPatch) -> None:
    """The ends that were recorded last count, not those that the source has."""

    async def source_ends(self: Any, _recovery: Any) -> Any:
        return {where: seen for where, seen in SeenEnds(self._state).ends.items() if seen.end >= 0}

    patch.setattr(daemon_hands.DaemonHands, "source_ends", source_ends)


def a_planned_failover_that_loses_records_is_not_cancelled(patch: pytest.MonkeyPatch) -> None:
    async def cancel(self: FailoverExecutor, recovery: Any, _why: str) -> None:
        await self._record(executor.CopyingEnded(recovery.number, (), 1, -1))

    patch.setattr(FailoverExecutor, "_cancel", cancel)


def silent_leaders_have_nothing(patch: pytest.MonkeyPatch) -> None:
    """A planned failover does not need an answer of each leader."""
    patch.setattr(daemon_hands, "complete", lambda ends, _: ends)
    patch.setattr(cluster_ends, "complete", lambda ends, _: ends)


# The steps


def _without(patch: pytest.MonkeyPatch, left_out: str) -> None:
    for mode, steps in failover_plan.STEPS.items():
        patch.setitem(failover_plan.STEPS, mode, tuple(each for each in steps if each != left_out))  # type: ignore[arg-type]


def nobody_waits_until_lanes_are_left(patch: pytest.MonkeyPatch) -> None:
    _without(patch, "stop")


def lanes_are_not_revoked(patch: pytest.MonkeyPatch) -> None:
    """A daemon does not take lanes from replicators that do not leave them."""
    patch.setattr(daemon_hands, "DRAIN_S", 0.0)
    patch.setattr(daemon_hands, "is_final", lambda *_: True)
    patch.setattr(daemon_hands, "_hosted", lambda _: set[Any]())


def a_cancelled_failover_is_carried_on(patch: pytest.MonkeyPatch) -> None:
    """A step does not end when its failover was cancelled and another one has begun."""
    patch.setattr(
        FailoverExecutor, "_is_current", lambda self, _: bool(executor.in_progress(self._ledger().recoveries))
    )


# The positions of groups


def the_progress_record_is_the_final_map(patch: pytest.MonkeyPatch) -> None:
    def copied_position(_lane: Any, progress: Any, _written: Any) -> CopiedPosition | None:
        return None if progress is None else CopiedPosition.by(progress)

    patch.setattr(final_commits, "copied_position", copied_position)


def every_final_map_is_complete(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(final_commits, "is_all", lambda *_: True)


def the_last_commits_are_not_asked_for(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(daemon_hands, "with_commits", lambda positions, _: list(positions))


def positions_are_source_offsets(patch: pytest.MonkeyPatch) -> None:
    true = final_positions.final_plan

    def final_plan(*known: Any) -> Any:
        positions = list(known[0])
        plan = true(positions, *known[1:])
        offsets = {each.group: each.offset for each in positions}
        commits = {group: dict.fromkeys(places, max(0, offsets[group])) for group, places in plan.commits.items()}
        return plan._replace(commits=commits)

    patch.setattr(final_commits, "final_plan", final_plan)


_PLAIN, _OLD = "failover", "failover, old records"
_BUSY, _SLOW, _MOVED = "failover, transactions", "failover, slow", "failover, handed over"
_MISLED, _HOLES = "failover, misled", "failover, refused and forgotten"
RULES: tuple[tuple[str, SwitchOff, str], ...] = (
    ("failover: facts about lanes are void after the end", facts_about_lanes_take_effect_after_the_end, _SLOW),
    ("failover: the end fences lanes", the_end_fences_no_lane, _MISLED),
    ("failover: steps need the lease", steps_of_former_holders_take_effect, _PLAIN),
    ("failover: ordinals lead to source offsets", the_target_shows_what_was_copied, _BUSY),
    ("failover: missing records are named", missing_records_are_not_named, _HOLES),
    ("failover: the target is read", the_progress_record_shows_what_was_copied, _PLAIN),
    ("failover: former holders are awaited", former_holders_are_not_awaited, _SLOW),
    ("failover: only a drained lane is final", every_progress_record_is_final, _PLAIN),
    ("failover: only the last drain is final", a_drain_of_a_former_holder_is_final, _MOVED),
    ("failover: recorded ends count", recorded_ends_are_not_used, _PLAIN),
    ("failover: a planned one asks the source again", a_planned_failover_does_not_ask_again, _PLAIN),
    ("failover: a planned one loses nothing", a_planned_failover_that_loses_records_is_not_cancelled, _PLAIN),
    ("failover: a planned one needs each leader", silent_leaders_have_nothing, _PLAIN),
    ("failover: lanes are left before the end", nobody_waits_until_lanes_are_left, _PLAIN),
    ("failover: lanes are revoked", lanes_are_not_revoked, _PLAIN),
    ("failover: a cancelled one is not carried on", a_cancelled_failover_is_carried_on, _PLAIN),
    ("failover: positions follow the final map", the_progress_record_is_the_final_map, _PLAIN),
    ("failover: an incomplete map is not exact", every_final_map_is_complete, _OLD),
    ("failover: the last commits count", the_last_commits_are_not_asked_for, _PLAIN),
    ("failover: positions are translated", positions_are_source_offsets, _BUSY),
)
