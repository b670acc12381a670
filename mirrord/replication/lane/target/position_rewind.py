"""Determines which saved resume positions are still valid after the target log has lost records, and ordinals were
assigned to other source records.

A resume position contains an ordinal, and the offset map in the ledger shows to which source record this ordinal
belongs. A holder may reassign ordinals and end before it saves a lower resume position. The next holder then reads the
former resume position, whose ordinal belonged to another source record. In a compacted target topic, this could lose
records: the next holder would treat records that were never copied as copied records that the log has lost. Therefore,
the fact that reassigns ordinals also contains a resume position. Saved positions that are older and higher are no
longer valid.
"""

import sys
from collections.abc import Sequence

from mirrord.ledger.facts.core import Progress, Rewound
from mirrord.model.runs import Run, Runs
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import LaneRecord
from mirrord.replication.lane.source.source_epochs import UNKNOWN, recorded_at
from mirrord.replication.lane.state import Lane, ResumePosition
from mirrord.replication.lane.target import missing_ordinals
from mirrord.replication.lane.target.evidence import known_until

RESUMED = frozenset({Phase.COPYING.value, Phase.SETTLING.value, Phase.DRAINING.value, Phase.DRAINED.value})
"""Phases of a lane that has read where the target log ends. In these phases, the resume position is that of the current
holder, not of a former one."""


def rewound_by(
    lane: Lane, runs: Sequence[Run], position: ResumePosition, epochs: Sequence[tuple[int, int]] = ()
) -> Rewound | None:
    """Return the `Rewound` that the fact with these runs has to contain. Return None if no acknowledged ordinal is
    reassigned, because then no saved resume position can be too high.

    All records below the resume position `position` are known to be in the target log. `epochs` are pairs (ordinal,
    leader epoch of the source) that the same fact contains. A record of another epoch is another record, even at the
    same source offset. If acknowledged ordinals are reassigned, the lane also notes that their acknowledgements no
    longer apply.
    """
    record = lane.record
    if record is None or not runs or known_until(lane) <= runs[0].ordinal:
        return None
    copied = lane.history.acknowledged_epochs
    others = (at for at, epoch in epochs if epoch > recorded_at(copied, at) > UNKNOWN)
    first = min(_first_changed(record.source_runs, runs), min(others, default=sys.maxsize))
    if first >= known_until(lane):
        return None
    missing_ordinals.other_records_from(lane, first)
    return Rewound(first, position.ordinal, position.target_offset, position.leader_epoch)


def unproven(lane: Lane, runs: Sequence[Run]) -> Rewound | None:
    """Return the `Rewound` that the fact with these runs has to contain if the lane resumes below a resume position
    that a former holder may have saved (`missing_ordinals.unproven_until`). Return None if there can be no such
    position.

    Otherwise the next holder may begin at that position. The records that were copied again below it would then look
    like records that were appended twice, and the next holder would halt.
    """
    until, position = missing_ordinals.unproven_until(lane), lane.resume_position
    if lane.record is None or until < 0:
        return None
    first = min(until, _first_changed(lane.record.source_runs, runs))
    return Rewound(first, position.ordinal, position.target_offset, position.leader_epoch)


def _first_changed(known: Runs, runs: Sequence[Run]) -> int:
    """Return the lowest ordinal that `runs` and `known` map to different source offsets."""
    later, lowest = Runs(runs), runs[0].ordinal
    begins = {run.ordinal for run in (*runs, *known.beginning_in(lowest, sys.maxsize))}
    return next((at for at in sorted(begins) if known.offset_of(at) != later.offset_of(at)), sys.maxsize)


def valid_position(progress: Progress, record: LaneRecord | None) -> tuple[ResumePosition, int]:
    """Return the resume position that is valid according to a progress record and the ledger. Also return the ordinal
    up to which the acknowledgements in the progress record refer to the current offset map."""
    positions = [ResumePosition(progress.ordinal, progress.target_offset, progress.leader_epoch)]
    reached = progress.ordinal
    for number, (grant, each) in enumerate(record.rewinds if record is not None else ()):
        # A later holder that does not know of this rewind runs a version without `Progress.rewinds`. It has resumed
        # since.
        is_before = number >= progress.rewinds and (grant == progress.grant or progress.state not in RESUMED)
        if is_before or grant > progress.grant:
            positions.insert(0, ResumePosition(each.ordinal, each.target_offset, each.leader_epoch))
            reached = min(reached, each.first)
    return min(positions, key=lambda position: position.ordinal), reached
