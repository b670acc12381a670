"""Divides work on a large batch into short steps, between which an event loop can do other work.

The work is a generator. It yields None between two steps. It yields a function if the next step may run in another
thread; the function's result is then sent to the generator, and an error of the function is raised in it. Work on a
small batch is done in the first step, so it yields nothing.
"""

from collections.abc import Callable, Generator, Iterator
from itertools import islice
from typing import Any, Generic, TypeVar

T = TypeVar("T")
Elsewhere = Callable[[], Any]
"""A function that may run in another thread."""
Steps = Generator[Elsewhere | None, Any, T]
AT_ONCE = 500
"""Maximum number of records that one step decodes, or adds to a new batch. They take less than a millisecond."""
_STEP_BYTES = 256 << 10
"""About how many bytes of records belong to one step. They may contain 100,000 headers."""


class Begun(Generic[T]):
    """Work that has yielded for the first time, and what it has yielded."""

    __slots__ = ("first", "steps")

    def __init__(self, steps: Steps[T], first: Elsewhere | None) -> None:
        self.steps = steps
        self.first = first


def begin(steps: Steps[T]) -> T | Begun[T]:
    """Carry out the first step. Return the result if there are no further ones. Raises the errors of the step."""
    try:
        return Begun(steps, next(steps))
    except StopIteration as end:
        return end.value


def finish(steps: Steps[T]) -> T:
    """Carry out all steps without a pause, and return the result. Raises the errors of the steps."""
    try:
        work = next(steps)
        while True:
            work = next(steps) if work is None else _carried_out(steps, work)
    except StopIteration as end:
        return end.value


def _carried_out(steps: Steps[T], work: Elsewhere) -> Elsewhere | None:
    try:
        result = work()
    except Exception as error:  # noqa: BLE001 -- raised where the work is done
        return steps.throw(error)
    return steps.send(result)


def collected(items: Iterator[T], at_once: int = AT_ONCE) -> Steps[list[T]]:
    """Collect all items in a list, up to `at_once` of them in one step."""
    found: list[T] = []
    while part := list(islice(items, at_once)):
        found += part
        if len(part) == at_once:
            yield None
    return found


def cleared(items: list[Any], at_once: int) -> Steps[None]:
    """Empty a list that is no longer needed. To free a million records takes a tenth of a second."""
    while len(items) > at_once:
        del items[-at_once:]
        yield None


def step_records(count: int, size: int) -> int:
    """Return how many records belong to one step, if `count` records have `size` bytes together."""
    return AT_ONCE if size <= _STEP_BYTES else max(1, min(AT_ONCE, count * _STEP_BYTES // size))
