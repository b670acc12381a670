"""The target log went back and its ordinals are told anew: which progress marks still count.

A mark counts ordinals, and the ledger says which source records they stand for. If a holder tells ordinals anew and
ends before it saves a lower mark, the next one finds the old mark, which speaks of the old meaning. To a compacted copy
that would be a loss: records that nobody has copied would be looked up as if the log had lost them. So the ledger is
told up to where older marks count, together with the new meaning.
"""

import sys
from collections.abc import Sequence

from mirrord.flow import missing
from mirrord.flow.signals import LaneRecord
from mirrord.flow.state import Lane, Mark
from mirrord.model.facts import Progress, Rewound
from mirrord.model.runs import Run, Runs


def tell(lane: Lane, runs: Sequence[Run], mark: Mark) -> Rewound | None:
    """What the ledger has to be told beside runs that are about to be told; None where no older mark is further.

    `mark`: below it everything is known to stand in the target log. What was acknowledged of ordinals that change their
    meaning is forgotten.
    """
    record = lane.record
    if record is None or not runs or missing.known_until(lane) <= runs[0].ordinal:
        return None
    first = _first_changed(record.source_runs, runs)
    if first >= missing.known_until(lane):
        return None
    missing.other_records_from(lane, first)
    return Rewound(first, mark.ordinal, mark.target_offset, mark.leader_epoch)


def _first_changed(known: Runs, told: Sequence[Run]) -> int:
    """The lowest ordinal that stands for another source offset once these runs are told."""
    anew, lowest = Runs(told), told[0].ordinal
    begins = {run.ordinal for run in (*told, *known.beginning_in(lowest, sys.maxsize))}
    return next((at for at in sorted(begins) if known.offset_of(at) != anew.offset_of(at)), sys.maxsize)


def counts(progress: Progress, record: LaneRecord | None) -> tuple[Mark, int]:
    """The mark that counts of a record of the state topic, and the ordinal up to which what it says was acknowledged is
    what the ledger means by it now."""
    marks = [Mark(progress.ordinal, progress.target_offset, progress.leader_epoch)]
    reached = progress.ordinal
    for number, (grant, each) in enumerate(record.rewinds if record is not None else ()):
        if number >= progress.rewinds or grant > progress.grant:
            marks.insert(0, Mark(each.ordinal, each.target_offset, each.leader_epoch))
            reached = min(reached, each.first)
    return min(marks, key=lambda mark: mark.ordinal), reached
