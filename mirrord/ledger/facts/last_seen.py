"""What mirrord has last seen of a flow's source cluster, as records of the state topic store it.

After the source is gone, these records are all that is known about it. `mirrord.ledger.last_seen` decides what is
written.
"""

import msgspec

from mirrord.model.acls import AclRule
from mirrord.model.group_status import GroupState
from mirrord.model.quotas import ClientQuota


class SeenPosition(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The position of a consumer group on the source, if the position on the target does not match it."""

    group: str
    topic: str
    """Name of the source topic."""
    partition: int
    offset: int
    """Committed offset on the source, or -1 if there is none."""
    state: GroupState
    why: str = ""


class SeenConfig(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A config of a source topic that is synced to the target topic, or that decides what retention deletes."""

    name: str
    value: str | None
    own: bool
    """Whether it is set on the topic itself. Otherwise, it is the source's default."""


class SeenConfigs(msgspec.Struct, frozen=True, array_like=True):
    """The configs of one source topic."""

    topic: str
    configs: tuple[SeenConfig, ...]
    """Sorted by name."""


class LastSeen(msgspec.Struct, frozen=True, array_like=True):
    """What was seen of the source, in one record of the state topic. The key of the record says which of the fields are
    set."""

    at_ms: int
    """A time at which the contents were current, according to the clock of the process that wrote the record."""
    ends: tuple[int, ...] = ()
    """High watermarks of consecutive partitions of one topic, beginning with the partition in the key. -1 means that
    the high watermark is unknown."""
    stale: tuple[tuple[int, int], ...] = ()
    """Pairs (position in `ends`, time in ms) for the high watermarks that were no longer known to be current at
    `at_ms`, because the leaders did not answer. They were last known to be current at these times."""
    positions: tuple[SeenPosition, ...] = ()
    """Positions of some of the consumer groups."""
    groups: int = 0
    """In the summary about groups: the number of groups that are followed."""
    omitted: int = 0
    """In a summary: how many things are not recorded, because there are too many: positions of groups, or topics with
    faults."""
    configs: tuple[SeenConfigs, ...] = ()
    """Configs of some of the source topics."""
    known: tuple[str, ...] = ()
    """In the summary about configs: the names of all topic configs that the source's brokers know."""
    rules: tuple[AclRule, ...] = ()
    """Some of the source's ACLs on topics and groups."""
    refused: str = ""
    """In the summaries about configs, ACLs and client quotas: why they could not be read, or an empty string."""
    quotas: tuple[ClientQuota, ...] = ()
    """Some of the source's client quotas."""
    faults: tuple[tuple[str, str], ...] = ()
    """In the summary about high watermarks: the selected topics that are not copied, or not completely, each with a
    line that says why."""
    starts: tuple[int, ...] = ()
    """Log start offsets of the partitions in `ends`. -1 means that the log start offset is unknown."""
    held_ms: int = -1
    """A time up to which the target held all records of the source partitions, except for those in `late`. -1 means
    that no such time is known."""
    late: tuple[tuple[int, int], ...] = ()
    """Pairs (position in `ends`, time in ms) for the partitions of which the target held all records only up to an
    earlier time than `held_ms`. A time of -1 is unknown."""
    commits: tuple[tuple[str, str, int], ...] = ()
    """The positions of some of the consumer groups that matched on both sides: group, source topic, and number of
    positions."""
