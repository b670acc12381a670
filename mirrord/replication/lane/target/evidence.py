"""Evidence about the target log: what the broker remembers about the producer, and whether the log has lost its last
records."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

from mirrord.kafka.protocol.sequence import SEQUENCES, nearest
from mirrord.ledger.facts.core import Rebuild
from mirrord.model.intervals import Interval, joined, uncovered
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.signals import LaneRecord, OwnBatch
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target.epoch_ends import of_another_log


def remembers(lane: Lane) -> bool:
    """Return whether the broker remembers the lane's producer and will continue to do so for some time because the
    producer's last record is recent. Such a broker refuses batches that are out of order."""
    return lane.log.entry is not None and lane.log.entry.age_ms < lane.limits.producer_expiry_ms // 2


def next_by_entry(lane: Lane) -> int:
    """Return the ordinal after the last one in the broker's producer state. If the broker has no state for the
    producer, return the ordinal of the resume position."""
    if lane.log.entry is None:
        return lane.resume_position.ordinal
    return nearest((lane.log.entry.last_sequence + 1) % SEQUENCES, lane.resume_position.ordinal)


def remembered_until(lane: Lane) -> int:
    """Return the ordinal after the last one that the broker remembers, or 0 if it remembers none."""
    return 0 if lane.log.entry is None else next_by_entry(lane)


def went_back(lane: Lane) -> bool:
    """Return whether the last sequence in the broker's producer state is lower than the resume position requires. A
    lower sequence alone does not prove that the log has lost records."""
    return lane.log.entry is not None and next_by_entry(lane) < lane.resume_position.ordinal


def has_lost_records(lane: Lane) -> bool:
    """Return whether the target log has certainly lost records that it had when the lane last resumed or saved its
    resume position, regardless of whose records these were.

    This is certain in two cases. First, the log now ends below the resume position. Second, the lane last resumed in
    the leader epoch of the resume position or an earlier one, and these epochs now end below the target offset from
    which the lane continued at that time. In all other cases, a loss is not certain: a clean election may have gone
    unnoticed, or other clients may have written as many records as the log has lost.
    """
    known, begun = lane.resume_position, lane.resumed_at
    if lane.log.end < known.target_offset:
        return True
    return 0 <= begun.leader_epoch <= known.leader_epoch and 0 <= lane.log.epoch_end < begun.target_offset


def is_plan_unrecorded(lane: Lane) -> bool:
    """Return whether the target log has lost its last records, but the ledger does not contain the plan for copying
    them again yet. The plan says which records are copied again, and under which ordinals."""
    known = lane.log.went_back
    if known is None or lane.record is None:
        return False
    return known.rewound is None or all(each != known.rewound for _, each in lane.record.rewinds[known.rewinds :])


def is_another_leader(lane: Lane) -> bool:
    """Return whether the leader epoch of the target partition differs from the one recorded with the resume position.
    The result is also true if no leader epoch was recorded."""
    return lane.resume_position.leader_epoch != lane.log.end_epoch


def offset_of_position(lane: Lane) -> int:
    """Return the lowest target offset at which the record with the ordinal of the resume position may be in the target
    log.

    This is the target offset of the resume position only as long as the log is still the one in which the position was
    saved. An unclean election may remove other clients' records directly below that offset, so that the lane's next
    record gets a lower one. If the leader has changed, the result is the offset at which the log diverged from the
    former one, according to the leader. If the leader no longer knows this offset, because retention has deleted all
    records of that epoch, the result is the offset that the ledger's target runs have for the ordinal.
    """
    position, record = lane.resume_position, lane.record
    if not is_another_leader(lane):
        return position.target_offset
    if lane.log.is_shared_proven:
        return lane.log.shared
    known = record.target_runs.offset_of(position.ordinal) if record is not None else None
    return position.target_offset if known is None else min(known, position.target_offset)


def is_recorded(lane: Lane) -> bool:
    """Return whether the ledger records that target and source differ, and that the lane is halted."""
    record = lane.record
    known = record.last_check if record is not None else None
    return record is not None and record.halted is not None and known is not None and known.outcome == "different"


