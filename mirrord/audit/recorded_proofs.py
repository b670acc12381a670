"""Appends `RangeAudited` facts to the ledger. They record which range of each lane an audit has proven."""

from collections.abc import Iterable, Sequence

import msgspec
import structlog

from mirrord.audit.plan import PATIENCE_S, FlowPlan
from mirrord.audit.rules.audit_range import MapPiece
from mirrord.audit.rules.range_division import pieces
from mirrord.config.schema import Config, FlowConfig
from mirrord.ledger.facts.audit import RangeAudited
from mirrord.ledger.store.cluster_access import ClusterAccess

log = structlog.get_logger()


async def record_proof(config: Config, flow: FlowConfig, plan: FlowPlan, facts: Sequence[RangeAudited]) -> None:
    """Append the facts that record the proofs of an audit. Lanes whose offset map has changed since the audit are
    omitted. Raises EnvironmentFault.

    The map can change if the target loses the end of its log: ordinals below the resume position then get new offsets.
    The proof does not cover the new offsets. If the proof were recorded, the next audit would skip these ordinals.
    Immediately before the append, the current map is therefore compared with the audited map.
    """
    planned = {lane.lane: lane for lane in plan.lanes}
    store = ClusterAccess(config, PATIENCE_S).ledger(flow)
    await store.open()
    try:
        await store.read_to_end()
        still: list[RangeAudited] = []
        for fact in facts:
            lane = store.state.lanes.get(fact.lane)
            audited = [piece for each in planned[fact.lane].ranges for piece in each.pieces if each.end <= fact.end]
            if lane is None or not audited or _joined(pieces(lane, audited[0].ordinal, fact.end)) != _joined(audited):
                log.warning("audit_of_another_map", flow=flow.name, lane=fact.lane)
                continue
            still.append(fact)
        if still:
            await store.append(store.state.lease_epoch, still)
    finally:
        await store.close()


def _joined(found: Iterable[MapPiece]) -> list[MapPiece]:
    """Merge adjacent parts of the offset map that are separate only because the audit divided the map into ranges."""
    joined: list[MapPiece] = []
    for piece in found:
        last = joined[-1] if joined else None
        if last is not None and last.truncated == piece.truncated and _follows(last, piece):
            joined[-1] = msgspec.structs.replace(last, length=last.length + piece.length)
        else:
            joined.append(piece)
    return joined


def _follows(before: MapPiece, after: MapPiece) -> bool:
    return all(
        second == first + before.length
        for first, second in (
            (before.ordinal, after.ordinal),
            (before.source, after.source),
            (before.target, after.target),
        )
    )
