"""Explains gaps between the batches of the source: offsets that no batch contains.

The log of a topic that is not compacted has no gaps, because brokers assign consecutive offsets and delete whole
segments from the start of the log. A gap in such a log means that a segment was lost. A gap therefore gets the verdict
"compacted" only if the topic may have been compacted, and the verdict "unexplained" otherwise. The topic's
cleanup.policy is read when the gap is found. There are two more signs that the topic was compacted: a batch from which
some records are missing, and earlier verdicts in the ledger.
"""

from mirrord.ledger.facts.core import Reason, Verdict
from mirrord.replication.lane.correlation import ask
from mirrord.replication.lane.halt import halt
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import Effects, Lost, Wake
from mirrord.replication.lane.source.cleanup_policy import AskCleanup, CleanupAnswer
from mirrord.replication.lane.state import Lane


def reason_of(lane: Lane, start: int, end: int) -> Reason | None:
    """Return why the source has no batch for [start, end). If the reason is not known yet, store the gap in `lane.gap`
    and return None.

    A gap among records that are to be copied again counts as compacted: the offset map is then rebuilt, and the rebuilt
    map determines the reason. If the records go through policies, the map is not rebuilt (see `vanished_records`).
    """
    if lane.gap.compacts or (lane.plan and not lane.has_policies):
        return "compacted"
    known = next((each for each in _verdicts(lane) if each.start <= start and end <= each.end), None)
    if known is not None:
        lane.gap.compacts = known.reason == "compacted"
        return known.reason
    lane.gap.offsets = (start, end)
    return None


def _verdicts(lane: Lane) -> list[Verdict]:
    """Return earlier verdicts on gaps: the verdict that resulted from the last answer about the cleanup.policy, and
    those in the ledger."""
    recorded = lane.record.newest_verdicts if lane.record is not None else ()
    judged = [lane.gap.judged] if lane.gap.judged is not None else []
    return judged + [each for each in recorded if each.reason in {"compacted", "unexplained"}]


def ask_cleanup(lane: Lane) -> Effects:
    """Ask for the topic's cleanup.policy if a gap has been found and the reason for it is not known yet."""
    if lane.gap.offsets is None or lane.gap.question >= 0:
        return []
    lane.gap.question = ask(lane)
    return [AskCleanup(lane.gap.question)]


def ask_again(lane: Lane) -> Effects:
    """Ask for the cleanup.policy again after the pause that follows a failed attempt to read it."""
    lane.gap.question = -1
    return ask_cleanup(lane)


def cleanup_answered(lane: Lane, now: float, signal: CleanupAnswer) -> Effects:
    """Handle the answer with the cleanup.policy. If the policy could not be read, pause before asking again. Otherwise,
    the batches after the gap are fetched again."""
    if lane.gap.offsets is None or lane.phase is not Phase.COPYING or signal.question != lane.gap.question:
        return []
    start, end = lane.gap.offsets
    if signal.trouble:
        lane.origin.line = f"{lane.source_topic}-{lane.partition}: the cleanup.policy cannot be read: {signal.trouble}"
        lane.gap.question = ask(lane)
        return [Wake(lane.gap.question, now + lane.limits.retry_s)]
    lane.gap.offsets, lane.gap.question, lane.origin.line = None, -1, ""
    # If mirrord has no permission to read the policy, the topic may be compacted, so it is treated as compacted.
    lane.gap.compacts = signal.compacts is not False
    if lane.gap.compacts:
        return []
    lane.gap.judged = Verdict(start, end, "unexplained")
    line = (
        f"the source has no records at the offsets [{start}, {end}), and its topic is not compacted: part of the log "
        "has been lost"
    )
    if lane.on_loss == "halt":
        return halt(lane, "unexplained", line, start, end)
    return [Lost(f"{lane.source_topic}-{lane.partition}: {line}")]


def forget(lane: Lane) -> None:
    """Forget the gap, because a new round begins."""
    lane.gap.offsets, lane.gap.question = None, -1
