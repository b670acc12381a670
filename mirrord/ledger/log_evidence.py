"""Remembers what one process knows about the log of its ledger topic, and detects reads that contradict it.

After an unclean election, a log that lost its end can grow past a reader's position before the reader fetches again.
Offsets alone therefore do not reveal the loss, but leader epochs do (KIP-595). They ascend with the offsets, and a
truncated log continues under a higher epoch. A recorded end says that all entries below `end` were written under
`leader_epoch` or an earlier epoch. If an entry below `end` has a later epoch, it has replaced the original entry.
"""

from mirrord.ledger.state_topic_records import LedgerEnd
from mirrord.model.names import TopicId


class Contradicted(Exception):
    """Raised when the log no longer contains what it contained according to a recorded end."""

    def __init__(self, recorded: LedgerEnd) -> None:
        super().__init__(recorded)
        self.recorded = recorded


class Evidence:
    """The knowledge of this process about the ledger's log since it loaded the snapshots."""

    def __init__(self, topic_id: TopicId, offset: int, leader_epoch: int) -> None:
        """Start reading at `offset`. All entries below `offset` have `leader_epoch` or an earlier epoch."""
        self.read = LedgerEnd(topic_id, offset, leader_epoch)
        """The end of the part of the log that was read."""
        self._epochs: list[tuple[int, int]] = []
        """Pairs of (leader epoch, offset of the first entry that was read under this epoch), in ascending order."""
        self._ahead: list[LedgerEnd] = []
        """Recorded ends above the position up to which the log was read."""

    @property
    def end(self) -> int:
        """The offset up to which the log is known to extend."""
        return max((recorded.end for recorded in self._ahead), default=self.read.end)

    def take(self, offset: int, leader_epoch: int) -> None:
        """Record that the entry at this offset was read. Raises Contradicted if it has a later leader epoch than
        possible."""
        for recorded in self._ahead:
            if offset < recorded.end and leader_epoch > recorded.leader_epoch:
                raise Contradicted(recorded)
        if not self._epochs or leader_epoch > self._epochs[-1][0]:
            self._epochs.append((leader_epoch, offset))
        self.read = LedgerEnd(self.read.topic_id, offset + 1, leader_epoch)
        if self._ahead:
            self._ahead = [recorded for recorded in self._ahead if recorded.end > offset + 1]

    def know(self, recorded: LedgerEnd) -> None:
        """Add an end that this process or another process recorded. Raises Contradicted if entries that were read
        contradict it."""
        if recorded.topic_id != self.read.topic_id:
            raise Contradicted(recorded)
        if any(epoch > recorded.leader_epoch and offset < recorded.end for epoch, offset in self._epochs):
            raise Contradicted(recorded)
        if recorded.end > self.read.end:
            self._ahead = [each for each in self._ahead if not covers(recorded, each)]
            self._ahead.append(recorded)

    def replaced(self, offset: int) -> LedgerEnd:
        """Return the recorded end that proves the loss of an acknowledged entry: a different entry was read at its
        offset."""
        epoch = max((epoch for epoch, first in self._epochs if first <= offset), default=self.read.leader_epoch)
        return LedgerEnd(self.read.topic_id, offset + 1, epoch - 1)


def covers(recorded: LedgerEnd, other: LedgerEnd) -> bool:
    """Return whether a recorded end proves every loss that another recorded end proves."""
    return (
        recorded.topic_id == other.topic_id
        and recorded.end >= other.end
        and recorded.leader_epoch <= other.leader_epoch
    )
