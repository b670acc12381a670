"""Determines the next run in the ledger that the lane has not reached yet."""

from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target.evidence import known_until


def declare(lane: Lane, ordinal: int) -> None:
    """Set `lane.declared` to the ordinal of the first run after `ordinal` in the ledger, or to -1 if there is none.

    If an intent of the lane has not taken effect yet, the lane has resumed and recorded the runs of acknowledged
    records again. This intent revokes the ledger's runs after the acknowledged records (`known_until`), so those runs
    do not count.
    """
    following = lane.record.source_runs.after(ordinal) if lane.record is not None else None
    is_revoked = following is not None and lane.intents and following.ordinal >= known_until(lane)
    lane.declared = -1 if following is None or is_revoked else following.ordinal
