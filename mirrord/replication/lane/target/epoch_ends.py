"""Keeps track of how far leader epochs other than that of the resume position are known to extend in the target log.

A leader that is deposed before it appends a record leaves no trace of its epoch in other replicas' logs. If the resume
position has such an epoch, a new leader does not know this epoch. Two logs that contain records of the same leader
epoch are identical up to the lower of the two offsets at which this epoch ends (KIP-101). The end of an earlier epoch
therefore also shows how far the new leader's log is identical to the former leader's.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain

from mirrord.kafka.protocol.sequence import nearest
from mirrord.ledger.facts.core import Progress
from mirrord.model.intervals import Interval
from mirrord.replication.lane.signals import OwnBatch
from mirrord.replication.lane.state import Lane

MOST_EARLIER = 8
"""Maximum number of earlier epochs that are recorded with a resume position."""


def note_batches(lane: Lane, own: Sequence[OwnBatch]) -> None:
    """Note the leader epochs of the lane's own batches, and how far each epoch is known to extend. The batches were
    read from the target log."""
    _note(lane, {each.leader_epoch: each.base_offset + each.count for each in own if each.leader_epoch >= 0})


def note_shared(lane: Lane, epoch: int) -> None:
    """Note that the given leader epoch extends at least to the offset up to which the target log has remained unchanged
    since the resume position was recorded."""
    _note(lane, {epoch: lane.log.shared})


def known(lane: Lane) -> Mapping[int, int]:
    """Return the leader epochs that the log is known to have had when the resume position was recorded, each with an
    offset that the epoch is known to have reached."""
    position = lane.resume_position
    return {**_of_log(lane, position.leader_epoch), position.leader_epoch: position.target_offset}


def earlier(lane: Lane, leader_epoch: int) -> tuple[tuple[int, int], ...]:
    """Return pairs (epoch, offset) for the leader epochs before `leader_epoch`, in ascending order. In the log of the
    leader with the epoch `leader_epoch`, each of these epochs is known to extend at least to its offset. These pairs
    are recorded for the next holder of the lane, which needs them as well. Only the pairs for the newest epochs are
    returned, because a higher epoch shows at least as much as a lower one."""
    if not lane.log.epoch_ends:
        return ()  # the usual case, kept fast because this is computed for each lane every second
    known = _of_log(lane, leader_epoch)
    return tuple(sorted((epoch, end) for epoch, end in known.items() if epoch < leader_epoch))[-MOST_EARLIER:]


def learn(lane: Lane, progress: Progress) -> None:
    """Load what earlier holders recorded about earlier epochs: in the progress record, and in the `Rewound` notes of
    the ledger. A record or note is used only if it has the leader epoch of the resume position, because the others are
    about a different leader's log."""
    leader = lane.resume_position.leader_epoch
    rewinds = [rewound for _, rewound in lane.record.rewinds] if lane.record is not None else []
    found = [each.epoch_ends for each in (progress, *rewinds) if each.leader_epoch == leader]
    lane.log.epoch_ends = tuple((leader, *each) for each in chain.from_iterable(found))


def of_another_log(lane: Lane, own: Sequence[OwnBatch]) -> Iterator[Interval]:
    """Yield the ordinals [start, end) of those records in the present log that the log in which the resume position was
    recorded is not known to have had, although their epochs are earlier than that of the position.

    An election may have brought back a log that the leaders of the meantime did not have. Up to an offset that an epoch
    is known to have reached in both logs, they are the same.
    """
    before = lane.resume_position.leader_epoch
    if before in {-1, lane.log.end_epoch}:
        return
    ends = known(lane)
    reached = [min(each.base_offset + each.count, ends.get(each.leader_epoch, 0)) for each in own]
    shared = max([lane.log.shared, 0, *reached])
    for batch in own:
        first = nearest(batch.base_sequence, lane.resume_position.ordinal)
        same = max(shared - batch.base_offset, 0)
        if 0 <= batch.leader_epoch < before and same < batch.count:
            yield first + same, first + batch.count


def _of_log(lane: Lane, leader_epoch: int) -> dict[int, int]:
    """Return the epochs that are known to be in the log of the leader with the epoch `leader_epoch`. Each epoch is
    mapped to an offset up to which it is known to extend."""
    return {epoch: end for leader, epoch, end in lane.log.epoch_ends if leader == leader_epoch}


def _note(lane: Lane, found: Mapping[int, int]) -> None:
    """Add the given epochs, each with an end offset, to those that the log of the current leader is known to have. If
    the resume position has the epoch of an earlier leader, the epochs of that leader's log are kept as well. Those of
    all other leaders are dropped."""
    before, now = lane.resume_position.leader_epoch, lane.log.end_epoch
    ends = _of_log(lane, now)
    for epoch, end in found.items():
        ends[epoch] = max(end, ends.get(epoch, end))
    kept = [each for each in lane.log.epoch_ends if each[0] == before != now]
    lane.log.epoch_ends = (*kept, *((now, epoch, end) for epoch, end in sorted(ends.items())))
