"""Determines the next run in the ledger that the lane has not reached yet."""

from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target.evidence import known_until


def declare(lane: Lane, ordinal: int) -> None:
    """Set `lane.declared` to the ordinal of the first run after `ordinal` in the ledger, or to -1 if there is none.

    A lane that resumes may record the runs of acknowledged records again. As long as this intent has not taken effect,
    the ledger still contains the runs after the acknowledged records (`known_until`). The intent revokes these runs, so
    they do not count.
    """
    following = lane.record.source_runs.after(ordinal) if lane.record is not None else None
    is_revoked = following is not None and lane.intents and following.ordinal >= known_until(lane)
    lane.declared = -1 if following is None or is_revoked else following.ordinal
