"""Arranges for lost records to be looked up again after the offset map has been rebuilt.

A plan omits lost records for which the target log has newer records with the same keys. A rebuilt map does not show the
plan: the map continues in source order, so the lane would also copy the omitted records.
"""

from collections.abc import Sequence

from mirrord.model.intervals import Interval, within
from mirrord.replication.lane.source import recorded_epochs
from mirrord.replication.lane.source.copied_pieces import highest_copied, mapped
from mirrord.replication.lane.state import Lane, LostBelow
from mirrord.replication.lane.target.evidence import acknowledged
from mirrord.replication.lane.target.missing_ordinals import epochs_lost_earlier
from mirrord.replication.lane.target.scan_result import Missing


def note_plan(lane: Lane, missing: Sequence[Missing]) -> None:
    """Note which records the target log has lost. `look_up_again` needs this note, because the plan for copying these
    records again omits some of them. If an earlier plan has not been carried out yet, the note about it is kept."""
    record, lost, known = lane.record, lane.log.lost_ordinals, lane.log.lost_below
    if record is None or not lost:
        return
    if known is not None and (record.source_runs.offset_of(lane.acked) or 0) < known.offset:
        return
    target_epochs = (each.leader_epoch for each in missing if each.kind == "lost" and each.last >= lost[0][0])
    highest, target_epoch = highest_copied(record, lost[0][0], lost[-1][1] + 1), max(target_epochs, default=-1)
    lane.log.lost_below = None
    if highest is not None and target_epoch >= 0:
        offset, ordinal = highest
        epochs = epochs_lost_earlier(lane) or record.epochs
        lane.log.lost_below = LostBelow(offset + 1, target_epoch, recorded_epochs.epoch_at(epochs, ordinal))


def note_missing(lane: Lane, first: int, missing: Sequence[Interval]) -> None:
    """Note which acknowledged records the target log has lost, if a rebuilt offset map from the ordinal `first` onward
    shows that. `missing` contains the source offsets of the records that are to be copied. If there is a note already,
    it is kept."""
    record = lane.record
    if record is None or lane.log.lost_below is not None:
        return
    begin = first
    lost: tuple[int, int, int] | None = None
    for until, target_epoch in acknowledged(lane):
        for ordinal, offset, length in mapped(record, begin, until - 1) if begin < until else ():
            for _, end in within((offset, offset + length), missing):
                lost = max(lost or (0, 0, 0), (end, target_epoch, ordinal + end - 1 - offset))
        begin = max(begin, until)
    if lost is not None and lost[1] >= 0:
        offset, target_epoch, ordinal = lost
        lane.log.lost_below = LostBelow(offset, target_epoch, recorded_epochs.epoch_at(record.epochs, ordinal))


def look_up_again(lane: Lane) -> None:
    """Arrange that the lane looks up the lost records again when it next resumes. A rebuilt offset map does not show
    which records these are."""
    record, known, first = lane.record, lane.log.lost_below, lane.resume_ordinal
    lane.log.lost_below, lane.history.acknowledged_epochs = None, ()
    position = record.source_runs.offset_of(first) if record is not None else None
    if record is None or known is None or position is None or position >= known.offset:
        return
    highest = highest_copied(record, first, first + known.offset - position, known.offset)
    if highest is None:
        return
    lane.acknowledged = ((highest[1] + 1, known.target_epoch),)
    lane.history.acknowledged_epochs = ((first, known.source_epoch),)
    lane.log.must_read_log = True
