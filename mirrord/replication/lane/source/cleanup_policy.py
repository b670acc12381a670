"""The question whether the source's topic is compacted, and its answer."""

import msgspec


class AskCleanup(msgspec.Struct, frozen=True):
    """Ask the source cluster for the topic's current cleanup.policy."""

    question: int


class CleanupAnswer(msgspec.Struct, frozen=True):
    """`compacts` is None if there is no permission to read the policy; with `trouble` it could not be read now."""

    question: int
    compacts: bool | None
    trouble: str = ""
