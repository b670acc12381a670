"""Where lanes without a history begin: where MirrorMaker 2 left off, or else where the configuration says."""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import structlog

from mirrord.flow.signals import AskStart, StartTold
from mirrord.model.assignment import FlowSetup
from mirrord.model.config_units import Start
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId
from mirrord.shell.found_copies import BroughtBack, FoundCopies
from mirrord.shell.inheritance import NO_LEGACY, Inheritance, Sides
from mirrord.shell.metadata import PartitionId
from mirrord.shell.reading import ReadFailed
from mirrord.wire.errors import ErrorCode

log = structlog.get_logger()


class Before(NamedTuple):
    """What there was before a lane, under the same names."""

    source: bool = False
    """Another source topic."""
    copied_from: int | None = None
    """Another target topic, in which the records from this source offset on stood."""


class Starts:
    """Of all lanes of a replicator."""

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
        """Answer a lane's question; told of an error it asks again.

        A source topic that was created again begins at its first offset: no word on the former one counts for it, and
        the configured start was for what stood there before mirrord came. Where the target topic was, all that it held
        is copied again, as far as the source still has it.
        """
        if not before.source and before.copied_from is None:
            tell(await self._of(wanted, lane, source, target))
            return
        told = await self._configured(wanted, source, "earliest")
        if told.error == 0 and before.copied_from is not None:
            told = StartTold(wanted.question, 0, max(told.offset, before.copied_from))
            log.warning(
                "copied_again", topic=target.topic, partition=target.partition, from_source_offset=told.offset,
                reason="the target topic was deleted and created again", first_copied=before.copied_from,
            )  # fmt: skip
        tell(told)

    async def _of(self, wanted: AskStart, lane: LaneId, source: PartitionId, target: PartitionId) -> StartTold:
        unknown = ""
        try:
            legacy = await self._inheritance.of(lane, source, target)
            if legacy is NO_LEGACY:
                unknown = await self._found.of(lane, source, target)
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
        return await self._configured(wanted, source, self._flow.start_at(source.topic))

    async def _configured(self, wanted: AskStart, source: PartitionId, start: Start) -> StartTold:
        answer: asyncio.Future[StartTold] = asyncio.get_running_loop().create_future()

        def told(error: int, offset: int) -> None:
            if not answer.done():
                answer.set_result(StartTold(wanted.question, error, offset))

        self._asks.start(source, start, told)
        return await answer
