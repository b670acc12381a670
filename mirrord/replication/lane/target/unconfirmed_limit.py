"""Limits how far a lane copies ahead of its resume position.

A sequence identifies an ordinal only if it is less than 2^30 away from a known ordinal. After a crash, the known
ordinal is that of the resume position. The resume position waits for comparisons with the source, and until all target
offsets below it have been read. It does not advance while the required records cannot be read.
"""

from mirrord.kafka.protocol.sequence import SEQUENCES
from mirrord.replication.lane.lane_report import resume_position
from mirrord.replication.lane.state import Lane

MOST = SEQUENCES // 4
"""Number of acknowledged records above the resume position at which the lane stops fetching. The lane then holds far
fewer records than this number in memory."""


def is_over(lane: Lane) -> bool:
    """Return whether the lane must not copy more before its resume position advances."""
    if lane.log.unread_from is None and lane.comparison.later_from is None:
        return False
    return lane.acked - resume_position(lane).ordinal >= MOST


def line(lane: Lane) -> str:
    """Return why the lane does not copy, in one line for the operator. Return an empty string if it may copy."""
    if not is_over(lane):
        return ""
    known = resume_position(lane).ordinal
    return (
        f"it copies nothing more until ordinals {known} to {lane.acked - 1} have been compared with the source: "
        f"more than {MOST} records must not be unconfirmed"
    )
