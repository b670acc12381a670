"""Requests of a lane's handlers to enter another phase; `step` carries them out.

A handler calls `Lane.go` with one of these requests and returns. The modules of the handlers therefore do not import
each other. A table in `mirrord.replication.lane.step` says which function carries out each request.
"""

import msgspec


class Resume(msgspec.Struct, frozen=True):
    """Drop all batches in memory, and find out from the target log where to continue."""

    delay_s: float = 0.0
    """Pause before the first question, in seconds."""
    refresh: bool = False
    """Whether to look up the leader of the target partition again before the first question."""


class Quiesce(msgspec.Struct, frozen=True):
    """Stop sending, wait until all batches in flight are answered, and resume."""

    until_safe: bool = True
    """When the lane resumes if no batch is in flight at the time of the request. If true, the lane waits until no batch
    that was sent earlier can still be appended. If false, it resumes at once."""


class Reopen(msgspec.Struct, frozen=True):
    """Take a new grant, because it is not known whether an append to the ledger succeeded."""


class RebuildMap(msgspec.Struct, frozen=True):
    """Halt and rebuild the offset map, because target and source differ."""

    delay_s: float = 0.0


Transition = Resume | Quiesce | Reopen | RebuildMap
