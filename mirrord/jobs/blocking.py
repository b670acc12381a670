"""Iterates over an asynchronous generator in a caller without an event loop, such as a Spark task."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterator
from typing import TypeVar

import uvloop

from mirrord.runtime import logs

T = TypeVar("T")


def blocking(begin: Callable[[], AsyncGenerator[T, None]]) -> Iterator[T]:
    """Yield the items of an asynchronous generator to a caller without an event loop. An event loop runs while the
    caller is waiting for an item."""
    logs.plain()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        items = begin()

        async def following() -> list[T]:
            async for item in items:
                return [item]
            return []

        async def end() -> None:
            await items.aclose()

        try:
            while found := runner.run(following()):
                yield found[0]
        finally:
            runner.run(end())
