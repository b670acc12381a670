"""Applies the facts about failovers to the state of a flow, and determines what they stop.

The state keeps the failovers that have ended the copying of topics, and the newest one. A cancelled failover is dropped
when the next one begins.
"""

from typing import Literal

from msgspec.structs import replace

from mirrord.ledger.facts.recovery import (
    CopyingEnded,
    DoneStep,
    Recovery,
    RecoveryBegan,
    RecoveryFact,
    RecoveryFinished,
    RecoveryStepDone,
)

Recoveries = tuple[Recovery, ...]
"""The failovers of a flow, the newest last."""
CAUGHT_UP: Literal["catch up"] = "catch up"
"""The step of a planned failover after which its topics are no longer copied."""
SETTLED: Literal["settle"] = "settle"
"""The step after which a failover can no longer be cancelled, although the copying has not ended yet: the target then
refuses batches of the lanes' producers."""


def take(recoveries: Recoveries, fact: RecoveryFact) -> Recoveries | None:
    """Return the failovers after a fact, or None if the fact does not take effect."""
    if isinstance(fact, RecoveryBegan):
        return _begin(recoveries, fact)
    current = in_progress(recoveries)
    if current is None or current.number != fact.number:
        return None
    match fact:
        case RecoveryStepDone():
            if any(each.step == fact.step for each in current.steps):
                return None
            current = replace(current, steps=(*current.steps, DoneStep(fact.step, fact.outcome)))
        case CopyingEnded():
            if current.ended:
                return None
            lost = {"lost": fact.lost, "partitions": fact.partitions, "seen_ms": fact.seen_ms}
            current = replace(current, ended=True, **lost)
        case RecoveryFinished():
            if is_final(current) if fact.cancelled else not current.ended:
                return None
            current = replace(current, finished_ms=fact.at_ms, cancelled=fact.cancelled, why=fact.why)
    return (*recoveries[:-1], current)


def _begin(recoveries: Recoveries, fact: RecoveryBegan) -> Recoveries | None:
    number = recoveries[-1].number if recoveries else 0
    if fact.number != number + 1 or in_progress(recoveries) is not None:
        return None
    if ends_all(recoveries) or (fact.topics and all(has_ended(recoveries, topic) for topic in fact.topics)):
        return None
    kept = tuple(each for each in recoveries if not each.cancelled)
    return (*kept, Recovery(fact.number, fact.mode, fact.topics, fact.origin))


def in_progress(recoveries: Recoveries) -> Recovery | None:
    """Return the failover that has begun and has neither been completed nor cancelled, or None."""
    last = recoveries[-1] if recoveries else None
    return last if last is not None and last.finished_ms < 0 else None


def is_final(recovery: Recovery) -> bool:
    """Return whether a failover can no longer be cancelled."""
    return recovery.ended or any(each.step == SETTLED for each in recovery.steps)


def has_ended(recoveries: Recoveries, topic: str) -> bool:
    """Return whether a failover has ended the copying of a source topic."""
    return any(each.ended and concerns(each, topic) for each in recoveries)


def is_over(recoveries: Recoveries, topic: str) -> bool:
    """Return whether a completed failover has ended the copying of a source topic, so that the positions of its
    consumer groups are no longer synced."""
    return any(each.ended and each.finished_ms >= 0 and concerns(each, topic) for each in recoveries)


def ends_all(recoveries: Recoveries) -> bool:
    """Return whether a failover has ended the copying of all topics of the flow."""
    return any(each.ended and not each.topics for each in recoveries)


def stops(recoveries: Recoveries, topic: str) -> bool:
    """Return whether a source topic must not be copied: its copying has ended, or a failover is about to end it."""
    if not recoveries:
        return False
    return has_ended(recoveries, topic) or any(_is_stopped(each) and concerns(each, topic) for each in recoveries)


def _is_stopped(recovery: Recovery) -> bool:
    if recovery.cancelled or recovery.finished_ms >= 0:
        return recovery.ended
    return recovery.mode == "source-lost" or any(each.step == CAUGHT_UP for each in recovery.steps)


def concerns(recovery: Recovery, topic: str) -> bool:
    """Return whether a failover concerns a source topic."""
    return not recovery.topics or topic in recovery.topics
