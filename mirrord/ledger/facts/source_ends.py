"""The high watermarks of a source topic's partitions, as a state record stores them."""

import msgspec


class SourceEnds(msgspec.Struct, frozen=True, array_like=True):
    """The last known high watermarks of consecutive partitions of one source topic."""

    topic: str
    ends: tuple[int, ...]
    """High watermarks, one for each partition. -1 means that the high watermark is not known."""
    lost: bool = False
    """Whether the topic no longer exists, and its records below `ends` were lost before any lane was opened for
    them."""
    starts: tuple[int, ...] = ()
    """If `lost` is true: the source offsets at which the lanes would have begun, so nothing below these offsets was
    lost. Missing values at the end are 0."""
