"""1,000 gap-free lanes add at most 1 MB an hour to the ledger: bytes of entries are counted, no clock is looked at.

A lane whose source has no gaps appends when it is opened and when it is taken over, and nothing while it copies; its
progress records and the renewals of the lease go to the state topic.
"""

import asyncio
import base64
import random

from mirrord.ledger.facts.core import AnyFact, LaneOpened, LaneTaken, LeaseTaken, SourceRun, TakeoverChecked, TargetRun
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.ledger.store.store import LedgerStore, open_flow
from mirrord.model.names import LaneId, LaneKey, TopicId
from mirrord.model.runs import Run
from mirrord.runtime.clock import SystemClock
from tests.fixtures.ledger import FLOW, HOLDER
from tests.fixtures.ledger_contract import progress

LANES = 1_000
LIMIT_BYTES = 1_000_000


def lane_ids(chance: random.Random) -> list[LaneId]:
    """Lane ids as long as real ones."""

    def topic_id() -> TopicId:
        return TopicId(base64.urlsafe_b64encode(chance.randbytes(16)).rstrip(b"=").decode())

    return [LaneKey(topic_id(), partition % 50, topic_id()).id for partition in range(LANES)]


def opening(lane: LaneId) -> list[AnyFact]:
    partition = LaneKey.parse(lane).partition
    start = 10**9
    return [
        LaneOpened(lane, "payments.settled", "eu.payments.settled", partition, 10**6, 0, "0123456789abcdef"),
        LaneTaken(lane, 1, "eu-us.replicator-3.generation-12"),
        SourceRun(lane, 1, (Run(0, start),)),
        TargetRun(lane, 1, 0, 0, 5),
    ]


def taking_over(lane: LaneId) -> list[AnyFact]:
    first = 10**10
    return [
        LaneTaken(lane, 2, "eu-us.replicator-4.generation-13"),
        TargetRun(lane, 2, first, first, 6),
        TakeoverChecked(lane, 2, first - 5_000, first, "equal"),
    ]


async def test_an_hour_of_a_thousand_lanes_with_a_restart(seed: int) -> None:
    ledger, lanes = MemoryLedger(), lane_ids(random.Random(seed))
    store = LedgerStore(MemoryLog(ledger), SystemClock())
    await store.open()
    await open_flow(store, FLOW)
    await store.append(1, [LeaseTaken(1, HOLDER, 6000)])
    await asyncio.gather(*(store.append(1, opening(lane)) for lane in lanes))
    await asyncio.gather(*(store.append(1, taking_over(lane)) for lane in lanes))
    assert all(lane.grant == 2 for lane in store.state.lanes.values())
    written = sum(len(entry or b"") for entry in ledger.entries)
    assert written <= LIMIT_BYTES
    # While the lanes copy, progress records are saved each second: none of that reaches the ledger.
    entries = len(ledger.entries)
    await asyncio.gather(*(store.save(progress(number, number)) for number in range(LANES)))
    assert len(ledger.entries) == entries
    await store.close()
