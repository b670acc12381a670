"""Records in the state topic which positions of consumer groups on the source do not match those on the target. When
the source is gone, nothing else shows them."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import NamedTuple

from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.ledger.errors import LedgerUnavailable
from mirrord.ledger.last_seen.group_positions import group_records
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.group_status import GroupStatus
from mirrord.runtime.clock import Clock

RECORD_S, AGAIN_S = 1.0, 0.05
"""Interval between two records, and the pause if the positions are just changing."""
MOST_SHARE = 0.02
"""Maximum share of a core that is spent on comparing the positions with the recorded ones. With very many positions,
they are recorded less often."""


class Examined(NamedTuple):
    """The positions of all groups."""

    statuses: Mapping[str, Mapping[TopicAndPartition, GroupStatus]]
    age_s: float
    """All commits on the source that are older than this are reflected in the statuses."""


async def record_positions(
    store: LedgerStore, may_write: Callable[[], bool], examined: Callable[[], Examined | None], clock: Clock
) -> None:
    """Record the positions once a second until cancelled. A failed attempt is repeated, with newer positions."""
    while True:
        began, found = time.thread_time(), examined()
        if found is None or not may_write():
            await asyncio.sleep(AGAIN_S)
            continue
        now_ms, state = clock.wall_ms(), store.state
        every = (status for places in found.statuses.values() for status in places.values())
        seen_ms = now_ms - int(found.age_s * 1000)
        records = group_records(state, every, len(found.statuses), seen_ms, state.lease_epoch, now_ms)
        spent_s = time.thread_time() - began
        with suppress(LedgerUnavailable):
            await store.save(*records)
        await asyncio.sleep(max(RECORD_S, spent_s / MOST_SHARE))
