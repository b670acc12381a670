"""Where the partitions of a source topic end, as the state topic keeps it."""

import msgspec


class SourceEnds(msgspec.Struct, frozen=True, array_like=True):
    """The last known high watermarks of consecutive partitions of one source topic."""

    topic: str
    ends: tuple[int, ...]
    """-1: not known."""
    lost: bool = False
    """The topic is gone, and its records below these ends were lost before any lane was opened for them."""
    starts: tuple[int, ...] = ()
    """With `lost`: the offsets at which lanes would have begun, so nothing below them was lost. 0 where it is shorter
    than `ends`."""
