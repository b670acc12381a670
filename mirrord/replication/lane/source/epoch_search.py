"""Determines the leader epochs of the source records that a lane skips on an operator command.

The lane does not read these records. If the source then loses them in an unclean election, only their epochs show which
of them the next leader lacks: two logs that contain the same epoch are identical up to the lower of the two offsets at
which this epoch ends (KIP-101). Therefore, before the lane skips a range, it asks the source where each epoch in the
range begins, and records this in the ledger (`SeekDone.epochs`).

The lane asks about one epoch after the other, from the present one down. Each request contains an epoch, and a position
above the end of every log. The broker's answer contains the highest epoch in its log that is not above the requested
one, and the offset at which this epoch ends and the next higher one begins. All answers must come from the same leader
epoch, so that they describe the same log.
"""

from typing import NamedTuple

from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.signals import DivergenceAnswer

MOST_QUESTIONS = 32
"""Maximum number of requests about one range, and therefore of epochs that are recorded for it."""


class EpochSearch(NamedTuple):
    """What the source has answered so far about the epochs of a range of source offsets."""

    start: int
    """First source offset of the range that the source is known to have had."""
    end: int
    """End of the range."""
    leader_epoch: int
    """The leader epoch of the source in which the search began."""
    asked: int = 0
    """Number of the answers."""
    epoch: int = -1
    """The epoch in the last answer, or -1 before the first one."""
    limit: int = NEVER
    """The source offset at which this epoch ends. `NEVER` if it is the present one."""
    log_end: int = -1
    """The end of the source log, or -1 if it is not known."""
    found: tuple[tuple[int, int], ...] = ()
    """Pairs (source offset, epoch), ascending, as in `SeekDone.epochs`."""
    is_done: bool = False
    is_cut: bool = False
    """Whether the source has more epochs in the range than are recorded."""

    @property
    def question(self) -> tuple[int, int]:
        """The position and the epoch of the next request."""
        return NEVER, self.leader_epoch if self.epoch < 0 else self.epoch - 1

    def after(self, answer: DivergenceAnswer) -> "EpochSearch":
        """Return the search after the answer to its next request."""
        if answer.error or answer.epoch < 0 or answer.end < 0:
            return self._replace(is_done=True)  # the broker knows no epochs, or none that are lower
        if self.epoch < 0:
            # The present epoch may have no records yet, so the one before it may also end at the end of the log.
            known = self._replace(epoch=answer.epoch, log_end=answer.end, is_done=answer.end < self.end)
        elif answer.end >= self.limit:
            # Each epoch begins above the one before it. The broker knows none that is lower than those in `found`, and
            # has answered with the requested epoch.
            return self._replace(is_done=True)
        else:
            known = self._with(answer.end)._replace(epoch=answer.epoch, limit=answer.end)
        known = known._replace(asked=self.asked + 1, is_done=known.is_done or known.limit <= self.start)
        if known.is_done or (known.epoch > 0 and known.asked < MOST_QUESTIONS):
            return known
        return known._with(self.start)._replace(is_done=True, is_cut=known.epoch > 0)

    def _with(self, begin: int) -> "EpochSearch":
        """Return the search with the source offset at which the epoch `epoch` begins."""
        begin = max(begin, self.start)
        return self._replace(found=((begin, self.epoch), *self.found)) if begin < self.end else self
