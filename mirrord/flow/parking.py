"""What becomes of a batch that the target refuses for what it holds, or that the source cannot give.

It is split until the one record is found that is the reason (`cutting`). The lane waits in front of that record, in
quarantine with its exact range and the reason, until somebody decides; or leaves it out at once where the flow's policy
says so. Either way the ledger knows before the lane goes on.
"""

from mirrord.flow import opening, resume
from mirrord.flow.asking import append
from mirrord.flow.halting import halt, stand_still
from mirrord.flow.signals import AppendFailed, Batch, Effects
from mirrord.flow.state import Cut, Lane, Phase, Stage
from mirrord.model.facts import LaneFact, LaneHalted, LaneResumed
from mirrord.model.quarantine import Quarantined
from mirrord.wire.batch import CODEC_MASK, HEADER
from mirrord.wire.errors import ErrorCode

TOO_LARGE = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})
"""More than `max.message.bytes`, or than a segment."""
BY_RECORD = frozenset({ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_RECORD})
"""One record is enough for the whole batch to be refused (KIP-467)."""
BY_BATCH = frozenset({ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT})


def refused(lane: Lane, now: float, error: int, batch: Batch) -> Effects:
    """The target refuses a batch, and nothing is in flight any more."""
    if error not in TOO_LARGE | BY_RECORD | BY_BATCH:
        return halt(lane, "refused", _line(error, batch.offset, batch.next_offset), batch.offset, batch.next_offset)
    if batch.count > 1 and error in TOO_LARGE:
        lane.largest = min(lane.largest, (batch.end - batch.start) // 2)
        return resume.begin(lane, now)
    if batch.count > 1 and error in BY_RECORD:
        lane.cut = Cut(batch.offset, batch.next_offset, batch.count // 2)
        return resume.begin(lane, now)
    if error == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE and (codec := _codec(batch)):
        lane.refused_codecs |= {codec}
        return resume.begin(lane, now)
    end = batch.offset + 1 if batch.count == 1 else batch.next_offset
    return park(lane, "rejected", error, _line(error, batch.offset, end), batch.offset, end)


def _codec(batch: Batch) -> int:
    return HEADER.unpack_from(batch.buffer, batch.start)[5] & CODEC_MASK


def _line(error: int, start: int, end: int) -> str:
    what = f"record at source offset {start}" if end == start + 1 else f"batch of source offsets [{start}, {end})"
    return f"the target refuses the {what} with Kafka error {error} ({ErrorCode.name_of(error)})"


def park(lane: Lane, reason: str, error: int, line: str, start: int, end: int) -> Effects:
    """Wait in front of [start, end) until it is decided what becomes of it."""
    skip = lane.on_reject == "skip"
    lane.halt_line = f"{lane.source_topic}-{lane.partition}: {line}"
    facts: tuple[LaneFact, ...] = (Quarantined(lane.id, lane.grant, start, end, error, line, skip),)
    if not skip:
        facts += (LaneHalted(lane.id, lane.grant, reason, lane.halt_line, start, end),)
    return stand_still(lane, facts)


def released(lane: Lane, now: float) -> Effects:
    """The ledger says what becomes of it: go on, under the same grant unless something was not told under it."""
    lane.halt_line, lane.halt_facts = "", ()
    if lane.untold:
        lane.untold = False
        return opening.append_failed(lane, now, AppendFailed(-1, lane.record))
    lane.phase, lane.stage = Phase.RESUMING, Stage.RELEASED
    effect = append(lane, (LaneResumed(lane.id, lane.grant),))
    lane.facts_tag = effect.tag
    return [effect]
