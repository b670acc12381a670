"""The ends of a source topic's partitions, as stored in the state topic."""

import msgspec


class SourceEnds(msgspec.Struct, frozen=True, array_like=True):
    """The last known high watermarks of consecutive partitions of one source topic."""

    topic: str
    ends: tuple[int, ...]
    """High watermarks; -1 means not known."""
    lost: bool = False
    """Whether the topic is gone, and its records below these ends were lost before any lane was opened for them."""
    starts: tuple[int, ...] = ()
    """With `lost`: the offsets at which lanes would have begun, so that nothing below them was lost. If this is shorter
    than `ends`, the missing values are 0.
    """
