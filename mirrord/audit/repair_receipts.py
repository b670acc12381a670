"""Appends a `RangeRepaired` fact to the ledger for each repair, after the repaired records have been written."""

from collections.abc import Sequence

from mirrord.config.schema import Config, FlowConfig
from mirrord.ledger.facts.audit import RangeRepaired
from mirrord.ledger.proven_ranges import with_repair
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.ledger.store.job_lease import append_under_current_lease
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.errors import EnvironmentFault

PATIENCE_S = 10.0


async def record_repairs(config: Config, flow: FlowConfig, facts: Sequence[RangeRepaired]) -> str:
    """Append the facts that the ledger does not hold yet. Return an empty string, or the reason why they cannot be
    written.

    Even if the facts cannot be written, the repaired records are in the repair topic. The next repair finds them there
    and records them in the ledger.
    """
    store = ClusterAccess(config, PATIENCE_S).ledger(flow)
    try:
        await store.open()
        try:
            await store.read_to_end()
            for fact in facts:
                await _append(store, fact)
        finally:
            await store.close()
    except EnvironmentFault as fault:
        return f"the repair of {flow.name} is not recorded in its ledger, so audits still report it: {fault}"
    return ""


async def _append(store: LedgerStore, fact: RangeRepaired) -> None:
    lane = store.state.lanes.get(fact.lane)
    is_news = lane is not None and with_repair(lane.repaired, fact) is not None
    if is_news and not await append_under_current_lease(store, fact):
        raise EnvironmentFault("its lease is being taken over")
