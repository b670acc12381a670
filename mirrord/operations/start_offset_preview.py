"""Determines where each lane of a flow would begin if the flow were started now. It reads from both clusters and
changes nothing."""

import asyncio
from collections.abc import Collection, Sequence
from typing import Literal

import msgspec

from mirrord.config.schema import Config, FlowConfig
from mirrord.config.value_parsers import StartPoint
from mirrord.kafka.client.cluster_metadata import ClusterView, PartitionId
from mirrord.kafka.client.connection import ConnectionOptions
from mirrord.kafka.client.partition_queries import Asks
from mirrord.kafka.client.range_reader import Stretches
from mirrord.kafka.client.receive_buffers import BufferPool
from mirrord.kafka.client.reconnecting_link import Backoff
from mirrord.kafka.protocol.record_batch import HeaderTuple
from mirrord.ledger.errors import LedgerMissing
from mirrord.ledger.facts.core import FlowOpened, InheritedBy
from mirrord.ledger.state import FlowState
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.ledger.store.cluster_ids import check_clusters
from mirrord.model.errors import EnvironmentFault
from mirrord.operations.cluster_survey import FlowSurvey
from mirrord.operations.hazard_survey import producers_back, read_state
from mirrord.operations.status_report import PATIENCE_S
from mirrord.replication.host.existing_copies import ExistingCopies
from mirrord.replication.host.mm2_takeover import Mm2Takeover, Sides
from mirrord.replication.host.start_evidence import StartEvidence, StartSearch
from mirrord.supervision.renamed_alias import check_alias
from mirrord.topics.rules.ledger_start_evidence import Lately
from mirrord.topics.rules.partition_start import LedgerEvidence, PartitionStart, partition_start
from mirrord.topics.rules.topic_plan import PlannedLane

LANE_S = 60.0
"""Time limit in seconds for determining where one lane begins. It includes the time that the lane waits for its turn,
because only a few lanes are examined at once. It need not include time for connecting, because both clusters have
already answered earlier requests."""

By = InheritedBy | Literal["history", "start", "trouble", "unknown"]

DOES_NOT_BEGIN: frozenset[By] = frozenset(("trouble", "strange", "unknown"))
"""The values of `Beginning.by` for partitions that do not begin until an operator makes a decision."""


class Beginning(msgspec.Struct, frozen=True, kw_only=True):
    """The position at which one partition would begin, and the reason."""

    flow: str
    topic: str
    partition: int
    target_topic: str
    by: By
    """What decides where the lane begins. "history": the lane has a history in the ledger. "start": the configuration
    decides. "trouble": no decision is possible, and `note` says why. "unknown": the target holds copies that are not in
    the ledger. Any other value: the position that MirrorMaker 2 recorded decides, and the value says how this position
    compares with the contents of the target (`InheritedBy`)."""
    position: int | None = None
    """The source offset at which the lane begins if it is derived from MirrorMaker 2's position. Otherwise None."""
    said: int | None = None
    """The source offset after the last one that MirrorMaker 2 has recorded as copied."""
    target_end: int | None = None
    doubled_records: int = 0
    """Number of source offsets whose records appear more than once among the target records that were compared with the
    source."""
    lacking_records: int = 0
    note: str = ""


async def find_beginnings(config: Config, survey: FlowSurvey, *, by_start: bool = False) -> list[Beginning]:
    """Return where each lane with an existing target topic would begin. Raises EnvironmentFault.

    With `by_start`, also raise ForeignFlow if a start would be refused because the ledger belongs to different
    clusters, or because the source previously had a different alias.
    """
    flow = survey.flow
    try:
        ledger = await read_state(flow, ClusterAccess(config, PATIENCE_S).ledger)
    except LedgerMissing:
        ledger = FlowState()
    clusters = ((flow.source, survey.preview.source.cluster_id), (flow.target, survey.preview.target.cluster_id))
    if by_start:
        check_clusters(ledger, FlowOpened(flow.name, clusters[0][1], clusters[1][1]))
        check_alias(flow, ledger)
    pool, options = BufferPool(), ConnectionOptions(request_timeout_s=PATIENCE_S)
    views = [ClusterView(alias, config.clusters[alias], pool, options, cluster_id) for alias, cluster_id in clusters]
    committed = (flow.isolation == "read_committed", False)
    asks = [Asks(view, read_committed=each) for view, each in zip(views, committed, strict=True)]
    limit = flow.limits.rebuild_bytes
    sides = [Sides(view, ask, Stretches(view, PATIENCE_S, limit)) for view, ask in zip(views, asks, strict=True)]
    foreign = await producers_back(config, flow, ClusterAccess(config, PATIENCE_S).ledger)

    async def find_copies(_: PartitionId, headers: Sequence[HeaderTuple]) -> Collection[int]:
        return {at for at, header in enumerate(headers) if header[9] in foreign}

    found = ExistingCopies(flow, sides[0], sides[1], find_copies)
    inheritance = Mm2Takeover(flow, config.clusters[flow.target], sides[0], sides[1], PATIENCE_S)
    look = _Look(flow, ledger, StartSearch(flow, inheritance, found))
    for view in views:
        view.start()
    try:
        for lane in survey.preview.plan.lanes:
            views[0].watch(lane.source_topic, lane.key.source_topic_id)
            views[1].watch(lane.target_topic, lane.key.target_topic_id)
        return list(await asyncio.gather(*(look.at(lane) for lane in survey.preview.plan.lanes)))
    finally:
        for ask in asks:
            ask.close()
        await asyncio.gather(*(view.close() for view in views))


