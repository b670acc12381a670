"""Facts about records that cannot be copied, and the commands of operators about them (`mirrord.ledger.quarantine`)."""

from mirrord.ledger.facts.base import Fact, Origin
from mirrord.model.names import LaneId


class Quarantined(Fact, frozen=True, tag="quarantined"):
    """The source offsets [start, end) cannot be copied.

    With `skip`, the flow's policy skips them immediately. `letters` is set once they are parked.
    """

    lane: LaneId
    grant: int
    start: int
    end: int
    error: int
    """Kafka's error code with which the target refuses them, or 0 if the source does not return them in a readable
    form.
    """
    line: str
    """The cause in one line, for people."""
    skip: bool = False
    """Whether the flow's policy skips them."""
    letters: int = -1
    """The same as in `QuarantineSkipped`."""
    letters_at: int = -1
    """The same as in `QuarantineSkipped`."""


class QuarantineSkipped(Fact, frozen=True, tag="quarantine_skipped"):
    """An operator decided to skip [start, end), and the lane continues after it.

    The fact takes effect while the lane waits there. It is a command to the current holder of the lane, so it carries
    no grant.
    """

    lane: LaneId
    start: int
    end: int
    origin: Origin
    letters: int = -1
    """Number of its records that were in the flow's dead-letter topic before, or -1 if they were not parked."""
    letters_at: int = -1
    """Offset of the first of them in that topic, or -1 if there is none or it was not recorded."""


class QuarantineReplayed(Fact, frozen=True, tag="quarantine_replayed"):
    """An operator requested another attempt at [start, end). The fact takes effect while the lane waits there."""

    lane: LaneId
    start: int
    end: int
    origin: Origin


QuarantineOrder = QuarantineSkipped | QuarantineReplayed
