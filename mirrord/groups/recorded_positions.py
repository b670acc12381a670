"""Records in the state topic which positions of consumer groups on the source do not match those on the target. When
the source is gone, nothing else shows them."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress

from mirrord.groups.commit_source import GroupSource
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.ledger.errors import LedgerUnavailable
from mirrord.ledger.last_seen.group_positions import group_records
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.group_status import GroupStatus
from mirrord.runtime.clock import Clock

RECORD_S = 1.0
MOST_SHARE = 0.02
"""Maximum share of a core that is spent on comparing the positions with the recorded ones. With very many positions,
they are recorded less often."""

Statuses = Mapping[str, Mapping[TopicAndPartition, GroupStatus]]


async def record_positions(
    store: LedgerStore,
    may_write: Callable[[], bool],
    source: GroupSource,
    statuses: Callable[[], Statuses],
    clock: Clock,
) -> None:
    """Record the positions once a second until cancelled. A failed attempt is repeated, with newer positions."""
    while True:
        began = time.thread_time()
        age_s = source.age_s
        if age_s is not None and may_write():
            now_ms, state, known = clock.wall_ms(), store.state, statuses()
            every = (status for places in known.values() for status in places.values())
            seen_ms = now_ms - int(age_s * 1000)
            records = group_records(state, every, len(known), seen_ms, state.lease_epoch, now_ms)
            spent_s = time.thread_time() - began
            with suppress(LedgerUnavailable):
                await store.save(*records)
        else:
            spent_s = 0.0
        await asyncio.sleep(max(RECORD_S, spent_s / MOST_SHARE))
