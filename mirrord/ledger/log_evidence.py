"""What one process knows of its ledger's log, and whether what it reads next contradicts that.

A log that lost its end in an unclean election can grow past a reader's position before the reader fetches again, so
offsets alone do not show the loss. Leader epochs do (KIP-595): they ascend with the offsets, and a log that was cut
continues under a higher epoch. A mark says that everything below `end` was written under `leader_epoch` or an earlier
one. An entry below `end` of a later epoch is therefore another entry than the one that was there.
"""

from mirrord.ledger.state_records import LedgerMark
from mirrord.model.names import TopicId


class Contradicted(Exception):
    """The log no longer holds what a mark says."""

    def __init__(self, mark: LedgerMark) -> None:
        super().__init__(mark)
        self.mark = mark


class Evidence:
    """What is known from one load of the snapshots on."""

    def __init__(self, topic_id: TopicId, offset: int, leader_epoch: int) -> None:
        """Reading begins at `offset`; everything below it is of `leader_epoch` or an earlier one."""
        self.read = LedgerMark(topic_id, offset, leader_epoch)
        """How far the log was read."""
        self._epochs: list[tuple[int, int]] = []
        """(leader epoch, offset of its first entry) as read, ascending."""
        self._ahead: list[LedgerMark] = []
        """Marks above what was read."""

    @property
    def end(self) -> int:
        """How far the log is known to reach."""
        return max((mark.end for mark in self._ahead), default=self.read.end)

    def take(self, offset: int, leader_epoch: int) -> None:
        """Read the next entry. Raises Contradicted."""
        for mark in self._ahead:
            if offset < mark.end and leader_epoch > mark.leader_epoch:
                raise Contradicted(mark)
        if not self._epochs or leader_epoch > self._epochs[-1][0]:
            self._epochs.append((leader_epoch, offset))
        self.read = LedgerMark(self.read.topic_id, offset + 1, leader_epoch)
        if self._ahead:
            self._ahead = [mark for mark in self._ahead if mark.end > offset + 1]

    def know(self, mark: LedgerMark) -> None:
        """Take over a mark, of this process or of another one. Raises Contradicted."""
        if mark.topic_id != self.read.topic_id:
            raise Contradicted(mark)
        if any(epoch > mark.leader_epoch and offset < mark.end for epoch, offset in self._epochs):
            raise Contradicted(mark)
        if mark.end > self.read.end:
            self._ahead = [each for each in self._ahead if not covers(mark, each)]
            self._ahead.append(mark)

    def replaced(self, offset: int) -> LedgerMark:
        """The mark of an entry that was acknowledged at an offset where another one was read."""
        epoch = max((epoch for epoch, first in self._epochs if first <= offset), default=self.read.leader_epoch)
        return LedgerMark(self.read.topic_id, offset + 1, epoch - 1)


def covers(mark: LedgerMark, other: LedgerMark) -> bool:
    """Whether a mark proves every loss that the other one proves."""
    return mark.topic_id == other.topic_id and mark.end >= other.end and mark.leader_epoch <= other.leader_epoch
