"""The receipt of a drill, which rehearses a failover."""

import msgspec

FINDINGS_KEPT = 50
"""Maximum number of findings that a receipt lists."""


class DrillStage(msgspec.Struct, frozen=True):
    """A stage of a drill, and how long it took."""

    name: str
    """`ready`, `hooks`, `groups` or `canary`."""
    took_ms: int
    """Duration in milliseconds."""


class DrillReceipt(msgspec.Struct, frozen=True, kw_only=True):
    """What a drill of one flow has examined and found."""

    flow: str
    """Name of the flow."""
    at_ms: int
    """Wall-clock time at which the drill began."""
    stages: tuple[DrillStage, ...] = ()
    """The stages, in order."""
    findings: tuple[str, ...] = ()
    """What would have gone wrong in a failover, one line each. Empty if the drill was good."""
    omitted: int = 0
    """Number of further findings."""
    groups: int = 0
    """Number of consumer groups that were examined."""
    positions: int = 0
    """Number of positions of consumer groups that were examined."""
    compared: int = 0
    """Number of positions whose next record is the same on both clusters."""
    at_end: int = 0
    """Number of positions after which the source has no record."""
    waiting: int = 0
    """Number of positions whose next record has not been copied yet."""
    explained: int = 0
    """Number of positions whose next record is not on the target for a good reason: the ledger says why it is not
    copied, or the target has removed it because a newer record has the same key."""
    active: int = 0
    """Number of positions of groups that have members on the target. A failover does not change them."""
    kept: int = 0
    """Number of positions on the target that mirrord keeps although they do not match (`groups.reverse`, or
    `forward-only`). Only the records were compared."""
    skipped: int = 0
    """Number of positions that were not examined, because there are too many. Those that were are chosen at random."""
    note: str = ""
    """Why a part was not rehearsed, or an empty string."""

    @property
    def is_good(self) -> bool:
        """Whether the drill has no findings."""
        return not self.findings