def known_until(lane: Lane) -> int:
    """Return the ordinal after the last acknowledged one, even if the target log has lost that ordinal's record.

    This ordinal is needed because records that other clients write with the key of a lost record count as newer until
    the lost record is appended again. The resume position is not sufficient to determine this ordinal, because it does
    not advance while a comparison is pending.
    """
    reached = lane.acknowledged[-1][0] if lane.acknowledged else 0
    return max(lane.resume_position.ordinal, lane.acked, reached)


def acknowledged(lane: Lane) -> tuple[tuple[int, int], ...]:
    """Return pairs (ordinal, leader epoch of the target) in ascending order: the ordinals below this one were
    acknowledged, and the log had their records in this epoch or an earlier one. The epoch is -1 if it is not known."""
    known, until = lane.resume_position, known_until(lane)
    pairs = [(known.ordinal, known.leader_epoch), *(each for each in lane.acknowledged if each[0] > known.ordinal)]
    if pairs[-1][0] < until:
        pairs.append((until, known.leader_epoch))
    later = lane.log.appended_later[2]
    return tuple((ordinal, max(epoch, later) if epoch >= 0 else epoch) for ordinal, epoch in pairs)


def copied_until(lane: Lane) -> int:
    """Return the ordinal after the last one that the target log is known to have had, or after the last one whose
    copied record the source has lost. Of the latter, no acknowledgement may be known."""
    truncated = lane.record.truncations if lane.record is not None else ()
    return max(known_until(lane), max((ordinal for ordinal, _ in truncated), default=0))


def saved_until(lane: Lane) -> int:
    """Return the ordinal up to which a resume position may have been saved that is still valid according to the ledger.
    The next holder may begin with such a position, and then counts all ordinals below it as acknowledged.

    This ordinal may be higher than `known_until`. If lost records are planned to be copied again, this holder no longer
    counts them as acknowledged, but the saved positions stay valid until a `Rewound` revokes them.
    """
    until, rewinds = lane.log.saved
    known = lane.record.rewinds[rewinds:] if lane.record is not None else ()
    return max(lane.resume_position.ordinal, lane.acked, min([until, *(rewound.first for _, rewound in known)]))


def note_saved(lane: Lane, until: int = 0) -> None:
    """Note up to which ordinal a resume position may have been saved, before the lane goes back to a lower one. `until`
    is another ordinal up to which this is possible."""
    rewinds = len(lane.record.rewinds) if lane.record is not None else 0
    lane.log.saved = (max(saved_until(lane), until), rewinds)


def note_former_holder(lane: Lane) -> None:
    """Note that a former holder may have saved a higher resume position than this lane knows, or may still save one.

    That holder may have received acknowledgements for any number of records after its last known position. The target
    log still has these records, unless the leader has changed since. If the former holder left the lane cleanly, its
    last position is known.
    """
    known = lane.takeover
    is_known = known.knows_sent or known.leaps_recorded or known.opened_here
    if not is_known and is_another_leader(lane):
        note_saved(lane, NEVER)


def unproven_until(lane: Lane) -> int:
    """Return the ordinal up to which a resume position may have been saved although the target log may lack records
    below it. Return -1 if that ordinal is not above the position at which the lane has resumed, or if the ledger
    revokes such positions."""
    until, rewinds = lane.log.unproven
    known = lane.record.rewinds[rewinds:] if lane.record is not None else ()
    is_revoked = any(rewound.ordinal < until for _, rewound in known)
    return -1 if is_revoked or until <= lane.acked else until


