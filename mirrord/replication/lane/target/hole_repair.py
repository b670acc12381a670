"""Plans how records that the target log leapt over or lost are copied again, under new ordinals."""

from collections.abc import Sequence
from itertools import pairwise

from mirrord.ledger.facts.core import HoleFound, LaneFact, SourceRun
from mirrord.model.intervals import uncovered
from mirrord.model.runs import Run
from mirrord.replication.lane.signals import LaneRecord
from mirrord.replication.lane.source import source_epochs
from mirrord.replication.lane.source.copied_pieces import HeldOffsets
from mirrord.replication.lane.source.declared_runs import rest
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target import missing_ordinals, position_rewind, target_scan


def repair(lane: Lane, record: LaneRecord) -> list[LaneFact]:
    """Return the facts that plan which records are copied again. The facts must take effect before the first of these
    records is produced."""
    begin_at = ordinal = lane.resume_ordinal
    runs: list[Run] = []
    pieces: list[tuple[int, int, int]] = []
    begins: list[tuple[int, int, int]] = []
    for first, last in lane.log.holes:
        begins.append((first, last, ordinal))
        for start, end in target_scan.but_not_void(record.holes, first, last):
            for former, offset, length in source_epochs.mapped(record, start, end):
                runs.append(Run(ordinal, offset))
                pieces.append((ordinal, former, length))
                ordinal += length
    for former, offset, length in missing_ordinals.pieces_copied_again(lane, record):
        runs.append(Run(ordinal, offset))
        pieces.append((ordinal, former, length))
        ordinal += length
    goes_on = begin_at if lane.log.copied_again is None else lane.log.copied_again_until
    # An older hole may still be in the middle of its mending: the rest of its plan follows this one.
    if (older := rest(record, goes_on)) is not None:
        moved = ordinal - goes_on
        runs += [Run(run.ordinal + moved, run.offset) for run in older.runs]
        pieces += [(at + moved, former, length) for at, former, length in older.pieces]
    else:
        after = source_epochs.continues_at(record, goes_on)
        runs.append(Run(ordinal, lane.position if after is None else after))
        pieces.append((ordinal, source_epochs.epoch_source(record, goes_on), 1))
    holes = [HoleFound(lane.id, lane.grant, *each, runs[-1].ordinal) for each in begins]
    if lane.log.copied_again is not None or _may_leave_out(record, runs):
        holes.append(_without_ordinals(lane, begin_at, runs[-1].ordinal))
    elif (until := _lost_until(lane, pieces[:-1])) > begin_at:
        holes.append(_without_ordinals(lane, begin_at, until))
    epochs = source_epochs.mended(lane, pieces)
    rewound = position_rewind.rewound_by(lane, runs, lane.resume_position)
    return [*holes, SourceRun(lane.id, lane.grant, tuple(runs), (), epochs, rewound=rewound)]


def kept_plan(lane: Lane, runs: Sequence[Run]) -> list[HoleFound]:
    """Return a hole without ordinals (a `HoleFound` with an empty range) for a plan that is recorded again. Return
    nothing unless the new record of the plan revokes the hole without ordinals that the ledger has for it.

    Such a hole shows how far a plan reaches if records may be omitted from the plan on purpose. The runs alone do not
    show this.
    """
    begin_at, holes = runs[0].ordinal, lane.record.holes if lane.record is not None else ()
    if len(runs) == 1 or not any(hole.first > hole.last and hole.first >= begin_at for hole in holes):
        return []
    return [_without_ordinals(lane, begin_at, runs[-1].ordinal)]


def _without_ordinals(lane: Lane, begin_at: int, until: int) -> HoleFound:
    """Return a hole without ordinals (a `HoleFound` with an empty range). It shows how far a plan reaches if records
    may be omitted from the plan on purpose. It also shows which of the records to be copied again were acknowledged
    (`missing_ordinals.lost_ordinals`)."""
    return HoleFound(lane.id, lane.grant, begin_at - 1, begin_at - 2, begin_at, until)


def _lost_until(lane: Lane, pieces: Sequence[tuple[int, int, int]]) -> int:
    """Return the ordinal after those of a plan whose records were acknowledged and then lost, or -1.

    These records are looked up again at the next resume, because other clients may write newer ones until they are
    appended.
    """
    known = missing_ordinals.planned_until(lane) if lane.log.cleaned else 0
    return max((at + min(length, known - former) for at, former, length in pieces if former < known), default=-1)


def _may_leave_out(record: LaneRecord, runs: Sequence[Run]) -> bool:
    """Return whether a plan skips records that an older plan may have omitted on purpose. The runs of this plan no
    longer show this once the source has lost the records that were copied after the omitted ones."""
    if not any(hole.first > hole.last for hole in record.holes):
        return False
    held = HeldOffsets(record, runs[0].ordinal)
    taken = [(run.offset, run.offset + behind.ordinal - run.ordinal) for run, behind in pairwise(runs)]
    for (_, end), behind in zip(taken, runs[1:], strict=True):
        copied = held.within(end, behind.offset) if end < behind.offset else ()
        if any(uncovered((end, behind.offset), [*copied, *taken])):
            return True
    return False
