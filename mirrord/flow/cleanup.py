"""Whether the source's topic is compacted: what a lane asks about it, and what it is told."""

import msgspec


class AskCleanup(msgspec.Struct, frozen=True):
    """Ask the source cluster for the topic's cleanup.policy, as it is now."""

    question: int


class CleanupTold(msgspec.Struct, frozen=True):
    """`compacts` is None where the policy may not be read; with `trouble` it could not be read now."""

    question: int
    compacts: bool | None
    trouble: str = ""