class _Look:
    """Determines where the lanes of one flow would begin."""

    def __init__(self, flow: FlowConfig, ledger: FlowState, search: StartSearch) -> None:
        self._flow = flow
        self._ledger = ledger
        self._former = Lately()
        self._search = search

    async def at(self, lane: PlannedLane) -> Beginning:
        known = self._ledger.lanes.get(lane.lane)
        if known is not None and len(known.source_runs):
            return self._beginning(lane, "history")
        ledger = self._former.of(self._ledger).before(lane.key, lane.source_topic, lane.target_topic)
        evidence = await self._evidence(lane, ledger)
        start = self._flow.start_at(lane.source_topic)
        decided = partition_start(start, ledger, evidence.decisive)
        if decided.reason == "waits":
            return self._beginning(lane, "unknown" if evidence.unknown else "trouble", note=decided.trouble)
        found = evidence.legacy.inherited
        if found is None:
            return self._beginning(lane, "start", note=_note(decided, start))
        return self._beginning(
            lane,
            found.found,
            position=found.position if found.position >= 0 else None,
            said=found.said,
            target_end=found.target_end,
            doubled_records=sum(end - start for start, end in found.doubled),
            lacking_records=sum(end - start for start, end in found.missing),
            note=evidence.legacy.trouble,
        )

    async def _evidence(self, lane: PlannedLane, ledger: LedgerEvidence) -> StartEvidence:
        """Search the target for evidence that decides where a lane without a history begins, and return the
        evidence. Raises EnvironmentFault if the clusters do not answer in time."""
        source = PartitionId(lane.source_topic, lane.key.source_topic_id, lane.key.partition)
        target = PartitionId(lane.target_topic, lane.key.target_topic_id, lane.key.partition)
        backoff, fault = Backoff(), EnvironmentFault("no answer")
        try:
            async with asyncio.timeout(LANE_S):
                while True:
                    try:
                        return await self._search.of(lane.lane, source, target, ledger)
                    except EnvironmentFault as error:  # leaders and coordinators that are not available yet
                        fault = error
                    await asyncio.sleep(backoff.next_s())
        except TimeoutError:
            raise EnvironmentFault(f"{lane.target_topic}-{lane.key.partition}: {fault}") from fault

    def _beginning(self, lane: PlannedLane, by: By, **fields: object) -> Beginning:
        common = {
            "flow": self._flow.name,
            "topic": lane.source_topic,
            "partition": lane.key.partition,
            "target_topic": lane.target_topic,
            "by": by,
            "note": "",
        }
        return msgspec.convert(common | fields, Beginning)


def _note(decided: PartitionStart, start: StartPoint) -> str:
    """Return one line that says which rule decides where a lane begins."""
    match decided.reason:
        case "target-recreated":
            what = f"begins at {decided.at_least}, or at the source's log start"
            return f"the target topic was deleted and re-created: {what}"
        case "source-recreated":
            return "the source topic was deleted and re-created: begins at its first record"
        case "renamed":
            return f"copied under another name before: begins at {decided.at_least}, or at the source's log start"
        case "added-later":
            return "added after the flow's first start: begins at its first record"
        case "added-after-mm2":
            return "added after MirrorMaker 2 copied the topic: begins at its first record"
        case "first-selected":
            return f"begins at {decided.at_most}, its `start` when it was first seen"
        case _:
            return f"begins at {start}"
