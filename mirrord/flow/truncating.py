"""The source lost records that were copied: an unclean election raised its epoch and uses their offsets again.

A fetch carries the epoch in front of its position, so the source's broker sees that its log parts from what was copied
(KIP-595, `diverging_epoch`). What was copied stays at the target; the ledger learns of the range under the verdict
"truncated", and the lane goes back and copies the new records under new ordinals.

That gives the next ordinals another meaning, as the mending of a hole does. So first everything that is on its way is
answered and the target is asked what stands there, and nobody else may be writing any more.
"""

from mirrord.flow import intake, limbo, lineage, settling
from mirrord.flow.asking import append, ask
from mirrord.flow.halting import halt
from mirrord.flow.signals import Chunk, Effects, Lost, Wake
from mirrord.flow.state import NOT_YET, Lane
from mirrord.model.facts import SourceRun, Verdict
from mirrord.model.runs import Run

OUT_OF_RANGE = 1


def diverged(lane: Lane, now: float, chunk: Chunk) -> Effects:
    """The source's log is another one in front of the position."""
    start = lane.seen.parting(chunk.diverging_epoch, chunk.diverging_end)
    if start >= lane.position:
        # What was fetched, and not copied, is gone; the position stands.
        lane.seen.diverge(chunk.diverging_end, lane.epoch)
        lane.epoch = lane.seen.before(lane.position)
        return intake.want_more(lane)
    if lane.on_loss == "halt" or lane.plan:
        # Where part of the source is copied again, ordinals are promised to records that are gone now.
        line = f"the source log was truncated: offsets [{start}, {lane.position}) that were copied are gone"
        return halt(lane, "truncated", line, start, lane.position)
    if is_settled(lane):
        return [*_check_anew(lane, now), *_go_back(lane, start, _gone_from(lane, start, chunk.diverging_end))]
    return settling.wait(lane, now)


def is_settled(lane: Lane) -> bool:
    """Nothing is held or on its way, the lane's own or a former holder's."""
    held = lane.in_flight or lane.ready or lane.intents or lane.confirming or lane.acked != lane.next_ordinal
    return not held and not limbo.holds(lane, lane.next_ordinal)


def _check_anew(lane: Lane, now: float) -> Effects:
    """What a comparison is about to find may be what the source has just lost: it is made again behind the cut."""
    if lane.later_check not in lane.questions:
        return []
    lane.questions.discard(lane.later_check)
    return [Wake(ask(lane), now)]


def _gone_from(lane: Lane, start: int, end: int) -> int:
    """From where on the source has lost what was copied. Where a higher epoch began somewhere between two copied
    records, the lane goes back as far as that may be; what the source's log holds still of it is not lost."""
    record = lane.record
    if record is None or record.holes or end <= start:
        return start
    copied = lineage.copied_from(record, start, lane.next_ordinal - 1)
    return min(end, lane.position if copied is None else copied)


def _go_back(lane: Lane, start: int, gone_from: int) -> Effects:
    gone = Verdict(gone_from, lane.position, "truncated")
    line = (
        f"source offsets [{gone_from}, {lane.position}) were copied, and the source has lost them: an unclean election"
    )
    kept = tuple(Verdict(each.start, min(each.end, start), each.reason) for each in lane.skipped if each.start < start)
    lane.skipped.clear()
    lane.seen.part(start)
    lane.position = start
    before = lineage.untold(lane)
    lane.epoch = lane.told_epoch = lane.seen.before(start)  # below 0 it is not known
    lane.told_since = lane.next_ordinal
    lane.open_run = Run(lane.next_ordinal, start)
    lane.declared = -1
    lane.decided = NOT_YET  # other records have these offsets now
    epochs = (*before, (lane.next_ordinal, lane.epoch))
    lane.unbound = (lane.next_ordinal, (*kept, gone))
    effect = append(lane, (SourceRun(lane.id, lane.grant, (lane.open_run,), lane.unbound[1], epochs),))
    lane.intents.append((effect.tag, lane.next_ordinal))
    lane.new_epochs.clear()
    return [Lost(f"{lane.source_topic}-{lane.partition}: {line}"), effect, *intake.want_more(lane)]
