"""Handles a batch that the target refuses because of its content, or that cannot be read from the source.

The batch is split until the one record that causes the refusal is found (see `source.batch_splitting`). This record is
then in quarantine: the ledger records its source offset and the reason, and the lane halts before the record until an
operator decides.

If the flow's `on_reject` is `skip`, the record is skipped instead. It is first parked: it is written to the dead-letter
topic exactly as it would have been written to the target. If parking fails, the lane halts as in quarantine, and keeps
trying to park the record. The lane does not continue until the ledger contains either the operator's decision or the
fact that the record is skipped.
"""

import msgspec

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.ledger.facts.core import LaneFact, LaneHalted, LaneResumed
from mirrord.ledger.facts.quarantine import Quarantined
from mirrord.ledger.quarantine import lettered_from
from mirrord.replication.lane.correlation import append, ask
from mirrord.replication.lane.dead_letter_signals import Parking
from mirrord.replication.lane.halt import halt_unrecorded, halt_with, record_halt
from mirrord.replication.lane.phases import Phase, Stage
from mirrord.replication.lane.signals import Batch, Effects, Halted, Park, ParkAnswer, Wake
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.transitions import Reopen

LONGEST_PAUSE_S = 60.0
"""Longest pause between two attempts to park a record, in seconds."""


def line_of(error: int, batch: Batch) -> str:
    """Return a line for operators that says what the target refuses."""
    return refusal_line(error, *_range(batch))


def _range(batch: Batch) -> tuple[int, int]:
    return batch.offset, batch.offset + 1 if batch.count == 1 else batch.next_offset


def decide(lane: Lane, error: int, batch: Batch, why: str = "") -> Effects:
    """Quarantine or skip a batch that the target does not accept, as specified by the flow's `on_reject`.

    `why` explains why the target topic's configs differ from those of the source topic, or is empty.
    """
    start, end = _range(batch)
    line = refusal_line(error, start, end) + (f"; {why}" if why else "")
    epoch = lane.seen.before(end) if end == start + 1 else -1
    if lane.on_reject == "skip":
        data = bytes(batch.buffer[batch.start : batch.end])
        return _park_first(lane, Parking(batch.offset, error, line, data, epoch))
    return park(lane, "rejected", error, line, start, end, epoch)


def refusal_line(error: int, start: int, end: int) -> str:
    what = f"record at source offset {start}" if end == start + 1 else f"batch of source offsets [{start}, {end})"
    return f"the target refuses the {what} with Kafka error {error} ({ErrorCode.name_of(error)})"


def park(lane: Lane, reason: str, error: int, line: str, start: int, end: int, epoch: int = -1) -> Effects:
    """Quarantine the source offsets [start, end): halt before them until the ledger contains a decision on them.
    `epoch` is the leader epoch of the records in the source, or -1 if it is not known."""
    skip = lane.on_reject == "skip-unparked"
    if lane.on_reject == "skip":
        line += '; on_reject = "skip" skips only records that are parked, and these cannot be parked'
    lane.halt.line = f"{lane.source_topic}-{lane.partition}: {line}"
    facts: tuple[LaneFact, ...] = (Quarantined(lane.id, lane.grant, start, end, error, line, skip, epoch=epoch),)
    if not skip:
        facts += (LaneHalted(lane.id, lane.grant, reason, lane.halt.line, start, end),)
    return halt_with(lane, facts)


def _park_first(lane: Lane, unparked: Parking) -> Effects:
    lane.halt.line = f"{lane.source_topic}-{lane.partition}: {unparked.line}"
    effects = halt_unrecorded(lane)
    lane.refusal.parking = unparked
    return [*effects, _park(lane, unparked)]


def _park(lane: Lane, unparked: Parking) -> Park:
    behind = lettered_from(lane.record.quarantine) if lane.record is not None else -1
    return Park(ask(lane), unparked.offset, unparked.data, behind)


def parking_answered(lane: Lane, now: float, answer: ParkAnswer) -> Effects:
    """Handle the result of an attempt to park a record. If the record is parked, skip it. Otherwise, halt with the
    record in quarantine, and try again to park it after a pause."""
    unparked = lane.refusal.parking
    if unparked is None:
        return []
    where = (lane.id, lane.grant, unparked.offset, unparked.offset + 1, unparked.error)
    if not answer.trouble:
        lane.refusal.parking, lane.refusal.parking_pause = None, -1
        parked = (True, 1, answer.at, unparked.epoch)
        return record_halt(lane, (Quarantined(*where, unparked.line, *parked),))
    line = f"{unparked.line}; it currently cannot be parked, so it is not skipped: {answer.trouble}"
    lane.halt.line = f"{lane.source_topic}-{lane.partition}: {line}"
    lane.refusal.parking = msgspec.structs.replace(unparked, tries=unparked.tries + 1)
    lane.refusal.parking_pause = ask(lane)
    pause_s = min(lane.limits.denied_s * 2.0 ** min(unparked.tries, 8), LONGEST_PAUSE_S)
    effects: Effects = [Wake(lane.refusal.parking_pause, now + pause_s)]
    if unparked.tries:
        return effects
    halted = LaneHalted(lane.id, lane.grant, "rejected", lane.halt.line, unparked.offset, unparked.offset + 1)
    fact = Quarantined(*where, line, epoch=unparked.epoch)
    return [*record_halt(lane, (fact, halted)), Halted(lane.halt.line), *effects]


def retry_parking(lane: Lane) -> Effects:
    """Try to park the record again."""
    lane.refusal.parking_pause = -1
    return [_park(lane, lane.refusal.parking)] if lane.refusal.parking is not None else []


def released(lane: Lane) -> Effects:
    """Resume after a decision in the ledger. The lane takes a new grant if it is uncertain whether the last append
    under the current grant reached the ledger. Otherwise, it keeps its grant."""
    lane.halt.line, lane.halt.facts = "", ()
    lane.refusal.parking, lane.refusal.parking_pause, lane.refusal.configs_pause = None, -1, -1
    if lane.halt.append_in_doubt:
        lane.halt.append_in_doubt = False
        lane.go(Reopen())
        return []
    lane.phase, lane.stage = Phase.RESUMING, Stage.RELEASED
    effect = append(lane, (LaneResumed(lane.id, lane.grant),))
    lane.facts_tag = effect.tag
    return [effect]
