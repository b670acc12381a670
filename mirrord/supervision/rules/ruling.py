"""The result of resolving one operator command."""

from typing import Generic, NamedTuple, TypeVar

FactT = TypeVar("FactT")


class Ruling(NamedTuple, Generic[FactT]):
    """The fact that carries out an operator command, and one line for the operator."""

    fact: FactT | None
    """None if the command changes nothing, because the ledger already says the same."""
    line: str
