"""The structs that the ledger records when a configuration selects a source topic for the first time: the selection,
and the start offsets of the partitions that the topic has at that time."""

import msgspec

from mirrord.config.value_parsers import StartPoint
from mirrord.model.names import TopicId

UNRESOLVED = -1
"""The start offset has not been determined. Either it is not needed, because `start` is "earliest" in the
configuration, or the source has not answered yet."""
BEGUN = -2
"""The lane of the partition has begun. Its first run replaces the start offset."""


class Selected(msgspec.Struct, frozen=True, array_like=True):
    """The rules that a configuration uses to select source topics."""

    topics: tuple[str, ...]
    """Names and patterns of selected topics."""
    exclude: tuple[str, ...] = ()
    """Names and patterns of excluded topics."""
    policy: str = ""
    """The selection policy with its settings; empty if there is no policy."""


class TopicStarts(msgspec.Struct, frozen=True, array_like=True):
    """The start offsets of the partitions that a source topic had when a configuration first selected it.

    Partitions with higher numbers were added later.
    """

    topic: str
    """Name of the source topic."""
    topic_id: TopicId
    """Topic id of the source topic."""
    start: StartPoint
    """The configured value of `start` for which the offsets were determined."""
    offsets: tuple[int, ...]
    """For each partition, the source offset at which its lane begins. -1 (`UNRESOLVED`): the offset has not been
    determined. -2 (`BEGUN`): the lane has begun."""
