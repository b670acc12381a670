"""The base class of all facts, and the structs that several kinds of facts contain."""

import msgspec


class Fact(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    """The base class of all facts."""


class Origin(msgspec.Struct, frozen=True, array_like=True):
    """The author of a command, the time at which the command was given, and the reason for it."""

    by: str
    """Author of the command: user@host as the command line reports it, or "policy" if no operator gave the command."""
    reason: str
    """Reason in the author's words; may be empty."""
    at_ms: int
    """Wall-clock time, for information only."""
    client: str = ""
    """Name of the token that the client has proved; "local" for the user who runs the daemon. Empty if no client was
    involved, or if an older version of mirrord wrote the fact."""
    peer: str = ""
    """Address from which the client connected; empty in the same cases."""
