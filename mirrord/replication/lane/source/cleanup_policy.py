"""The messages between a lane and its `LaneHost` about whether the source topic is compacted."""

import msgspec


class AskCleanup(msgspec.Struct, frozen=True):
    """Ask the source cluster for the topic's current cleanup.policy."""

    question: int


class CleanupAnswer(msgspec.Struct, frozen=True):
    """Whether the source topic is compacted. `compacts` is None if mirrord has no permission to read the policy. If the
    policy cannot be read at the moment, `trouble` says why."""

    question: int
    compacts: bool | None
    trouble: str = ""
