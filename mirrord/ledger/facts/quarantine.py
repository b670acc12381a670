"""Facts about records that cannot be copied, and the operator commands about these records. `mirrord.ledger.quarantine`
applies these facts to the state of a lane."""

from mirrord.ledger.facts.base import Fact, Origin
from mirrord.model.names import LaneId


class Quarantined(Fact, frozen=True, tag="quarantined"):
    """The records at the source offsets [start, end) cannot be copied and are in quarantine.

    If `skip` is true, the records are skipped immediately, as the flow's configuration (`on_reject`) requires. If
    records in the range were first written to the dead-letter topic, `letters` is the number of these records.
    """

    lane: LaneId
    grant: int
    start: int
    end: int
    error: int
    """Error code with which the target refuses the records. 0 if the target does not refuse them, for example because
    the source does not return them in a readable form."""
    line: str
    """The cause in one line, for operators."""
    skip: bool = False
    """Whether the records are skipped because of the flow's configuration, without an operator's decision."""
    letters: int = -1
    """Number of records in the range that were parked in the flow's dead-letter topic, or -1 if they were not
    parked."""
    letters_at: int = -1
    """Offset of the first parked record in the dead-letter topic, or -1 if there is none or it was not recorded."""
    epoch: int = -1
    """Leader epoch of the records in the source, or -1 if it is not known. It shows whether the source still has these
    records after it has lost others in an election."""


class QuarantineSkipped(Fact, frozen=True, tag="quarantine_skipped"):
    """An operator decided to skip the source offsets [start, end), and the lane continues after them.

    The fact takes effect only if the lane is waiting for a decision about these offsets. It carries no grant, because
    it is addressed to whichever replicator hosts the lane.
    """

    lane: LaneId
    start: int
    end: int
    origin: Origin
    letters: int = -1
    """Number of records in the range that were parked in the flow's dead-letter topic, or -1 if they were not
    parked."""
    letters_at: int = -1
    """Offset of the first parked record in the dead-letter topic, or -1 if there is none or it was not recorded."""


class QuarantineReplayed(Fact, frozen=True, tag="quarantine_replayed"):
    """An operator requested another attempt to copy the source offsets [start, end). The fact takes effect only if the
    lane is waiting for a decision about these offsets."""

    lane: LaneId
    start: int
    end: int
    origin: Origin


QuarantineOrder = QuarantineSkipped | QuarantineReplayed
