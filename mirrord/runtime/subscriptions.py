"""Lists of callbacks."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def subscribe(callbacks: list[T], callback: T) -> Callable[[], None]:
    """Add a callback to a list, and return a function that removes it."""
    callbacks.append(callback)

    def end() -> None:
        if callback in callbacks:
            callbacks.remove(callback)

    return end
