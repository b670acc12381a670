"""The result of resolving one operator command, as the rules for quarantines and seeks return it."""

from typing import Generic, NamedTuple, TypeVar

FactT = TypeVar("FactT")


class Ruling(NamedTuple, Generic[FactT]):
    """The fact that carries out an operator command, and one line for the operator."""

    fact: FactT | None
    """The fact to append. None if the command changes nothing, because the ledger already holds an equivalent fact."""
    line: str
