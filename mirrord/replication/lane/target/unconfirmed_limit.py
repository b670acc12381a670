"""Limits how many records a lane copies beyond its resume position.

A lane derives the ordinal of a record from the record's sequence number. Sequence numbers wrap around, so it can do
this only if it knows an ordinal that is less than 2^30 away. After a crash, the ordinal of the resume position is the
only known one. The resume position does not advance while records above it must still be compared with the source, or
while a part of the target log must still be read. If the required records cannot be read, the resume position does not
advance at all. Without a limit, the lane could in that case copy 2^30 records or more beyond it.
"""

from mirrord.kafka.protocol.sequence import SEQUENCES
from mirrord.replication.lane.lane_report import resume_position
from mirrord.replication.lane.state import Lane

MOST = SEQUENCES // 4
"""Number of acknowledged records above the resume position at which the lane stops fetching. The number is half of the
permitted distance (2^30). The other half is left for the records that the lane still holds in memory, which are far
fewer."""


def is_over(lane: Lane) -> bool:
    """Return whether the lane must not copy further records until its resume position advances."""
    if lane.log.unread_from is None and lane.comparison.later_from is None:
        return False
    return lane.acked - resume_position(lane).ordinal >= MOST


def line(lane: Lane) -> str:
    """Return one line that tells the operator why the lane is not copying, or an empty string if the lane may copy."""
    if not is_over(lane):
        return ""
    known = resume_position(lane).ordinal
    return (
        f"the lane copies nothing more until ordinals {known} to {lane.acked - 1} have been compared with the source: "
        f"more than {MOST} records must not be unconfirmed"
    )
