"""Explains why nothing is committed for a group: what a cluster lists of it, and how a broker answers a commit."""

from collections.abc import Mapping
from typing import NamedTuple

from mirrord.kafka.client.group_admin import LATER
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.groups import ListedGroup
from mirrord.model.group_status import GroupState
from mirrord.model.names import Side

SHARE = "Share"
"""org.apache.kafka.common.GroupType: the positions of a share group are stored elsewhere (KIP-932)."""
WITHOUT_MEMBERS = frozenset({"Empty", "Dead"})
"""org.apache.kafka.common.GroupState, for classic groups, KIP-848 groups and Kafka Streams groups alike."""
MEMBERS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})
"""The broker's errors for a group that has members."""


def kept(listed: Mapping[str, ListedGroup]) -> dict[str, ListedGroup]:
    """Return the groups for which nothing is committed: those with members, and share groups."""
    return {name: each for name, each in listed.items() if each.state not in WITHOUT_MEMBERS or each.kind == SHARE}


def left_alone(group: ListedGroup, side: Side) -> tuple[GroupState, str]:
    """Return the state of one of these groups and the reason."""
    if group.kind == SHARE:
        return "refused", f"there is a share group of this name at the {side}, which has no such positions"
    return "active", f"the group is {group.state} at the {side}, and is left alone"


class CommitRefusal(NamedTuple):
    """A refused commit."""

    name: str
    state: GroupState
    why: str
    is_later: bool
    """Whether another attempt may get another answer."""
    has_members: bool


def refusal(error: int, side: Side) -> CommitRefusal:
    """Explain the error of a commit on that side."""
    name = ErrorCode.name_of(error) if error else ""
    if error in MEMBERS:
        why = f"the group has members at the {side}, and is left alone"
        return CommitRefusal(name, "active", why, is_later=False, has_members=True)
    if error == ErrorCode.GROUP_ID_NOT_FOUND:
        # Brokers return this for a group of another kind (org.apache.kafka.coordinator.group.modern.share.ShareGroup).
        why = f"there is a group of another kind of this name at the {side}: {name}"
        return CommitRefusal(name, "refused", why, is_later=False, has_members=False)
    need = "; READ on the group or its topic is missing" if "AUTHORIZATION" in name else ""
    why = f"the {side} refuses the commit: {name}{need}"
    return CommitRefusal(name, "refused", why, is_later=error in LATER, has_members=False)
