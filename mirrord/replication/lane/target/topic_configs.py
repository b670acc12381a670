"""The messages between a lane and its `LaneHost` about the configs of the target topic. They are exchanged after the
target has refused a record."""

import msgspec


class AskConfigs(msgspec.Struct, frozen=True):
    """Read those configs of the target topic that determine which records it accepts."""

    question: int
    sync: bool
    """Whether to sync the configs from the source topic before they are read. This has no effect if the flow does not
    sync configs."""


class ConfigsAnswer(msgspec.Struct, frozen=True):
    """The answer to `AskConfigs`."""

    question: int
    seen: str
    """A digest of the configs, or an empty string if they cannot be read."""
    trouble: str = ""
    """Why the configs may still differ from those of the source topic."""
    may_pass: bool = False
    """Whether the problem in `trouble` may be temporary: the cluster may answer again, or an operator may grant a
    permission."""
    is_denied: bool = False
    """Whether mirrord has no permission to read the configs."""
