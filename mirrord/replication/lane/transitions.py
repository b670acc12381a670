"""Requests from a lane's handlers to enter a different phase; `step` carries them out.

A handler calls `Lane.go` with one of these requests and returns. The handlers' modules therefore do not need to import
each other. A table in `mirrord.replication.lane.step` says which function carries out each request.
"""

import msgspec


class Resume(msgspec.Struct, frozen=True):
    """Drop all batches in memory, and determine from the target log where to continue."""

    delay_s: float = 0.0
    """Pause before the first request, in seconds."""
    refresh: bool = False
    """Whether to look up the leader of the target partition again before the first request."""


class Quiesce(msgspec.Struct, frozen=True):
    """Stop sending, wait until all batches in flight have been answered, and then resume."""

    until_safe: bool = True
    """Determines when the lane resumes if no batch is in flight at the time of the request. If true, the lane waits
    until previously sent batches can no longer be appended. If false, the lane resumes at once."""


class Reopen(msgspec.Struct, frozen=True):
    """Take a new grant, because it is not known whether an append to the ledger succeeded."""


class RebuildMap(msgspec.Struct, frozen=True):
    """Halt and rebuild the offset map, because target and source differ."""

    delay_s: float = 0.0


Transition = Resume | Quiesce | Reopen | RebuildMap
