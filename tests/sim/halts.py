"""Halts for which no fault is an excuse."""

from mirrord.ledger.state import LaneState


def unrecorded_difference(record: LaneState) -> bool:
    """Return whether a lane has halted because target and source differ, and the ledger does not contain the
    difference. Then neither this holder nor a later one rebuilds the map."""
    is_recorded = record.last_check is not None and record.last_check.outcome == "different"
    return record.halted is not None and "target and source differ" in record.halted.line and not is_recorded
