"""Keeps what one process knows about its ledger's log, and detects reads that contradict it.

A log that lost its end in an unclean election can grow past a reader's position before the reader fetches again.
Offsets alone therefore do not reveal the loss. Leader epochs do (KIP-595): they ascend with the offsets, and a log that
was truncated continues under a higher epoch. A recorded end states that everything below `end` was written under
`leader_epoch` or an earlier epoch. If an entry below `end` has a later epoch, it is not the entry that was there
before.
"""

from mirrord.ledger.state_topic_records import LedgerEnd
from mirrord.model.names import TopicId


class Contradicted(Exception):
    """The log no longer holds what it held according to a recorded end."""

    def __init__(self, recorded: LedgerEnd) -> None:
        super().__init__(recorded)
        self.recorded = recorded


class Evidence:
    """What this process has learned about the ledger's log since it loaded the snapshots."""

    def __init__(self, topic_id: TopicId, offset: int, leader_epoch: int) -> None:
        """Start reading at `offset`. Everything below it has `leader_epoch` or an earlier epoch."""
        self.read = LedgerEnd(topic_id, offset, leader_epoch)
        """How far the log was read."""
        self._epochs: list[tuple[int, int]] = []
        """Pairs of (leader epoch, offset of its first entry), as read, in ascending order."""
        self._ahead: list[LedgerEnd] = []
        """Recorded ends above the position up to which the log was read."""

    @property
    def end(self) -> int:
        """The offset up to which the log is known to reach."""
        return max((recorded.end for recorded in self._ahead), default=self.read.end)

    def take(self, offset: int, leader_epoch: int) -> None:
        """Record that the next entry was read. Raises Contradicted."""
        for recorded in self._ahead:
            if offset < recorded.end and leader_epoch > recorded.leader_epoch:
                raise Contradicted(recorded)
        if not self._epochs or leader_epoch > self._epochs[-1][0]:
            self._epochs.append((leader_epoch, offset))
        self.read = LedgerEnd(self.read.topic_id, offset + 1, leader_epoch)
        if self._ahead:
            self._ahead = [recorded for recorded in self._ahead if recorded.end > offset + 1]

    def know(self, recorded: LedgerEnd) -> None:
        """Take an end into account that this process or another one recorded. Raises Contradicted."""
        if recorded.topic_id != self.read.topic_id:
            raise Contradicted(recorded)
        if any(epoch > recorded.leader_epoch and offset < recorded.end for epoch, offset in self._epochs):
            raise Contradicted(recorded)
        if recorded.end > self.read.end:
            self._ahead = [each for each in self._ahead if not covers(recorded, each)]
            self._ahead.append(recorded)

    def replaced(self, offset: int) -> LedgerEnd:
        """Return the recorded end that proves a loss: an entry was acknowledged at this offset, but another one was
        read there."""
        epoch = max((epoch for epoch, first in self._epochs if first <= offset), default=self.read.leader_epoch)
        return LedgerEnd(self.read.topic_id, offset + 1, epoch - 1)


def covers(recorded: LedgerEnd, other: LedgerEnd) -> bool:
    """Return whether a recorded end proves every loss that the other one proves."""
    return (
        recorded.topic_id == other.topic_id
        and recorded.end >= other.end
        and recorded.leader_epoch <= other.leader_epoch
    )
