"""What every kind of fact has in common, and the parts that several kinds are made of."""

import msgspec


class Fact(msgspec.Struct, frozen=True, array_like=True, tag_field="kind"):
    """The base of all facts."""


class Origin(msgspec.Struct, frozen=True, array_like=True):
    """Where an order came from."""

    by: str
    """Who gave it: user@host as the command line tells it, or "policy"."""
    reason: str
    """In their words; may be empty."""
    at_ms: int
    """Wall clock, for people only."""
