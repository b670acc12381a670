"""The base of every kind of fact, and the parts that several kinds share."""

import msgspec


class Fact(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    """The base of all facts."""


class Origin(msgspec.Struct, frozen=True, array_like=True):
    """Who gave a command, when, and why."""

    by: str
    """Author of the command: user@host as the command line reports it, or "policy"."""
    reason: str
    """Reason in the author's words. It may be empty."""
    at_ms: int
    """Wall-clock time, for information only."""
