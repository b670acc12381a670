"""Determines which saved resume positions are still valid after the target log has lost records and ordinals have been
assigned to other source records.

A resume position contains an ordinal, and the offset map in the ledger shows to which source record this ordinal
belongs. A holder may reassign ordinals and then exit before it saves a lower resume position. In that case, the next
holder reads the former resume position, whose ordinal belonged to a different source record. In a compacted target
topic, this could cause records to be lost: the next holder would treat records that were never copied as copied records
that the log has lost. Therefore, the fact that reassigns ordinals also contains a resume position. Older saved
positions that are higher than this one are no longer valid.
"""

import sys
from collections.abc import Sequence
from itertools import accumulate, islice, pairwise

from msgspec.structs import replace

from mirrord.ledger.facts.core import Progress, Rewound
from mirrord.model.runs import Run, Runs
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import LaneRecord
from mirrord.replication.lane.source.copied_epochs import first_other
from mirrord.replication.lane.source.copied_pieces import mapped
from mirrord.replication.lane.source.recorded_epochs import UNKNOWN, recorded_at
from mirrord.replication.lane.state import Lane, ResumePosition
from mirrord.replication.lane.target import epoch_ends, in_doubt, missing_ordinals
from mirrord.replication.lane.target.acknowledged_records import AcknowledgedPart, assigned_again
from mirrord.replication.lane.target.evidence import known_until, saved_until, unproven_until
from mirrord.replication.lane.target.superseded_records import MOST_RANGES

RESUMED = frozenset({Phase.COPYING.value, Phase.SETTLING.value, Phase.DRAINING.value, Phase.DRAINED.value})
"""Phases of a lane that has read where the target log ends. In these phases, the resume position is that of the current
holder, not that of a former one."""


def rewound_by(
    lane: Lane, runs: Sequence[Run], position: ResumePosition, epochs: Sequence[tuple[int, int]] = ()
) -> Rewound | None:
    """Return the `Rewound` that the fact with these runs has to contain. Return None if none of the reassigned ordinals
    was acknowledged, or may be in the log of an earlier leader with another record: in that case, no saved resume
    position can be too high, and no election can bring back a batch with that record.

    All records below the resume position `position` are known to be in the target log. `epochs` contains the pairs
    (ordinal, leader epoch of the source) in the same fact. A record from a different epoch is a different record, even
    at the same source offset. If acknowledged ordinals are reassigned, the lane also notes that their acknowledgements
    no longer apply.
    """
    record, until = lane.record, max(known_until(lane), saved_until(lane), in_doubt.earlier_leaders_until(lane))
    if record is None or not runs or until <= runs[0].ordinal:
        return None
    first = first_other(lane, record, epochs, first_changed(record.source_runs, runs))
    if first >= until:
        return None
    if first < known_until(lane):
        missing_ordinals.other_records_from(lane, first)
    return _rewound(lane, first, position)


def rewound_by_next(
    lane: Lane, runs: Sequence[Run], position: ResumePosition, epochs: Sequence[tuple[int, int]]
) -> Rewound | None:
    """Return the `Rewound` for runs that begin at the next ordinal to be copied, as `rewound_by` does.

    The target log may have lost acknowledged records, and the source may have deleted some of them since. The records
    that follow the deleted ones then get lower ordinals. The lane notes that these records were acknowledged. Positions
    that were saved before the loss need to be revoked only once, so the result is None if the ledger has revoked them
    in this round. Until then, each fact revokes them, because the first one may be lost.
    """
    known, acknowledged = lane.log.forgotten, lane.acknowledged
    if known is not None and known.records and known.round == lane.round and known.first <= runs[0].ordinal:
        _assign_again(lane, runs, epochs)
        first = runs[0].ordinal
        return _rewound(lane, first, position) if first < saved_until(lane) else None
    rewound = rewound_by(lane, runs, position, epochs)
    if rewound is not None and known is None and lane.log.forgotten is not None:
        records = _acknowledged_from(lane, acknowledged, rewound.first)
        lane.log.forgotten = replace(lane.log.forgotten, records=records)
        _assign_again(lane, _runs_from(runs, rewound.first), epochs)
    return rewound


