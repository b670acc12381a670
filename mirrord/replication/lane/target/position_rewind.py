"""Determines which saved resume positions are still valid after the target log went back and ordinals were reassigned.

A resume position is an ordinal, and the ledger maps ordinals to source records. A holder may reassign ordinals and end
before it saves a lower resume position. The next holder then reads the old position, which refers to the old map. In a
compacted target topic, this would lose records: the next holder would look up records that were never copied, as if the
log had lost them. So the fact that reassigns ordinals also records a resume position: older positions above it are no
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

RESUMED = frozenset({Phase.COPYING.value, Phase.SETTLING.value, Phase.DRAINING.value, Phase.DRAINED.value})
"""States of a lane that has read where the target log ends. In these states, the resume position is that of the current
holder, not of a former one."""


def rewound_by(
    lane: Lane, runs: Sequence[Run], position: ResumePosition, epochs: Sequence[tuple[int, int]] = ()
) -> Rewound | None:
    """Return the `Rewound` that the fact about these runs has to record, or None if no older resume position can be too
    high.

    `position` is a resume position: all records below it are known to be in the target log. `epochs` are the source's
    leader epochs (ordinal, epoch) in the same fact. A record of another epoch is another record, even at the same
    source offset. Acknowledgements of ordinals that are reassigned are forgotten.
    """
    record = lane.record
    if record is None or not runs or missing_ordinals.known_until(lane) <= runs[0].ordinal:
        return None
    copied = lane.history.acknowledged_epochs
    others = (at for at, epoch in epochs if epoch > recorded_at(copied, at) > UNKNOWN)
    first = min(_first_changed(record.source_runs, runs), min(others, default=sys.maxsize))
    if first >= missing_ordinals.known_until(lane):
        return None
    missing_ordinals.other_records_from(lane, first)
    return Rewound(first, position.ordinal, position.target_offset, position.leader_epoch)


def _first_changed(known: Runs, runs: Sequence[Run]) -> int:
    """Return the lowest ordinal that these runs map to another source offset than the known runs do."""
    later, lowest = Runs(runs), runs[0].ordinal
    begins = {run.ordinal for run in (*runs, *known.beginning_in(lowest, sys.maxsize))}
    return next((at for at in sorted(begins) if known.offset_of(at) != later.offset_of(at)), sys.maxsize)


def valid_position(progress: Progress, record: LaneRecord | None) -> tuple[ResumePosition, int]:
    """Return the resume position that is still valid according to a progress record and the ledger. Also return the
    ordinal up to which the acknowledgements in the progress record refer to the current map."""
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
