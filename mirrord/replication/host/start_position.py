"""Finds where lanes without a history begin: where MirrorMaker 2 stopped, or otherwise by the rule for start offsets
(`mirrord.ledger.start_offsets`).
"""

import asyncio
from collections.abc import Callable

import structlog

from mirrord.config.units import Start
from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.range_reader import ReadFailed
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId
from mirrord.replication.host.existing_copies import BroughtBack, FoundCopies
from mirrord.replication.host.mm2_takeover import NO_LEGACY, Inheritance, Sides
from mirrord.replication.lane.assignment import FlowSetup
from mirrord.replication.lane.signals import AskStart, StartTold
from mirrord.topics.rules.incarnations import Before

log = structlog.get_logger()


class Starts:
    """The start offsets of all lanes of a replicator."""

    def __init__(self, setup: FlowSetup, source: Sides, target: Sides, brought_back: BroughtBack) -> None:
        self._flow = setup.flow
        self._asks = source.asks
        self._inheritance = Inheritance(setup.flow, setup.target, source, target, setup.request_timeout_s)
        self._found = FoundCopies(setup.flow, source, target, brought_back)

    async def find(
        self,
        wanted: AskStart,
        lane: LaneId,
        source: PartitionId,
        target: PartitionId,
        tell: Callable[[StartTold], None],
        before: Before,
    ) -> None:
        """Answer a lane's question. The lane asks again after an error.

        A source topic that was created again begins at its first offset, because positions in the former topic do not
        apply to it. If the target topic was created again, all records that the former one held and that the source
        still has are copied again.
        """
        if not before.source and before.copied_from is None:
            tell(await self._of(wanted, lane, source, target, before))
            return
        told = await self._configured(wanted, source, "earliest")
        if told.error == 0 and before.copied_from is not None:
            told = StartTold(wanted.question, 0, max(told.offset, before.copied_from))
            log.warning(
                "copied_again", topic=target.topic, partition=target.partition, from_source_offset=told.offset,
                reason="the target topic was deleted and created again", first_copied=before.copied_from,
            )  # fmt: skip
        tell(told)

    async def _of(
        self, wanted: AskStart, lane: LaneId, source: PartitionId, target: PartitionId, before: Before
    ) -> StartTold:
        unknown = ""
        try:
            legacy = await self._inheritance.of(lane, source, target)
            if legacy is NO_LEGACY:
                unknown = await self._found.of(lane, source, target)
            before = before._replace(late=await self._is_late(lane, source, target, before))
        except ReadFailed as failure:
            return StartTold(wanted.question, failure.error, -1)
        except EnvironmentFault as fault:
            log.debug("legacy_not_told", lane=lane, error=str(fault))
            return StartTold(wanted.question, int(ErrorCode.NETWORK_EXCEPTION), -1)
        if legacy.inherited is not None:
            offset = legacy.inherited.position
            return StartTold(wanted.question, 0, offset, legacy.inherited, legacy.trouble)
        if trouble := legacy.trouble or unknown:
            return StartTold(wanted.question, 0, -1, None, trouble, waits=True)
        return await self._by_rule(wanted, source, before)

    async def _is_late(self, lane: LaneId, source: PartitionId, target: PartitionId, before: Before) -> bool:
        """Return whether the partition is newer than the first copies of its topic by mirrord or MirrorMaker 2.

        A partition whose copies the ledger has lost is not newer: if it is to begin anyway, `start` applies.
        """
        if self._flow.start_at(source.topic) == "earliest":
            return False
        if before.late:
            is_lost = self._flow.on_unknown_copies == "begin" and await self._found.line(lane, source, target)
            return not is_lost
        return await self._inheritance.has_copied(source.topic)

    async def _by_rule(self, wanted: AskStart, source: PartitionId, before: Before) -> StartTold:
        """Return the start offset by rule.

        `start` applies to a partition that existed when the flow first saw its topic, as of that time. A partition that
        was added later begins at its first offset. A partition that was copied under another name begins where that
        copy begins.
        """
        start = self._flow.start_at(source.topic)
        if start == "earliest" or before.began_at is not None or before.late:
            told = await self._configured(wanted, source, "earliest")
            is_earlier = start == "earliest" or before.began_at is None or told.error != 0
            return told if is_earlier else StartTold(wanted.question, 0, max(told.offset, before.began_at or 0))
        if before.fixed is None or before.fixed.start != start:
            return await self._configured(wanted, source, start)
        told = await self._configured(wanted, source, "latest")
        # The source may have lost the end of its log since.
        return told if told.error != 0 else StartTold(wanted.question, 0, min(told.offset, before.fixed.offset))

    async def _configured(self, wanted: AskStart, source: PartitionId, start: Start) -> StartTold:
        answer: asyncio.Future[StartTold] = asyncio.get_running_loop().create_future()

        def told(error: int, offset: int) -> None:
            if not answer.done():
                answer.set_result(StartTold(wanted.question, error, offset))

        self._asks.start(source, start, told)
        return await answer
