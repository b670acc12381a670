"""What an operator command comes to, after it was compared with the ledger."""

from typing import Generic, NamedTuple, TypeVar

FactT = TypeVar("FactT")


class Ruling(NamedTuple, Generic[FactT]):
    """The fact that carries out a command, and the line that the operator reads."""

    fact: FactT | None
    """None if the ledger says so already."""
    line: str