def _acknowledged_from(lane: Lane, acknowledged: Sequence[tuple[int, int]], first: int) -> tuple[AcknowledgedPart, ...]:
    """Return the acknowledged records that had the ordinal `first` or a higher one, according to the ledger."""
    record, copied = lane.record, lane.history.acknowledged_epochs
    if record is None or not acknowledged:
        return ()
    edges = sorted({first, *(until for until, _ in acknowledged), *(at for at, _ in copied)})
    parts: list[AcknowledgedPart] = []
    for begin, end in pairwise(each for each in edges if first <= each <= acknowledged[-1][0]):
        leader_epoch = next(epoch for until, epoch in acknowledged if until >= end)
        source_epoch = recorded_at(copied, begin)
        if source_epoch > UNKNOWN:
            pieces = islice(mapped(record, begin, end - 1), MOST_RANGES)
            parts += (AcknowledgedPart(at, at + length, leader_epoch, source_epoch) for _, at, length in pieces)
    parts.sort()
    behind = (0, *accumulate((each.end for each in parts), max))
    starts = (each._replace(start=max(each.start, at)) for each, at in zip(parts, behind, strict=False))
    return tuple(each for each in starts if each.start < each.end)


def _assign_again(lane: Lane, runs: Sequence[Run], epochs: Sequence[tuple[int, int]]) -> None:
    """Note the new ordinals that these runs assign to records that were acknowledged under their former ordinals. If
    the source now has a record from a later leader epoch at the offset of an acknowledged record, this is a different
    record."""
    first, known = runs[0].ordinal, lane.log.forgotten
    if known is None or first > known_until(lane):
        return
    missing_ordinals.lower(lane, first)
    found = assigned_again(known.records, runs)
    others = (at for at, epoch in epochs for each in found if each.first <= at < each.end and epoch > each.source_epoch)
    limit = min(others, default=sys.maxsize)
    lane.acknowledged += tuple((min(each.end, limit), each.leader_epoch) for each in found if each.first < limit)
    if found:
        below = (each for each in lane.history.acknowledged_epochs if each[0] < first)
        lane.history.acknowledged_epochs = (*below, *((each.first, each.source_epoch) for each in found))


def _runs_from(runs: Sequence[Run], ordinal: int) -> list[Run]:
    """Return the given runs without the part below this ordinal."""
    offset = Runs(runs).offset_of(ordinal)
    begun = [] if offset is None else [Run(ordinal, offset)]
    return [*begun, *(each for each in runs if each.ordinal > ordinal)]


def unproven(lane: Lane, runs: Sequence[Run]) -> Rewound | None:
    """Return the `Rewound` that the fact with these runs has to contain if the lane resumes below an unproven resume
    position. Such a position may have been saved although the target log may lack records below it (see
    `evidence.unproven_until`). Return None if there can be no such position.

    Without this `Rewound`, the next holder may begin at that position. The records that were copied again below it
    would then look like records that were appended twice, and the next holder would halt.
    """
    until, position = unproven_until(lane), lane.resume_position
    if lane.record is None or until < 0:
        return None
    first = min(until, first_changed(lane.record.source_runs, runs))
    return _rewound(lane, first, position)


def _rewound(lane: Lane, first: int, position: ResumePosition) -> Rewound:
    leader_epoch, now = position.leader_epoch, lane.log.end_epoch
    ends = epoch_ends.earlier(lane, leader_epoch)
    later = now if now > leader_epoch else -1
    return Rewound(first, position.ordinal, position.target_offset, leader_epoch, ends, later)


def first_changed(known: Runs, runs: Sequence[Run]) -> int:
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
        # If the progress record of a later holder does not count this rewind, that holder ran a version without
        # `Progress.rewinds`. If it has resumed, it did so after the rewind, and its position is valid.
        is_before = number >= progress.rewinds and (grant == progress.grant or progress.state not in RESUMED)
        if is_before or grant > progress.grant:
            positions.insert(0, ResumePosition(each.ordinal, each.target_offset, each.leader_epoch))
            reached = min(reached, each.first)
    return min(positions, key=lambda position: position.ordinal), reached
