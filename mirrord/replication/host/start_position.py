"""Finds the offset at which a lane starts if it has no history in the ledger. The rules for the decision are in
`mirrord.topics.rules.partition_start`."""

from collections.abc import Callable

import structlog

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.partition_queries import start_offset
from mirrord.kafka.client.range_reader import ReadFailed
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId
from mirrord.replication.host.existing_copies import CopyFinder, ExistingCopies
from mirrord.replication.host.mm2_takeover import Mm2Takeover, Sides
from mirrord.replication.host.start_evidence import StartSearch
from mirrord.replication.lane.assignment import FlowSetup
from mirrord.replication.lane.signals import AskStart, StartAnswer
from mirrord.topics.rules.partition_start import LedgerEvidence, partition_start

log = structlog.get_logger()


class StartPositions:
    """Finds the start offsets of all lanes of a replicator."""

    def __init__(self, setup: FlowSetup, source: Sides, target: Sides, find_copies: CopyFinder) -> None:
        self._flow = setup.flow
        self._asks = source.asks
        inheritance = Mm2Takeover(setup.flow, setup.target, source, target, setup.request_timeout_s)
        self._search = StartSearch(setup.flow, inheritance, ExistingCopies(setup.flow, source, target, find_copies))

    async def find(
        self,
        wanted: AskStart,
        lane: LaneId,
        source: PartitionId,
        target: PartitionId,
        tell: Callable[[StartAnswer], None],
        ledger: LedgerEvidence,
    ) -> None:
        """Find the start offset of a lane and pass it to the lane with `tell`. After an error, the lane asks again."""
        try:
            tell(await self._found(wanted.question, lane, source, target, ledger))
        except ReadFailed as failure:
            tell(StartAnswer(wanted.question, failure.error, -1))
        except EnvironmentFault as fault:
            log.debug("legacy_not_told", lane=lane, error=str(fault))
            tell(StartAnswer(wanted.question, int(ErrorCode.NETWORK_EXCEPTION), -1))

    async def _found(
        self, question: int, lane: LaneId, source: PartitionId, target: PartitionId, ledger: LedgerEvidence
    ) -> StartAnswer:
        found = await self._search.of(lane, source, target, ledger)
        decided = partition_start(self._flow.start_at(source.topic), ledger, found.decisive)
        if decided.reason == "waits":
            return StartAnswer(question, 0, -1, None, decided.trouble, waits=True)
        if decided.ask is None:
            return StartAnswer(question, 0, decided.position, found.legacy.inherited, found.legacy.trouble)
        offset = decided.offset_for(await start_offset(self._asks, source, decided.ask))
        if decided.reason == "target-recreated":
            log.warning(
                "copied_again", topic=target.topic, partition=target.partition, from_source_offset=offset,
                reason="the target topic was deleted and re-created", first_copied=ledger.copied_from,
            )  # fmt: skip
        return StartAnswer(question, 0, offset)
