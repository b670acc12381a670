"""Determines which of the lane's records retention has deleted from a target log whose leader has changed since the
resume position was saved.

A resume position shows at which target offset the lane continued, but only in the log in which it was saved. An unclean
election may remove other clients' records below this offset. The lane's next records then get lower offsets, and
retention may delete them before the next holder reads the log. For this holder, the log begins after records of which
it knows nothing, or even below the target offset of its resume position.
"""

from mirrord.kafka.protocol.sequence import nearest
from mirrord.replication.lane.signals import ScanAnswer
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target import missing_ordinals, target_scan
from mirrord.replication.lane.target.evidence import next_by_entry, offset_of_position
from mirrord.replication.lane.target.scan_result import Log, Reading


def are_below(lane: Lane, answer: ScanAnswer) -> bool:
    """Return whether the scan has read the log from its start, and the record with the ordinal of the resume position
    may have been below that start."""
    return offset_of_position(lane) < answer.start == lane.log.log_start


def must_ask(lane: Lane, answer: ScanAnswer) -> bool:
    """Return whether the lane must ask the leader where the leader epoch of the resume position ends. The answer shows
    whether the target offset of this position is still valid, on which it depends how many offsets were deleted."""
    position = lane.resume_position
    is_in_doubt = offset_of_position(lane) < position.target_offset and position.leader_epoch >= 0
    return is_in_doubt and are_below(lane, answer) and lane.log.shared == missing_ordinals.NOT_ASKED


def seem_lost(lane: Lane, answer: ScanAnswer) -> bool:
    """Return whether the log begins with a record that belongs below the resume position, and a later leader has
    appended this record.

    There are two explanations. The log lost its end in an election, a former holder began to copy the lost records
    again, and retention has deleted everything before them. Or a former holder sent the batch long ago, and its records
    are in the log a second time. Only the leader can rule out the first one: if it still knows that the epoch of the
    position extends beyond the log start, the log has lost nothing below the position."""
    known, own = lane.resume_position, answer.own
    if not own or lane.log.cleaned or not are_below(lane, answer) or lane.log.is_shared_proven:
        return False
    return target_scan.is_later(lane, own[0]) and nearest(own[0].base_sequence, known.ordinal) < known.ordinal


def read(lane: Lane, answer: ScanAnswer, log: Log, first: int) -> Reading | None:
    """Return the result of a scan that has read the log from its start and should have found the ordinal `first`.
    Return None if nothing shows that records from this ordinal onward were appended and then deleted.

    Later ordinals show this: those of the lane's own batches in the log or, if the log has none, those that the broker
    remembers. If `first` is below the resume position, the ledger has an offset for its record at which the log has
    other records, so the log has lost the record.
    """
    own, known = answer.own, lane.resume_position.ordinal
    behind = nearest(own[0].base_sequence, known) if own else next_by_entry(lane)
    if first < known or behind <= first:
        return None
    if not own:
        return target_scan.all_deleted(lane, behind, answer)
    again = target_scan.never_appended(lane, behind, min(answer.start, own[0].base_offset))
    return target_scan.walk(lane, own, again[0][0] if again else behind, log)
