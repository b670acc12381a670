"""Tells the ledger what was repaired (`RangeRepaired`), behind the records."""

from collections.abc import Iterable, Iterator, Sequence

from mirrord.ledger.proof import with_repair
from mirrord.model.audit_facts import RangeRepaired
from mirrord.model.config import Config, FlowConfig
from mirrord.model.errors import EnvironmentFault
from mirrord.model.intervals import Interval
from mirrord.shell.ledger_store import LedgerStore
from mirrord.shell.supervise import Surroundings

PATIENCE_S = 10.0
TRIES = 5
"""How often a fact is appended anew when the flow's lease was taken in between."""


def ranges(offsets: Iterable[int]) -> Iterator[Interval]:
    """Ascending offsets, those that follow each other as one range."""
    start = end = -1
    for offset in offsets:
        if offset != end:
            if start >= 0:
                yield start, end
            start = offset
        end = offset + 1
    if start >= 0:
        yield start, end


async def tell(config: Config, flow: FlowConfig, facts: Sequence[RangeRepaired]) -> str:
    """Append what the ledger does not know yet; why it cannot be told, else nothing: the records lie there all the
    same, and whoever repairs once more tells it then."""
    store = Surroundings(config, PATIENCE_S).ledger(flow)
    try:
        await store.open()
        try:
            await store.read_to_end()
            for fact in facts:
                await _append(store, fact)
        finally:
            await store.close()
    except EnvironmentFault as fault:
        return f"that {flow.name} was repaired is not kept in its ledger, so an audit goes on telling it: {fault}"
    return ""


async def _append(store: LedgerStore, fact: RangeRepaired) -> None:
    for _ in range(TRIES):
        lane, epoch = store.state.lanes.get(fact.lane), store.state.lease_epoch
        if lane is None or with_repair(lane.repaired, fact) is None:
            return
        (bound,) = await store.append(epoch, [fact])
        if bound or store.state.lease_epoch == epoch:
            return
    raise EnvironmentFault("its lease is being taken over")
