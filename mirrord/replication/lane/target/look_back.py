"""Reads further back in a target log that is shorter than expected, to find the last of the lane's own batches in
it."""

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
    """Read the target log below the recorded offset, before any record is copied again. Even if the log went back, the
    lane's records may still be in it. Each call reads further back than the previous one.

    If no batch of the lane is left to read, the target runs show what was in the log. Therefore, the ledger must first
    contain all of these runs.
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
