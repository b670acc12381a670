"""Adds target offsets to ranges of lost ordinals: the offsets at which, according to the ledger, their records were
stored in the target log.

The records of one range may not have been adjacent in the log, because other clients' records were between them. Such a
record of another client may be newer than the first lost records of the range and older than the last ones.
"""

from msgspec.structs import replace

from mirrord.model.runs import Run
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target.evidence import known_until
from mirrord.replication.lane.target.scan_result import Missing


def added(lane: Lane, missing: Missing) -> Missing:
    """Return `missing` with the ledger's target runs for the lost records, if these runs show which other clients'
    records are older than the lost ones.

    The runs show this only under three conditions. The leader epoch in which the lost records were last in the log must
    be known, because a record of a later epoch may be newer than the lost records even if its offset is lower than the
    recorded ones. All facts about the target log must have taken effect. The lost records must have been acknowledged.
    """
    record = lane.record
    if missing.kind != "lost" or missing.leader_epoch < 0 or record is None or lane.notes:
        return missing
    last = min(missing.last, known_until(lane) - 1)
    pieces = record.target_runs.between(missing.first, last)
    runs = (Run(ordinal, offset) for ordinal, offset, length in pieces if offset + length > missing.above)
    return replace(missing, recorded_at=tuple(runs))
