"""What a broker's answer to a commit for a group means, in words."""

from typing import Literal, NamedTuple

from mirrord.model.groups import GroupState
from mirrord.shell.group_admin import LATER
from mirrord.wire.errors import ErrorCode

WITHOUT_MEMBERS = frozenset({"Empty", "Dead"})
"""org.apache.kafka.common.GroupState."""
MEMBERS = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)
"""The broker's words for a group that has members."""


class Refusal(NamedTuple):
    """An error."""

    name: str
    state: GroupState
    why: str
    is_later: bool
    """Another try may have another answer."""
    has_members: bool


def refusal(error: int, side: Literal["source", "target"], kind: str = "") -> Refusal:
    """The error of a commit on that side; `kind` is the group's there, as the broker calls it, if it is known."""
    name = ErrorCode.name_of(error) if error else ""
    if error in MEMBERS:
        why = f"the group has members at the {side}, and is left alone"
        return Refusal(name, "active", why, is_later=False, has_members=True)
    if error == ErrorCode.GROUP_ID_NOT_FOUND or (error and kind == "Share"):
        # A share group has no such positions (org.apache.kafka.coordinator.group.modern.share.ShareGroup).
        what = "a share group" if kind == "Share" else "a group of another kind"
        why = f"there is {what} of this name at the {side}: {name}"
        return Refusal(name, "refused", why, is_later=False, has_members=False)
    need = "; READ on the group or its topic is missing" if "AUTHORIZATION" in name else ""
    why = f"the {side} does not take the commit: {name}{need}"
    return Refusal(name, "refused", why, is_later=error in LATER, has_members=False)
