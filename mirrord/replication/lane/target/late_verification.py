"""Compares with the source the records that have been written since a takeover, once the former holder can no longer
write.

The acknowledgements that the lane received do not prove what the target holds, for two reasons. First, an
acknowledgement may refer to a batch of the former holder instead of the lane's own batch. Second, the former holder's
last batch may have been appended after all acknowledged batches. In the second case, the broker would treat the lane's
next batch with the same number of records as a duplicate and would not append it. The lane therefore first asks for the
end of the target log. It does not make the comparison until all batches below that end are known.
"""

from mirrord.kafka.rules.error_policy import NONE, Fetched, fetched
from mirrord.replication.lane.correlation import ask
from mirrord.replication.lane.signals import AskCheck, AskEnd, AskScan, Effects, EndAnswer, ScanAnswer, Wake
from mirrord.replication.lane.source import recorded_epochs, source_epochs
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target import in_doubt, reassigned_ordinals, target_scan
from mirrord.replication.lane.transitions import Quiesce


def begin(lane: Lane, now: float) -> Effects:
    """Begin the final comparison after a takeover, now that the former holder can no longer write."""
    if lane.comparison.later_end >= 0:
        return _compare(lane, now)
    lane.comparison.later_end_question = ask(lane)
    in_doubt.note_question(lane, now)
    return [AskEnd(lane.comparison.later_end_question)]


def end_answered(lane: Lane, now: float, answer: EndAnswer) -> Effects:
    """Handle the answer to the request for the end of the target log. If the former holder can no longer write, none of
    its batches can be appended after this end, so the comparison begins. Otherwise, the lane asks again later."""
    if answer.error != NONE:
        in_doubt.failed(lane, now, answer.error)
    else:
        in_doubt.answered(lane, now)
    if answer.error != NONE or answer.leader_epoch != lane.log.end_epoch:
        return [Wake(ask(lane), now + lane.limits.retry_s)]
    if now < lane.late_writes.former_holder_until:
        return [Wake(ask(lane), lane.late_writes.former_holder_until)]
    lane.comparison.later_end = answer.end
    return _compare(lane, now)


def _compare(lane: Lane, now: float) -> Effects:
    if source_epochs.is_truncation_unrecorded(lane) or (lane.in_flight and lane.expected < lane.comparison.later_end):
        return [Wake(ask(lane), now + lane.limits.poll_s)]
    if lane.expected < lane.comparison.later_end:
        return [AskScan(ask(lane), "later", lane.producer_id, lane.expected, lane.comparison.later_end)]
    lane.late_writes.end_read_at = max(lane.late_writes.end_read_at, lane.late_writes.former_holder_until)
    begun = lane.comparison.later_from or lane.resumed_at
    if lane.acked == begun.ordinal and (lane.plan or lane.in_flight or lane.ready):
        return [Wake(ask(lane), now + lane.limits.poll_s)]
    if lane.acked > begun.ordinal:
        lane.comparison.later_question = ask(lane)
        stretch = (begun.ordinal, lane.acked - 1, target_scan.first_offset_of(lane, begun), lane.expected)
        epochs = recorded_epochs.known_epochs(lane, begun.ordinal)
        return [AskCheck(lane.comparison.later_question, lane.producer_id, *stretch, epochs=epochs)]
    lane.comparison.later_pending, lane.comparison.later_from = False, None
    return reassigned_ordinals.compare_due(lane)


def scan_answered(lane: Lane, now: float, answer: ScanAnswer) -> Effects:
    """Handle the result of a scan of the target log that began after the last acknowledged batch.

    If retention on the target has deleted the offset at which the scan began, the same scan would fail again. The lane
    therefore resumes, so that it learns where the log begins.
    """
    if fetched(answer.error) is Fetched.RANGE:
        lane.go(Quiesce(until_safe=False))
        return []
    if answer.error:
        return [Wake(ask(lane), now + lane.limits.retry_s)]
    if answer.own:
        lane.go(Quiesce(until_safe=False))
        return []
    lane.comparison.later_end = answer.start
    return _compare(lane, now)
