"""What one process knows about its ledger's log, and detection of reads that contradict that knowledge.

A log that lost its end in an unclean election can grow past a reader's position before the reader fetches again.
Offsets alone therefore do not reveal the loss. Leader epochs do (KIP-595): they ascend with the offsets, and a log that
was truncated continues under a higher epoch. A mark states that everything below `end` was written under `leader_epoch`
or an earlier epoch. If an entry below `end` has a later epoch, it is not the entry that was there before.
"""

from mirrord.ledger.state_records import LedgerMark
from mirrord.model.names import TopicId


class Contradicted(Exception):
    """The log no longer holds what a mark says."""

    def __init__(self, mark: LedgerMark) -> None:
        super().__init__(mark)
        self.mark = mark


class Evidence:
    """The evidence collected since the snapshots were loaded."""

    def __init__(self, topic_id: TopicId, offset: int, leader_epoch: int) -> None:
        """Start reading at `offset`. Everything below it has `leader_epoch` or an earlier epoch."""
        self.read = LedgerMark(topic_id, offset, leader_epoch)
        """How far the log was read."""
        self._epochs: list[tuple[int, int]] = []
        """Pairs of (leader epoch, offset of its first entry), as read, in ascending order."""
        self._ahead: list[LedgerMark] = []
        """Marks above the position that was read."""

    @property
    def end(self) -> int:
        """The offset up to which the log is known to reach."""
        return max((mark.end for mark in self._ahead), default=self.read.end)

    def take(self, offset: int, leader_epoch: int) -> None:
        """Record that the next entry was read. Raises Contradicted."""
        for mark in self._ahead:
            if offset < mark.end and leader_epoch > mark.leader_epoch:
                raise Contradicted(mark)
        if not self._epochs or leader_epoch > self._epochs[-1][0]:
            self._epochs.append((leader_epoch, offset))
        self.read = LedgerMark(self.read.topic_id, offset + 1, leader_epoch)
        if self._ahead:
            self._ahead = [mark for mark in self._ahead if mark.end > offset + 1]

    def know(self, mark: LedgerMark) -> None:
        """Accept a mark from this process or from another one. Raises Contradicted."""
        if mark.topic_id != self.read.topic_id:
            raise Contradicted(mark)
        if any(epoch > mark.leader_epoch and offset < mark.end for epoch, offset in self._epochs):
            raise Contradicted(mark)
        if mark.end > self.read.end:
            self._ahead = [each for each in self._ahead if not covers(mark, each)]
            self._ahead.append(mark)

    def replaced(self, offset: int) -> LedgerMark:
        """Return the mark of an acknowledged entry at whose offset another entry was read."""
        epoch = max((epoch for epoch, first in self._epochs if first <= offset), default=self.read.leader_epoch)
        return LedgerMark(self.read.topic_id, offset + 1, epoch - 1)


def covers(mark: LedgerMark, other: LedgerMark) -> bool:
    """Return whether a mark proves every loss that the other mark proves."""
    return mark.topic_id == other.topic_id and mark.end >= other.end and mark.leader_epoch <= other.leader_epoch
