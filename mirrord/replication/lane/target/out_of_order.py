"""Handles batches that the target refuses as out of order (OUT_OF_ORDER_SEQUENCE_NUMBER), although the target log was
read before they were sent.

Such a refusal shows that the broker remembers the lane's producer, and that the batch does not follow the producer's
last one. The cleaner keeps the last batch of a producer that the broker remembers. A former holder may have sent this
batch after the log was read, and the next reading shows it. Otherwise, the ordinals between the last of the lane's own
batches in the log and the refused batch are not in the log. A lookup may have found them superseded, and therefore
taken them for records that had been appended and then removed. Their records were never appended, or were lost.

With the mode "sequence", the lane asks for the producer state in each round, and the answer shows this. With
"at-least-once", or if there is no answer, the refusal is the only evidence.
"""

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.replication.lane.halt import halt
from mirrord.replication.lane.signals import Batch, Effects
from mirrord.replication.lane.state import Lane

OUT_OF_ORDER = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
MOST_REFUSALS = 100
"""The lane halts if the same leader refuses an ordinal this many times in succession."""
NEVER_REFUSED = (-1, -1, 0)


def refused(lane: Lane, error: int, batch: Batch) -> Effects:
    """Note that the target has refused a batch, if it did so because the batch is out of order. Halt the lane if it has
    refused a batch with this ordinal too often. No batch is in flight."""
    if error not in OUT_OF_ORDER:
        return []
    ordinal, epoch, times = lane.log.out_of_order
    times = times + 1 if (ordinal, epoch) == (batch.first, lane.log.end_epoch) else 1
    lane.log.out_of_order = (batch.first, lane.log.end_epoch, times)
    if times < MOST_REFUSALS:
        return []
    line = (
        f"the target has refused ordinal {batch.first} as out of order {times} times in succession, although the lane "
        "read its log before each attempt"
    )
    return _halt(lane, line)


def is_refused(lane: Lane) -> bool:
    """Return whether the target refused a batch as out of order and has accepted none since, under the same leader."""
    _, epoch, times = lane.log.out_of_order
    return times > 0 and epoch == lane.log.end_epoch


def is_position_refused(lane: Lane) -> bool:
    """Return whether the record below the resume position cannot be the last one that the broker remembers. If the
    broker says what it remembers, the lane relies on that instead.

    A single refusal does not show this: a former holder may have sent a batch after the log was read.
    """
    ordinal, _, times = lane.log.out_of_order
    return is_refused(lane) and times > 1 and lane.log.entry is None and ordinal == lane.resume_position.ordinal


def halt_without_batches(lane: Lane) -> Effects:
    """Halt, because the broker remembers a batch of the lane, but its log contains none."""
    ordinal = lane.log.out_of_order[0]
    line = f"the target refuses ordinal {ordinal} as out of order, but its log contains no batch of the lane"
    return _halt(lane, line)


def _halt(lane: Lane, line: str) -> Effects:
    lane.log.out_of_order = NEVER_REFUSED
    return halt(lane, "unexplained", line, lane.position, lane.position)
