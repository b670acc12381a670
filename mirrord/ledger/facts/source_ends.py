"""The high watermarks of a source topic's partitions, as a record of the state topic stores them."""

import msgspec

from mirrord.ledger.facts.last_seen import LastSeen


class SourceEnds(msgspec.Struct, frozen=True, array_like=True):
    """The last known high watermarks of consecutive partitions of one source topic."""

    topic: str
    ends: tuple[int, ...]
    """High watermarks, one for each partition. -1 means that the high watermark is unknown."""
    lost: bool = False
    """Whether the topic no longer exists and its records below `ends` were lost before any lane was opened for them."""
    starts: tuple[int, ...] = ()
    """If `lost` is true, the source offset at which the lane of each partition would have begun. Records below this
    offset do not count as lost, because they were not to be copied. Missing values at the end are 0."""
    seen: LastSeen | None = None
    """Set if the record is about what was last seen of the source (`mirrord.ledger.last_seen`). Then `ends` is
    empty."""
