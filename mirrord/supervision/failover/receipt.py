"""Builds the receipt of a failover from the flow's ledger."""

from collections.abc import Sequence

from mirrord.config.schema import FlowConfig
from mirrord.ledger.facts.recovery import LostRange, Recovery
from mirrord.ledger.folding.failovers import Recoveries
from mirrord.ledger.state import FlowState
from mirrord.model.failover import FailoverOutcome, FailoverReceipt, FailoverStatus, FailoverStep, LostPartition
from mirrord.supervision.rules.failover_plan import concerned_lanes, next_step


def receipt_of(flow: FlowConfig, bootstrap: Sequence[str], state: FlowState, recovery: Recovery) -> FailoverReceipt:
    """Return the receipt of a failover, which may still be in progress. `bootstrap` are the bootstrap servers of the
    target."""
    names = {lane.source_topic: lane.target_topic for lane in concerned_lanes(state, recovery)}
    lost = tuple(_lost(each, names) for each in recovery.lost)
    counts = [_count(each) for each in recovery.lost]
    return FailoverReceipt(
        flow=flow.name,
        source=flow.source,
        target=flow.target,
        number=recovery.number,
        mode=recovery.mode,
        outcome=_outcome(recovery),
        topics=recovery.topics,
        by=recovery.origin.by,
        reason=recovery.origin.reason,
        began_ms=recovery.origin.at_ms,
        finished_ms=None if recovery.finished_ms < 0 else recovery.finished_ms,
        steps=tuple(FailoverStep(step=each.step, outcome=each.outcome) for each in recovery.steps),
        partitions=recovery.partitions,
        seen_ms=None if recovery.seen_ms < 0 else recovery.seen_ms,
        lost=lost,
        lost_records=None if None in counts else sum(filter(None, counts)),
        bootstrap=tuple(bootstrap),
        names=dict(sorted(names.items())),
        why=recovery.why,
    )


def failover_status(recoveries: Recoveries) -> FailoverStatus | None:
    """Return the status of the newest failover, or None if there was none."""
    if not recoveries:
        return None
    last = recoveries[-1]
    counts = [_count(each) for each in last.lost]
    return FailoverStatus(
        number=last.number,
        mode=last.mode,
        outcome=_outcome(last),
        step=next_step(last) or "",
        lost_records=sum(filter(None, counts)) if last.ended and None not in counts else None,
    )


def _outcome(recovery: Recovery) -> FailoverOutcome:
    if recovery.finished_ms < 0:
        return "in progress"
    return "cancelled" if recovery.cancelled else "complete"


def _count(lost: LostRange) -> int | None:
    if lost.end < 0:
        return None
    return lost.end - lost.start + sum(end - start for start, end in lost.missing)


def _lost(lost: LostRange, names: dict[str, str]) -> LostPartition:
    return LostPartition(
        topic=lost.topic,
        partition=lost.partition,
        target_topic=names.get(lost.topic, ""),
        start=lost.start,
        end=None if lost.end < 0 else lost.end,
        seen_ms=None if lost.seen_ms < 0 else lost.seen_ms,
        target_end=None if lost.target_end < 0 else lost.target_end,
        missing=lost.missing,
        remark=lost.remark,
    )
