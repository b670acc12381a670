"""Finds the last of the lane's own batches in a target log that is shorter than expected, by reading earlier parts of
the log."""

from mirrord.replication.lane.correlation import ask
from mirrord.replication.lane.phases import Stage
from mirrord.replication.lane.signals import (
    AskScan,
    Effects,
)
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target import missing_ordinals

LOOK_BACK_RECORDS = 10_000


def begin(lane: Lane) -> Effects:
    """Read the last part of the target log, beginning below the target offset of the resume position, before any record
    is copied again. The log has lost its end, but this part may still contain earlier records of the lane. Each call
    begins further back than the previous one.

    If the log no longer contains any batch of the lane, only the target runs in the ledger show what the log contained.
    Therefore, all of these runs must be in the ledger before the log is read.
    """
    if lane.notes:
        lane.trouble = "the ledger does not record yet where the last records are in the target log"
        return lane.retry()
    if missing_ordinals.must_ask(lane):
        return missing_ordinals.ask_shared(lane)
    lane.log.look_back = LOOK_BACK_RECORDS if lane.log.look_back == 0 else lane.log.look_back * 8
    lane.stage = Stage.VERIFY
    start = max(lane.log.log_start, min(lane.resume_position.target_offset, lane.log.end) - lane.log.look_back)
    return [AskScan(ask(lane), "verify", lane.producer_id, start, lane.log.end)]
