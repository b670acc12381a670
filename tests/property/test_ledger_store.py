"""Whatever happens to requests: a store never reports wrongly what bound, and nothing binds twice."""

import asyncio
import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from mirrord.ledger.codec import decode_entry
from mirrord.ledger.errors import LedgerUnavailable
from mirrord.ledger.facts.core import AnyFact, LaneTaken, LeaseTaken, Verdict, VerdictGiven
from mirrord.ledger.fold import fold
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.memory_log import Fault, MemoryLedger, MemoryLog
from mirrord.ledger.store.store import LedgerStore
from mirrord.runtime.clock import SystemClock
from tests.fixtures.ledger import HOLDER, lane_id, plain
from tests.fixtures.ledger_contract import start_flow

Answers = dict[AnyFact, bool | None]


@given(st.integers(0, 2**32))
@settings(max_examples=60)
def test_answers_are_true_whatever_fails(seed: int) -> None:
    asyncio.run(_world(random.Random(seed)))


async def _world(chance: random.Random) -> None:
    ledger = MemoryLedger()
    stores = [LedgerStore(MemoryLog(ledger), SystemClock(), deadline_seconds=20) for _ in range(3)]
    for store in stores:
        await store.open()
    await start_flow(stores[0], lanes=3)
    kinds = [None] * 4 + [Fault.FAILS, Fault.ANSWER_LOST, Fault.LATE]
    ledger.append_faults.extend(chance.choice(kinds) for _ in range(chance.randrange(200)))
    answers: Answers = {}
    callers = [
        _call(chance, ledger, store, caller, answers) for caller, store in enumerate(chance.choices(stores, k=6))
    ]
    await asyncio.gather(*callers)
    ledger.append_faults.clear()
    ledger.release()
    for store in stores:
        await store.read_to_end()
    assert plain(stores[0].state) == plain(stores[1].state) == plain(stores[2].state)
    state, bound = FlowState(), Counter[AnyFact]()
    for offset, data in enumerate(ledger.entries):
        entry = decode_entry(data)
        bound.update(fact for fact, binds in zip(entry.facts, fold(state, entry, offset), strict=True) if binds)
    for fact, answer in answers.items():
        assert bound[fact] in ((answer,) if answer is not None else (0, 1)), fact
    for store in stores:
        await store.close()


async def _call(chance: random.Random, ledger: MemoryLedger, store: LedgerStore, caller: int, answers: Answers) -> None:
    """Append unique facts, and repeat some whose outcome is not known."""
    lane = lane_id(caller % 3)
    for number in range(8):
        epoch, grant = store.state.lease_epoch, store.state.lanes[lane].grant
        at = caller * 1000 + number * 10
        fact: AnyFact = chance.choice(
            (
                VerdictGiven(lane, grant, (Verdict(at, at + 1, "control"),)),
                VerdictGiven(lane, grant, (Verdict(at, at + 1, "aborted"),), "note"),
                LaneTaken(lane, grant + 1, f"caller {caller}, {number}"),
                LeaseTaken(epoch + 1, HOLDER, at),
            )
        )
        answers[fact] = None
        stated = epoch + isinstance(fact, LeaseTaken)
        for _ in range(chance.randrange(1, 5)):
            try:
                (answers[fact],) = await store.append(stated, [fact])
            except LedgerUnavailable:
                if chance.random() < 0.3:
                    ledger.release()
                continue
            break
