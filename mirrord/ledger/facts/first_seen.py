"""What the ledger keeps of the moment when a configuration first selects a source topic."""

import msgspec

from mirrord.config.units import Start
from mirrord.model.names import TopicId

UNRESOLVED = -1
"""Not asked for, because `start` is "earliest", or not answered yet."""
BEGUN = -2
"""A lane has begun, and its first run holds the offset."""


class Selected(msgspec.Struct, frozen=True, array_like=True):
    """Which source topics a configuration selects."""

    topics: tuple[str, ...]
    exclude: tuple[str, ...] = ()
    policy: str = ""
    """The selection policy and its settings; empty: none."""


class TopicStarts(msgspec.Struct, frozen=True, array_like=True):
    """The partitions that a source topic had when it was first selected, and their start offsets.

    A partition beyond these was added later.
    """

    topic: str
    topic_id: TopicId
    start: Start
    """The setting that the offsets were resolved by."""
    offsets: tuple[int, ...]
    """By partition: the source offset, `UNRESOLVED` or `BEGUN`."""
