"""Remembers what one process knows about the log of its ledger topic. Detects reads that contradict this knowledge.

After an unclean election, a log can lose its last entries and then grow past a reader's position before the reader
fetches again. Offsets alone therefore do not reveal the loss, but leader epochs do (KIP-595). In a log, the leader
epoch never decreases from one entry to the next, and a truncated log continues under a higher epoch.

Processes record in the state topic how far the ledger extended. A recorded end (`LedgerEnd`) states that all entries
below the offset `end` were written under `leader_epoch` or an earlier epoch. If an entry below `end` has a later epoch,
it has replaced the original entry.
"""

from mirrord.ledger.state_topic_records import LedgerEnd
from mirrord.model.names import TopicId


class Contradicted(Exception):
    """Raised when the log contradicts a recorded end (`LedgerEnd`): it no longer contains all the entries that it
    contained when the end was recorded."""

    def __init__(self, recorded: LedgerEnd) -> None:
        super().__init__(recorded)
        self.recorded = recorded


class Evidence:
    """What this process has learned about the ledger's log since it loaded the snapshots."""

    def __init__(self, topic_id: TopicId, offset: int, leader_epoch: int) -> None:
        """`offset` is the position at which reading begins. All entries below it were written under `leader_epoch` or
        an earlier epoch."""
        self.read = LedgerEnd(topic_id, offset, leader_epoch)
        """The end of the part of the log that has been read."""
        self._epochs: list[tuple[int, int]] = []
        """Pairs of (leader epoch, offset of the first entry that was read under this epoch), in ascending order."""
        self._ahead: list[LedgerEnd] = []
        """Known ends of the log that are above the part that has been read. They were recorded in the state topic or
        reported by brokers."""

    @property
    def end(self) -> int:
        """The offset up to which the log is known to extend."""
        return max((recorded.end for recorded in self._ahead), default=self.read.end)

    def take(self, offset: int, leader_epoch: int) -> None:
        """Record that the entry at this offset was read. Raises Contradicted if a recorded end is above this offset and
        has a lower leader epoch than the entry."""
        for recorded in self._ahead:
            if offset < recorded.end and leader_epoch > recorded.leader_epoch:
                raise Contradicted(recorded)
        if not self._epochs or leader_epoch > self._epochs[-1][0]:
            self._epochs.append((leader_epoch, offset))
        self.read = LedgerEnd(self.read.topic_id, offset + 1, leader_epoch)
        if self._ahead:
            self._ahead = [recorded for recorded in self._ahead if recorded.end > offset + 1]

    def know(self, recorded: LedgerEnd) -> None:
        """Add an end of the log that this process or another process observed. Raises Contradicted if it is the end of
        a different ledger topic, or if an entry below this end was read with a later leader epoch than that of the
        end."""
        if recorded.topic_id != self.read.topic_id:
            raise Contradicted(recorded)
        if any(epoch > recorded.leader_epoch and offset < recorded.end for epoch, offset in self._epochs):
            raise Contradicted(recorded)
        if recorded.end > self.read.end:
            self._ahead = [each for each in self._ahead if not covers(recorded, each)]
            self._ahead.append(recorded)

    def replaced(self, offset: int) -> LedgerEnd:
        """Return an end of the ledger that proves that an entry has been lost: the entry was acknowledged at `offset`,
        but a different entry was read there.

        A process that later reads the entry at `offset` also finds the loss, because the entry has a later leader epoch
        than this end.
        """
        epoch = max((epoch for epoch, first in self._epochs if first <= offset), default=self.read.leader_epoch)
        return LedgerEnd(self.read.topic_id, offset + 1, epoch - 1)


def covers(recorded: LedgerEnd, other: LedgerEnd) -> bool:
    """Return whether the recorded end `recorded` proves every loss that `other` proves. To do so, `recorded` must
    belong to the same topic as `other`, be at least as high as `other`, and have no later leader epoch than `other`."""
    return (
        recorded.topic_id == other.topic_id
        and recorded.end >= other.end
        and recorded.leader_epoch <= other.leader_epoch
    )
