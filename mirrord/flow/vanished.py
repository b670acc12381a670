"""Gaps between the batches of the source: offsets that no batch contains.

The log of a topic that is not compacted has none, for brokers give offsets without a gap and delete whole segments from
the start of the log. A gap there is damage: a segment was lost. So a gap has the verdict "compacted" only if the topic
may have been compacted, and else "unexplained". The topic's cleanup.policy is read when the gap is found. What the
cleaner leaves behind is evidence as well: a batch without some of its records, and earlier verdicts of the ledger.
"""

from mirrord.flow.asking import ask
from mirrord.flow.cleanup import AskCleanup, CleanupTold
from mirrord.flow.halting import halt
from mirrord.flow.signals import Effects, Lost, Wake
from mirrord.flow.state import Lane, Phase
from mirrord.model.facts import Reason, Verdict


def reason_of(lane: Lane, start: int, end: int) -> Reason | None:
    """Why the source has no batch for [start, end); None while that is not known, and `lane.gap` says so."""
    if lane.compacts or lane.plan:
        return "compacted"
    known = next((each for each in _verdicts(lane) if each.start <= start and end <= each.end), None)
    if known is not None:
        lane.compacts = known.reason == "compacted"
        return known.reason
    lane.gap = (start, end)
    return None


def _verdicts(lane: Lane) -> list[Verdict]:
    """Earlier ones on gaps: that of the last answer, and those of the ledger."""
    told = lane.record.newest_verdicts if lane.record is not None else ()
    judged = [lane.judged] if lane.judged is not None else []
    return judged + [each for each in told if each.reason in {"compacted", "unexplained"}]


def look(lane: Lane) -> Effects:
    """Ask about the gap, if there is one that nothing explains."""
    if lane.gap is None or lane.gap_question >= 0:
        return []
    lane.gap_question = ask(lane)
    return [AskCleanup(lane.gap_question)]


def woken(lane: Lane) -> Effects:
    """The pause before the question is asked again is over."""
    lane.gap_question = -1
    return look(lane)


def told(lane: Lane, now: float, signal: CleanupTold) -> Effects:
    """The policy was read; or it cannot be, and the lane waits. What follows the gap is fetched again."""
    if lane.gap is None or lane.phase is not Phase.COPYING or signal.question != lane.gap_question:
        return []
    start, end = lane.gap
    if signal.trouble:
        lane.doubt_line = f"{lane.source_topic}-{lane.partition}: the cleanup.policy cannot be read: {signal.trouble}"
        lane.gap_question = ask(lane)
        return [Wake(lane.gap_question, now + lane.limits.retry_s)]
    lane.gap, lane.gap_question, lane.doubt_line = None, -1, ""
    # Without the right to read the policy nothing can be claimed of the topic.
    lane.compacts = signal.compacts is not False
    if lane.compacts:
        return []
    lane.judged = Verdict(start, end, "unexplained")
    line = (
        f"the source has no records at the offsets [{start}, {end}), and its topic is not compacted: part of the log "
        "is lost"
    )
    if lane.on_loss == "halt":
        return halt(lane, "unexplained", line, start, end)
    return [Lost(f"{lane.source_topic}-{lane.partition}: {line}")]


def forget(lane: Lane) -> None:
    """A new round begins."""
    lane.gap, lane.gap_question = None, -1
