"""The ends of a source topic's partitions, as stored in the state topic."""

import msgspec


class SourceEnds(msgspec.Struct, frozen=True, array_like=True):
    """The last known high watermarks of consecutive partitions of one source topic."""

    topic: str
    ends: tuple[int, ...]
    """High watermarks, one for each partition. -1 means that it is not known."""
    lost: bool = False
    """Whether the topic no longer exists, and its records below these high watermarks were lost before any lane was
    opened for them.
    """
    starts: tuple[int, ...] = ()
    """If `lost` is true: the source offsets at which lanes would have begun, so that nothing below them was lost.
    Values that are missing at the end are 0.
    """
