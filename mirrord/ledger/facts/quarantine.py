"""Facts about records that cannot be copied, and the commands of operators about them (`mirrord.ledger.quarantine`)."""

from mirrord.ledger.facts.base import Fact, Origin
from mirrord.model.names import LaneId


class Quarantined(Fact, frozen=True, tag="quarantined"):
    """The records at the source offsets [start, end) cannot be copied, and are in quarantine.

    If `skip` is true, the flow's policy skips the records immediately. If the records were parked before, `letters` is
    set.
    """

    lane: LaneId
    grant: int
    start: int
    end: int
    error: int
    """Kafka's error code with which the target refuses the records. 0 if it does not refuse them, for example because
    the source does not return them in a readable form.
    """
    line: str
    """The cause in one line, for people."""
    skip: bool = False
    """Whether the flow's policy skips the records."""
    letters: int = -1
    """Number of these records that had been parked in the flow's dead-letter topic, or -1 if they were not parked."""
    letters_at: int = -1
    """Offset of the first of these records in the dead-letter topic, or -1 if there is none or it was not recorded."""


class QuarantineSkipped(Fact, frozen=True, tag="quarantine_skipped"):
    """An operator decided to skip the source offsets [start, end), and the lane continues after them.

    The fact takes effect while the lane waits at these offsets for a decision. It is a command to the lane's current
    holder, so it carries no grant.
    """

    lane: LaneId
    start: int
    end: int
    origin: Origin
    letters: int = -1
    """Number of these records that had been parked in the flow's dead-letter topic, or -1 if they were not parked."""
    letters_at: int = -1
    """Offset of the first of these records in the dead-letter topic, or -1 if there is none or it was not recorded."""


class QuarantineReplayed(Fact, frozen=True, tag="quarantine_replayed"):
    """An operator requested another attempt to copy the source offsets [start, end). The fact takes effect while the
    lane waits at these offsets for a decision."""

    lane: LaneId
    start: int
    end: int
    origin: Origin


QuarantineOrder = QuarantineSkipped | QuarantineReplayed
