"""A flow whose copying a failover has ended."""

import pytest

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import AnyFact
from mirrord.ledger.facts.recovery import CopyingEnded, RecoveryBegan, RecoveryFinished
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.errors import EnvironmentFault
from mirrord.runtime.clock import SystemClock
from mirrord.supervision.failover.ended_flow import CopyingOver, check_not_over, unless_over
from tests.fixtures.ledger import FLOW

ADA = Origin("ada@host", "fire", 1)
ENDED = (RecoveryBegan(1, "source-lost", (), ADA), CopyingEnded(1, (), 0, -1), RecoveryFinished(1, False, 5))


def store(ledger: MemoryLedger) -> LedgerStore:
    return LedgerStore(MemoryLog(ledger), SystemClock(), deadline_seconds=2)


async def ledger_with(*facts: AnyFact) -> MemoryLedger:
    ledger = MemoryLedger()
    writer = store(ledger)
    await writer.open()
    await writer.append(0, [FLOW])
    if facts:
        assert all(await writer.append(0, facts))
    await writer.close()
    return ledger


async def unreachable() -> str:
    raise EnvironmentFault("the source does not answer")


async def test_a_flow_with_an_unreachable_source_is_known_to_have_ended() -> None:
    ledger = await ledger_with(*ENDED)
    with pytest.raises(CopyingOver, match=r"failover 1 \(source-lost\) has ended the copying of this flow for good"):
        await unless_over(unreachable(), lambda: store(ledger))


async def test_other_flows_report_the_unreachable_source() -> None:
    for facts in ((), ENDED[:2], (RecoveryBegan(1, "source-lost", ("orders",), ADA), *ENDED[1:])):
        ledger = await ledger_with(*facts)
        with pytest.raises(EnvironmentFault, match="the source does not answer"):
            await unless_over(unreachable(), lambda ledger=ledger: store(ledger))
    with pytest.raises(EnvironmentFault, match="the source does not answer"):
        await unless_over(unreachable(), lambda: store(MemoryLedger()))


async def test_a_flow_that_is_being_failed_over_is_opened_by_the_next_daemon() -> None:
    reader = store(await ledger_with(*ENDED[:2]))
    await reader.open(read_only=True)
    check_not_over(reader.state)
    await reader.close()
