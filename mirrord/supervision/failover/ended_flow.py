"""Recognizes a flow whose copying a failover has ended. No daemon copies it again."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

from mirrord.ledger.folding.failovers import ends_all, in_progress
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.errors import EnvironmentFault, MirrordError

T = TypeVar("T")


class CopyingOver(MirrordError):
    """Raised if a failover has ended the copying of the whole flow."""

    def __init__(self, state: FlowState) -> None:
        """Describe the failover that has ended the copying."""
        super().__init__(ended_line(state))
        self.recoveries = state.recoveries
        """The failovers of the flow."""


def is_ended(state: FlowState) -> bool:
    """Return whether a completed failover has ended the copying of the whole flow."""
    return ends_all(state.recoveries) and in_progress(state.recoveries) is None


def ended_line(state: FlowState) -> str:
    """Return which failover has ended the copying of the whole flow, as one line for operators."""
    last = next(each for each in reversed(state.recoveries) if each.ended and not each.topics)
    return f"failover {last.number} ({last.mode}) has ended the copying of this flow for good"


def check_not_over(state: FlowState) -> None:
    """Raise CopyingOver if a completed failover has ended the copying of the flow."""
    if is_ended(state):
        raise CopyingOver(state)


async def unless_over(
    work: Awaitable[T], ledger: Callable[[], LedgerStore], read: Callable[[LedgerStore], None] = lambda _: None
) -> T:
    """Return the result of `work`, which asks both clusters. If it fails, and a failover has ended the copying of the
    flow, raise CopyingOver instead. `ledger` returns an unopened store of the flow's ledger. `read` is called with a
    store that shows that the flow has ended."""
    try:
        return await work
    except EnvironmentFault:
        await _check_unopened(ledger(), read)
        raise


async def _check_unopened(store: LedgerStore, read: Callable[[LedgerStore], None]) -> None:
    """Read a ledger, and raise CopyingOver as `check_not_over` does. A ledger that cannot be read is ignored."""
    state: FlowState | None = None
    with suppress(MirrordError):
        await store.open(read_only=True)
        state = store.state
    with suppress(MirrordError):
        await store.close()
    if state is not None and is_ended(state):
        read(store)
        check_not_over(state)
