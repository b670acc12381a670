"""Explains why nothing is committed for a group. The reason follows from the group's state in a cluster's list of
groups, or from a broker's answer to a commit."""

from collections.abc import Mapping
from typing import NamedTuple

from mirrord.kafka.client.group_admin import LATER
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.groups import ListedGroup
from mirrord.model.group_status import GroupState
from mirrord.model.names import Side

SHARE = "Share"
"""The type of a share group in org.apache.kafka.common.GroupType. A share group has no committed offsets, because
brokers store its positions separately (KIP-932)."""
WITHOUT_MEMBERS = frozenset({"Empty", "Dead"})
"""The states in org.apache.kafka.common.GroupState in which a group has no members. These states are the same for
classic groups, KIP-848 groups and Kafka Streams groups."""
MEMBERS = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS})
"""The errors by which a broker reports that a group has members and that a commit does not come from one of them."""


def kept(listed: Mapping[str, ListedGroup]) -> dict[str, ListedGroup]:
    """Return the listed groups for which nothing may be committed: those with members, and share groups."""
    return {name: each for name, each in listed.items() if each.state not in WITHOUT_MEMBERS or each.kind == SHARE}


def left_alone(group: ListedGroup, side: Side) -> tuple[GroupState, str]:
    """Return the state to report for a group for which nothing may be committed, and the reason."""
    if group.kind == SHARE:
        return "refused", f"there is a share group with this name on the {side}, which has no such positions"
    return "active", f"the group is {group.state} on the {side}, and is left unchanged"


class CommitRefusal(NamedTuple):
    """A broker's refusal of a commit."""

    name: str
    state: GroupState
    why: str
    is_later: bool
    """Whether mirrord retries the commit because the broker may accept it later."""
    has_members: bool


def refusal(error: int, side: Side) -> CommitRefusal:
    """Interpret a broker's answer to a commit. `side` is the cluster to which the commit was sent. `error` is the error
    code in the answer, or 0 if the broker has accepted the commit."""
    name = ErrorCode.name_of(error) if error else ""
    if error in MEMBERS:
        why = f"the group has members on the {side}, and is left unchanged"
        return CommitRefusal(name, "active", why, is_later=False, has_members=True)
    if error == ErrorCode.GROUP_ID_NOT_FOUND:
        # Brokers return this error if the group is not a consumer group. See, for example,
        # org.apache.kafka.coordinator.group.modern.share.ShareGroup.
        why = f"there is a group of a different type with this name on the {side}: {name}"
        return CommitRefusal(name, "refused", why, is_later=False, has_members=False)
    need = "; READ on the group or its topic is missing" if "AUTHORIZATION" in name else ""
    why = f"the {side} refuses the commit: {name}{need}"
    return CommitRefusal(name, "refused", why, is_later=error in LATER, has_members=False)
