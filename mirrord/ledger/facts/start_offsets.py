"""What the ledger records when a configuration selects a source topic for the first time: the selection, and the start
offsets of the partitions that the topic has at that moment."""

import msgspec

from mirrord.config.value_parsers import StartPoint
from mirrord.model.names import TopicId

UNRESOLVED = -1
"""The offset was not requested, because `start` is "earliest", or it has not been answered yet."""
BEGUN = -2
"""A lane has begun, and its first run holds the offset."""


class Selected(msgspec.Struct, frozen=True, array_like=True):
    """The source topics that a configuration selects."""

    topics: tuple[str, ...]
    """Names and patterns of selected topics."""
    exclude: tuple[str, ...] = ()
    """Names and patterns of excluded topics."""
    policy: str = ""
    """The selection policy and its settings, or an empty string if there is none."""


class TopicStarts(msgspec.Struct, frozen=True, array_like=True):
    """The partitions that a source topic had when it was first selected, and their start offsets.

    A partition beyond these was added later.
    """

    topic: str
    """Name of the source topic."""
    topic_id: TopicId
    """Its topic id."""
    start: StartPoint
    """The setting from which the offsets were resolved."""
    offsets: tuple[int, ...]
    """By partition: the source offset, `UNRESOLVED` or `BEGUN`."""
