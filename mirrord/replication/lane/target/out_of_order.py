"""Handles batches that the target refuses as out of order (OUT_OF_ORDER_SEQUENCE_NUMBER), although the target log was
read before they were sent. A batch that the broker recognizes as a repeat of a deleted one counts as refused.

Such a refusal shows that the broker remembers the lane's producer, and that the batch does not follow the producer's
last one. The cleaner keeps the last batch of a producer that the broker remembers. There are two possible causes.
First, a batch of a former holder may have been appended after the log was read. The next scan of the log then shows
this batch. Second, a lookup may have found that the records of the ordinals before the refused batch were superseded.
The lane then assumed that these records had been appended and later removed, whereas in fact they were never appended,
or were lost.

Acknowledged ordinals are not in doubt, because the log has not changed since the lane resumed under the same leader.
What the broker remembers may be older than the log. If a replica copies a log from which the cleaner has removed the
producer's last batches, it remembers an earlier batch as the last one. When this replica becomes the leader, it refuses
the next ordinal until it forgets the producer, and the earlier ordinals must not be appended again. In this case, the
lane halts after some attempts.
"""

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.replication.lane.halt import halt
from mirrord.replication.lane.signals import Batch, Effects
from mirrord.replication.lane.state import Lane, SplitLimit
from mirrord.replication.lane.target.evidence import went_back
from mirrord.replication.lane.target.target_scan import before_displaced

OUT_OF_ORDER = frozenset({ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER})
MOST_REFUSALS = 100
"""The lane halts if the same leader refuses an ordinal this many times in succession."""
NEVER_REFUSED = (-1, -1, 0)


def refused(lane: Lane, error: int, batch: Batch) -> Effects:
    """If the target has refused a batch as out of order, remember this. Halt the lane if the target has refused a batch
    with this ordinal too often. No batch may be in flight when this function is called."""
    if error not in OUT_OF_ORDER:
        return []
    ordinal, epoch, times = lane.log.out_of_order
    times = times + 1 if (ordinal, epoch) == (batch.first, lane.log.end_epoch) else 1
    lane.log.out_of_order = (batch.first, lane.log.end_epoch, times)
    if times > 1 and error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER and batch.count > 1:
        # The broker remembers up to five batches, and treats only a batch with the same first and last sequence as a
        # repeat (`findDuplicateBatch` in org.apache.kafka.storage.internals.log.ProducerStateEntry). One of these
        # batches may be from before the log lost records. The broker's last sequence shows that this ordinal is next.
        # A batch with a single record cannot be split, so the lane halts.
        lane.refusal.split = SplitLimit(batch.offset, batch.next_offset, batch.count // 2)
    if times < MOST_REFUSALS:
        return []
    is_repeat = error == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    answer = "treated ordinal {} as a repeat of a deleted one" if is_repeat else "refused ordinal {} as out of order"
    line = (
        f"the target has {answer.format(batch.first)} {times} times in succession, although the lane "
        "read its log before each attempt: what the target remembers about the lane's producer does not match its log"
    )
    return _halt(lane, line)


def is_refused(lane: Lane) -> bool:
    """Return whether the target refused a batch as out of order and has accepted none since, under the same leader."""
    _, epoch, times = lane.log.out_of_order
    return times > 0 and epoch == lane.log.end_epoch


def must_ask_producers(lane: Lane) -> bool:
    """Return whether the lane must request the broker's producer state although it does not rely on this state.

    The reason is that the broker has just shown that it remembers the lane's producer, and that retention on the target
    may have deleted the producer's last records. The log then does not show these records. Without the producer state,
    the lane would send the same ordinal again and again, and the broker would refuse it each time.
    """
    return is_refused(lane) and lane.log.log_start > 0


def is_deleted_repeat(lane: Lane, base_offset: int) -> bool:
    """Return whether the broker has recognized a batch as a repeat of one that retention on the target has deleted."""
    return 0 <= base_offset < lane.log.log_start


def is_all_deleted(lane: Lane) -> bool:
    """Return whether retention on the target has deleted the batch that the broker remembers as the producer's last
    one. The log then lacks this batch, and the broker's answer shows up to which ordinal the lane's records were
    appended."""
    return went_back(lane) and lane.log.log_start > 0


def is_position_refused(lane: Lane) -> bool:
    """Return whether the ordinals directly below the resume position are in doubt. This is the case if only a lookup
    indicates that they were appended, and the broker refuses the ordinal of the resume position as out of order. While
    facts about the target log have not taken effect yet, the ledger may not show that these ordinals were looked up. In
    that case, the result does not depend on the ledger.

    A single refusal is not sufficient: a former holder may have sent a batch after the log was read. If the broker says
    that it remembers the record below the resume position, the refusal has another cause.
    """
    ordinal, _, times = lane.log.out_of_order
    if not is_refused(lane) or times < 2 or ordinal != lane.resume_position.ordinal:
        return False
    return (lane.log.entry is None or went_back(lane)) and (bool(lane.notes) or first_in_doubt(lane) < ordinal)


def first_in_doubt(lane: Lane) -> int:
    """Return the first of the ordinals in doubt that end directly below the resume position. They are in doubt because,
    according to the ledger, only a lookup indicates that they were appended. Displaced ordinals among them are
    included, because the log does not have their records either. If no ordinals are in doubt, return the ordinal of the
    resume position."""
    return before_displaced(lane, lane.resume_position.ordinal)


def halt_without_batches(lane: Lane) -> Effects:
    """Halt, because the broker remembers a batch of the lane, but its log contains none."""
    ordinal = lane.log.out_of_order[0]
    line = f"the target refuses ordinal {ordinal} as out of order, but its log contains no batch of the lane"
    return _halt(lane, line)


def _halt(lane: Lane, line: str) -> Effects:
    lane.log.out_of_order = NEVER_REFUSED
    return halt(lane, "unexplained", line, lane.position, lane.position)
