"""Decides whether a failover can begin or be cancelled."""

from collections.abc import Collection, Sequence
from typing import get_args

from mirrord.config.fault_text import closest_name
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.recovery import RecoveryBegan, RecoveryFinished, RecoveryMode
from mirrord.ledger.folding.failovers import Recoveries, ends_all, has_ended, in_progress, is_final
from mirrord.model.errors import ConfigError
from mirrord.supervision.rules.ruling import Ruling

MODES: tuple[RecoveryMode, ...] = get_args(RecoveryMode)


def rule_failover(
    flow: str, recoveries: Recoveries, copied: Collection[str], mode: str, topics: Sequence[str], origin: Origin
) -> Ruling[RecoveryBegan]:
    """Return the fact that begins a failover. `copied` are the source topics that the flow has ever copied, and
    `topics` those to which the failover is limited; none means all of them.

    There is no fact if such a failover is in progress, or if the copying has already ended. Raises ConfigError if the
    failover is impossible.
    """
    if mode not in MODES:
        raise ConfigError(f'mode: found "{mode}"; allowed: {", ".join(MODES)}')
    current = in_progress(recoveries)
    if current is not None:
        if (current.mode, set(current.topics)) == (mode, set(topics)):
            return Ruling(None, f"failover {current.number} ({mode}) of {flow} is in progress")
        of = ", ".join(current.topics) or "the whole flow"
        raise ConfigError(
            f"failover {current.number} of flow {flow} is in progress (--{current.mode}, of {of}): run it to its end "
            "with the same options, or cancel it with --cancel"
        )
    for topic in topics:
        if topic not in copied:
            like = closest_name(topic, sorted(copied))
            hint = f'; did you mean "{like}"?' if like else ""
            raise ConfigError(f'topics: flow {flow} has copied no topic "{topic}"{hint}')
    if ends_all(recoveries) or (topics and all(has_ended(recoveries, topic) for topic in topics)):
        return Ruling(None, f"a failover has already ended the copying of {', '.join(topics) or flow}")
    for topic in topics:
        if has_ended(recoveries, topic):
            raise ConfigError(f'topics: the copying of "{topic}" has already ended')
    number = recoveries[-1].number + 1 if recoveries else 1
    fact = RecoveryBegan(number, next(each for each in MODES if each == mode), tuple(topics), origin)
    return Ruling(fact, f"failover {number} ({mode}) of {flow} has begun")


def rule_cancel(flow: str, recoveries: Recoveries, at_ms: int) -> RecoveryFinished:
    """Return the fact that cancels the failover in progress. Raises ConfigError if there is none, or if it has already
    ended the copying."""
    current = in_progress(recoveries)
    if current is None:
        raise ConfigError(f"no failover of flow {flow} is in progress")
    if is_final(current):
        done = "has ended the copying" if current.ended else "is about to end the copying"
        raise ConfigError(f"failover {current.number} of flow {flow} {done}: complete it")
    return RecoveryFinished(current.number, True, at_ms)


def check_no_failover(flow: str, recoveries: Recoveries) -> None:
    """Raise ConfigError if a failover of the flow is in progress, or has ended the copying of the whole flow. A drill
    then has nothing to rehearse."""
    current = in_progress(recoveries)
    if current is not None:
        raise ConfigError(f"flow {flow}: failover {current.number} is in progress, so there is nothing to rehearse")
    if ends_all(recoveries):
        raise ConfigError(f"flow {flow}: a failover has ended its copying for good, so there is nothing to rehearse")
