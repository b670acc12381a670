"""Says which source offsets a lane does not copy because of a decision in the ledger: an operator skips their records,
or the target refuses them."""

from typing import NamedTuple

from mirrord.ledger.facts.core import Reason
from mirrord.ledger.seeks import passed
from mirrord.replication.lane.lane_record import LaneRecord


class LeftOut(NamedTuple):
    """A range of source offsets that is skipped because of a decision."""

    start: int
    end: int
    reason: Reason
    epoch: int = -1
    """Leader epoch of the records that the decision is about, or -1 if it is not known."""
    latest_epoch: int = -1
    """If set, the records may have epochs from `epoch` up to this one."""

    @property
    def latest(self) -> int:
        """The highest epoch that the records can have, or -1 if it is not known."""
        return max(self.epoch, self.latest_epoch)

    def is_about(self, epoch: int) -> bool:
        """Return whether the decision may be about a record with this leader epoch. If the epoch differs, the source
        has lost the record that the decision is about, and has another one at its offset."""
        return epoch < 0 or self.latest < 0 or self.epoch <= epoch <= self.latest


def left_out(record: LaneRecord, lowest: int) -> list[LeftOut]:
    """Return, in ascending order, the ranges of source offsets that are skipped because of a decision in the ledger and
    that end above `lowest`."""
    found = [
        LeftOut(each.start, each.end, "rejected", each.epoch) for each in record.quarantine if each.skipped is not None
    ]
    found += [LeftOut(each.start, each.end, "skipped", latest_epoch=each.epoch) for each in passed(record.seeks)]
    return sorted((each for each in found if each.end > lowest), key=lambda each: (each.start, each.end))
