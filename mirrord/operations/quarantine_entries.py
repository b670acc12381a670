"""Reads quarantined ranges from the ledgers on the target clusters: all of them, or the one to which a command
refers."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from mirrord.config.schema import Config, FlowConfig
from mirrord.ledger.errors import LedgerMissing
from mirrord.ledger.gaps import Gap
from mirrord.ledger.quarantine import Parked
from mirrord.ledger.standing_orders import Order
from mirrord.ledger.state import LaneState
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.ledger.store.history import LedgerReading, read_gaps
from mirrord.ledger.store.kafka_log import KafkaLog
from mirrord.ledger.store.spill_file import run_memory
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId
from mirrord.operations.flow_lookup import ledgers_meant, of_several
from mirrord.operations.status_report import PATIENCE_S, LedgerView, read_ledgers
from mirrord.replication.dead_letters.records import LetterPlace


class QuarantineEntry(msgspec.Struct, frozen=True):
    """One quarantined range of records, with its flow and its source partition."""

    flow: str
    topic: str
    partition: int
    entry: Parked


async def read_entries(config: Config) -> list[QuarantineEntry]:
    """Return the quarantined ranges of all flows that have ever run, sorted by flow, partition and offset. Raises
    EnvironmentFault."""
    views = await read_ledgers(config, ClusterAccess(config, PATIENCE_S))
    found: list[QuarantineEntry] = []
    for name, view in views.items():
        if isinstance(view, LedgerMissing):
            continue
        if not isinstance(view, LedgerView):
            raise EnvironmentFault(f"flow {name}: {view}")
        rejections = await _rejections(config, view)
        for lane_id, lane in view.state.lanes.items():
            entries = [_with_time(entry, rejections.get(lane_id, ())) for entry in lane.quarantine]
            found += [QuarantineEntry(name, lane.source_topic, lane.partition, entry) for entry in entries]
    return sorted(found, key=lambda each: (each.flow, each.topic, each.partition, each.entry.start))


async def _rejections(config: Config, view: LedgerView) -> dict[LaneId, list[Gap]]:
    """Return the verdicts on rejected records, with the times at which they were recorded in the ledger. These times
    replace the times that are missing from quarantined ranges (see `is_untimed`)."""
    if not any(is_untimed(entry) for lane in view.state.lanes.values() for entry in lane.quarantine):
        return {}
    rejections: dict[LaneId, list[Gap]] = {}
    log = KafkaLog(view.flow.name, config.clusters[view.flow.target])
    for gap in await read_gaps(LedgerReading(log, run_memory(view.flow))):
        if gap.reason == "rejected":
            rejections.setdefault(gap.lane, []).append(gap)
    return rejections


def is_untimed(entry: Parked) -> bool:
    """Return whether the range was skipped because of `on_reject = "skip"`. The entry for such a range does not say
    when the range was skipped."""
    return entry.skipped is not None and entry.skipped.at_ms == 0


def _with_time(entry: Parked, rejections: Sequence[Gap]) -> Parked:
    times = [
        gap.at_ms for gap in rejections if gap.start < entry.end and entry.start < gap.end and gap.at_ms is not None
    ]
    if entry.skipped is None or not times or not is_untimed(entry):
        return entry
    return msgspec.structs.replace(entry, skipped=msgspec.structs.replace(entry.skipped, at_ms=max(times)))


class FoundEntry(NamedTuple):
    """One quarantined range of records, with its flow and its lane."""

    flow: FlowConfig
    lane: LaneState
    entry: Parked

    @property
    def place(self) -> LetterPlace:
        """The source position at which the quarantined range begins."""
        lane = self.lane
        return LetterPlace(lane.source_topic, lane.partition, self.entry.start, lane.key.id)


async def find(config: Config, order: Order) -> FoundEntry | None:
    """Return the quarantined range to which a command refers. A range that is waiting for a decision takes precedence
    over a skipped one. Return None if there is no such range.

    Raises ConfigError if the command may refer to several flows.
    """
    name, views = await ledgers_meant(config, order.name, order.flow)
    found = [
        FoundEntry(view.flow, lane, entry)
        for view in views.values()
        if isinstance(view, LedgerView)
        for lane in view.state.lanes.values()
        if f"{lane.source_topic}-{lane.partition}" == name
        for entry in lane.quarantine
        if entry.start <= order.offset < entry.end
    ]
    flows = {each.flow.name for each in found}
    if len(flows) > 1:
        raise of_several(name, flows)
    newest = sorted(found, key=lambda each: (each.entry.skipped is None, each.lane.age))
    return newest[-1] if newest else None
