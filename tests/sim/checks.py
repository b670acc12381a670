"""What the checks of a world keep, so that they need not derive everything again after each event."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, NamedTuple, ParamSpec, TypeVar

from tests.sim.forgotten_verdicts import ForgottenVerdicts
from tests.sim.stored import Stored

if TYPE_CHECKING:
    from tests.sim.world import World

ArgumentsT = ParamSpec("ArgumentsT")
ValueT = TypeVar("ValueT")


class Matched(NamedTuple):
    """A target log in which each of the lane's records is at the ordinal at which it is according to the ledger."""

    history: list[Stored]
    log: list[Stored]
    """The lane's batches in it."""
    producer: int
    end: int
    """The ordinal after the last one in it."""
    mapped_at: int
    """`Checks.mapped_at`"""
    offsets: list[int | None]
    """The source offset of each ordinal, according to the ledger."""
    numbers: list[int]
    """The numbers of the records."""

    def agrees_with(self, offsets: list[int | None]) -> bool:
        """Return whether these are the source offsets of the same ordinals."""
        return self.offsets is offsets or self.offsets == offsets[: len(self.offsets)]


@dataclass
class Checks:
    """What earlier checks of a world have seen, and what the present one has derived from it."""

    picture: tuple[int, ...] = ()
    """A value that changes whenever anything compared by `truth` does."""
    matched: Matched | None = None
    in_order: list[Any] = field(default_factory=list[Any])
    """What the order of the records in a compacted target depends on (`compacted_copy.put_back`)."""
    whole: list[Stored] = field(default_factory=list[Stored])
    taken: set[int] = field(default_factory=set[int])
    """The numbers of the records in that log (`newer_records.taken`)."""
    mapped_at: int = 0
    """The last ledger entry that has changed the source offsets of ordinals."""
    halts: list[int] = field(default_factory=list[int])
    """The ledger entries that halt the lane, or would halt it if they took effect."""
    forgotten: ForgottenVerdicts = field(default_factory=ForgottenVerdicts)
    derived: dict[object, Any] | None = None
    """What the present check has derived (`once_a_check`), or None if there is none."""


def once_a_check(
    derive: Callable[Concatenate["World", ArgumentsT], ValueT],
) -> Callable[Concatenate["World", ArgumentsT], ValueT]:
    """Call the function only once in each check: a check changes nothing in the world. Outside of a check, the function
    is called each time. No caller may change what it returns."""

    @wraps(derive)
    def derived(world: "World", *arguments: ArgumentsT.args, **named: ArgumentsT.kwargs) -> ValueT:
        known = world.checks.derived
        if known is None:
            return derive(world, *arguments, **named)
        key = (derive, *arguments, *named.items())
        if key not in known:
            known[key] = derive(world, *arguments, **named)
        return known[key]

    return derived