def note_earlier(lane: Lane, own: Sequence[OwnBatch]) -> None:
    """Note which of the lane's own batches in the target log are at or above a recorded resume position, although their
    leader epochs are older than that of the position. Also note those below the position that are from another log.

    The leader at that time no longer had these batches: an election or the log cleaner had removed them from its log. A
    replica that still has them has since become the leader. In the meantime, this holder or a former one may have
    assigned their ordinals to other records. Even if those were acknowledged, the log does not have them, so the lane
    compares the batches with the source. A `Rewound` shows from which ordinal onward others were assigned. There is no
    `Rewound` if the batches were never acknowledged. They are noted because the log in which the resume position was
    recorded is not known to have had them (see `epoch_ends.of_another_log`).
    """
    rewinds, rebuilds = (lane.record.rewinds, lane.record.rebuilds) if lane.record is not None else ((), ())
    for batch in own:
        first = nearest(batch.base_sequence, lane.resume_position.ordinal)
        for piece, rebuild in _by_rebuild(rebuilds, first, first + batch.count):
            # If the map was rebuilt since, it has the records of the batch (see `reassigned_since`).
            later = rewinds[rebuild.rewinds :] if rebuild is not None else rewinds
            found = (lane.resume_position, lane.resumed_at, *(note for _, note in later))
            begins = [each.ordinal for each in found if 0 <= batch.leader_epoch < each.leader_epoch]
            if begins and min(begins) < piece[1]:
                lane.log.earlier += ((max(piece[0], min(begins)), piece[1]),)
    lane.log.earlier += tuple(of_another_log(lane, own))
    if lane.record is not None:
        others = tuple(reassigned_since(lane.record, own, lane.resume_position.ordinal))
        lane.log.reassigned += others
        lane.log.earlier = tuple(joined((*lane.log.earlier, *others)))


def trusted_below(lane: Lane) -> int:
    """Return the ordinal below which the lane need not compare batches with the source: all of them were acknowledged
    or compared (`Lane.trusted`), and none of them is known to be older than that (see `note_earlier`)."""
    return min([lane.trusted, *(first for first, _ in lane.log.earlier)])


def reassigned_since(record: LaneRecord, own: Sequence[OwnBatch], near: int) -> Iterator[Interval]:
    """Yield the ordinals [start, end) that were assigned to other records after batches with these ordinals had been
    appended (see `note_earlier`). The target log therefore has other records than those in the map. `near` is an
    ordinal near those of the batches.

    A rebuilt map has the records that the target had then. Of the earlier batches, only those that were in that log are
    certainly in the map, unless their ordinals were assigned later. If the map says that it is not known which records
    the target has under some of these ordinals (`HoleFound.is_open`), they are left out."""
    for batch in own:
        first = nearest(batch.base_sequence, near)
        found: list[Interval] = []
        for piece, rebuild in _by_rebuild(record.rebuilds, first, first + batch.count):
            later = record.rewinds[rebuild.rewinds :] if rebuild is not None else record.rewinds
            starts = (
                max(each.first, each.ordinal) for _, each in later if 0 <= batch.leader_epoch < each.reassigned_in
            )
            found += [(max(start, piece[0]), piece[1]) for start in starts if start < piece[1]]
            found += _not_rebuilt(rebuild, piece, batch.leader_epoch) if rebuild is not None else ()
        unknown = [(hole.first, hole.last + 1) for hole in record.holes if hole.is_open] if found else []
        yield from (part for whole in joined(found) for part in uncovered(whole, unknown))


def _by_rebuild(rebuilds: Sequence[Rebuild], first: int, end: int) -> Iterator[tuple[Interval, Rebuild | None]]:
    """Split the ordinals [first, end) where rebuilds of the map begin. Yield each piece with the rebuild that applies
    to it, or with None."""
    begins = [(0, None), *((each.first, each) for each in rebuilds)]
    for (begin, rebuild), (behind, _) in pairwise([*begins, (NEVER, None)]):
        piece = max(first, begin), min(end, behind)
        if piece[0] < piece[1]:
            yield piece, rebuild


def _not_rebuilt(rebuild: Rebuild, piece: Interval, leader_epoch: int) -> Iterator[Interval]:
    """Yield the ordinals in `piece` for which the rebuild had found a batch of another leader epoch than this one. A
    batch of this epoch had been appended before the rebuild, and was in another log then."""
    if not 0 <= leader_epoch < rebuild.leader_epoch:
        return
    for (begin, epoch), (behind, _) in pairwise([*rebuild.found_epochs, (NEVER, -1)]):
        start, end = max(begin, piece[0]), min(behind, piece[1])
        if start < end and 0 <= epoch != leader_epoch:
            yield start, end
