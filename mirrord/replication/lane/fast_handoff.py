"""Fast handoff: resumes a cleanly drained lane from the handoff checkpoint, which is the last progress record of the
lane's previous holder.

All requests to the target are sent at once, before the ledger has confirmed the new grant. The first records are
fetched at the same time. The answers remain valid, because no replicator writes to the target partition in the
meantime: the former holder has no batch in flight, and any other replicator would need a grant before it could write.
The lane resumes from the checkpoint if all of these conditions are met:

- The new grant directly follows the grant in the checkpoint.
- The target's leader epoch is the same as in the checkpoint, which means that the target log has not lost records in an
  election.
- The end of the target log is the same as in the checkpoint, which means that no record follows the acknowledged ones.
  The acknowledged records are committed, so the lane does not have to wait for the high watermark.
- The broker remembers the lane's producer, and the producer's last ordinal matches the checkpoint.

Otherwise, the lane resumes normally (see `mirrord.replication.lane.resuming`).
"""

from mirrord.kafka.rules.error_policy import NONE
from mirrord.ledger.facts.core import Progress
from mirrord.replication.lane import resuming
from mirrord.replication.lane.correlation import answers, ask
from mirrord.replication.lane.phases import Phase, Stage
from mirrord.replication.lane.signals import (
    AskEnd,
    AskProducers,
    Chunk,
    Effects,
    EndAnswer,
    FetchFrom,
    LaneRecord,
    ProducersAnswer,
    StopFetch,
)
from mirrord.replication.lane.state import Handed, Lane
from mirrord.replication.lane.target.evidence import next_by_entry, remembers
from mirrord.replication.lane.transitions import Resume


def is_last(word: Progress | None, record: LaneRecord | None) -> bool:
    """Return whether, according to the part of the ledger that has been read, the checkpoint is from the lane's last
    holder. If so, the checkpoint is the lane's newest progress record."""
    return word is not None and record is not None and word.grant == record.grant and word.state == "drained"


def begin(lane: Lane, word: Progress, record: LaneRecord) -> Effects:
    """Ask for the end of the target log and the broker's producer state, and fetch the first records, all at the same
    time. Return no effects if the lane cannot resume from the checkpoint `word`. The caller must already have set the
    lane's resume position to that of the checkpoint."""
    position = record.source_runs.offset_of(word.ordinal)
    if position is None or not word.protected or word.ordinal == 0:
        return []
    if record.halted is not None or lane.comparison.differs is not None:
        return []
    epoch = lane.seen.before(position)
    fetch = FetchFrom(ask(lane), lane.round, position, epoch)
    lane.takeover.fast_handoff = Handed(record.grant, fetch.question, position, epoch)
    return [AskEnd(ask(lane)), AskProducers(ask(lane), record.producer_id), fetch]


def target_answered(lane: Lane, answer: EndAnswer | ProducersAnswer) -> Effects:
    """Handle the target's answer to one of the requests of the fast handoff."""
    handed = lane.takeover.fast_handoff
    if handed is None:
        return []
    if isinstance(answer, EndAnswer):
        handed.end = answer
    else:
        handed.producers, lane.log.entry = answer, answer.entry
    if answer.error != NONE or not agrees(lane, answer):
        return _resume(lane)
    return copy_if_answered(lane)


def agrees(lane: Lane, answer: EndAnswer | ProducersAnswer) -> bool:
    """Return whether the target's answer matches the checkpoint."""
    position = lane.resume_position
    if isinstance(answer, EndAnswer):
        return (answer.leader_epoch, answer.end) == (position.leader_epoch, position.target_offset)
    return remembers(lane) and next_by_entry(lane) == position.ordinal


def grant_bound(lane: Lane, grant: int) -> Effects:
    """Continue the fast handoff after the lane's own grant has taken effect."""
    lane.phase, lane.stage = Phase.RESUMING, Stage.HANDED
    if lane.takeover.fast_handoff is None or grant != lane.takeover.fast_handoff.grant + 1:
        return _resume(lane)
    return copy_if_answered(lane)


def fetched(lane: Lane, chunk: Chunk) -> Effects:
    """Keep the records that were fetched before the new grant was confirmed, until it is known whether they may be
    copied."""
    if lane.takeover.fast_handoff is not None and answers(lane, chunk.question):
        lane.takeover.fast_handoff.chunk = chunk
    return []


def copy_if_answered(lane: Lane) -> Effects:
    """Begin copying if the lane's own grant has taken effect and the target has answered all requests."""
    handed = lane.takeover.fast_handoff
    if handed is None or lane.phase is not Phase.RESUMING or handed.end is None or handed.producers is None:
        return []
    lane.log.end_epoch, lane.log.end = handed.end.leader_epoch, handed.end.end
    effects = resuming.decide(lane)
    early = (lane.position, lane.epoch) == (handed.position, handed.epoch)
    wish = next((each for each in effects if isinstance(each, FetchFrom)), None)
    if early and wish is not None:
        effects.remove(wish)
        lane.questions.discard(wish.question)
        return effects
    lane.questions.discard(handed.fetch)
    lane.takeover.fast_handoff = None
    return effects


def _resume(lane: Lane) -> Effects:
    if lane.phase is Phase.RESUMING:
        lane.go(Resume())
        return []
    lane.takeover.fast_handoff = None
    lane.questions.clear()
    return [StopFetch()]
