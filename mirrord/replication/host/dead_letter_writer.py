"""Puts records that a flow's policy leaves out into its dead-letter topic, for the lanes of one replicator."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from mirrord.ledger.facts.quarantine import BY_POLICY
from mirrord.replication.dead_letters.records import Place
from mirrord.replication.dead_letters.topic import DeadLetters
from mirrord.replication.host.hosted_lane import Hosted
from mirrord.replication.lane.assignment import FlowSetup
from mirrord.replication.lane.signals import LettersTold, Park

AT_ONCE = 8
"""Lanes whose records are on their way there; others wait."""

log = structlog.get_logger()


class Parker:
    """Nothing is opened before the first record."""

    def __init__(self, setup: FlowSetup, begin: Callable[[Coroutine[Any, Any, None]], object]) -> None:
        """`begin` runs what is to be done, until its owner ends."""
        self._begin = begin
        self._letters = DeadLetters(setup.flow, setup.source, setup.target)
        self._turns = asyncio.Semaphore(AT_ONCE)

    def ask(self, hosted: Hosted, effect: Park) -> None:
        """Answer a lane: where its record stands, or why it does not."""
        self._begin(self._park(hosted, effect))

    async def _park(self, hosted: Hosted, effect: Park) -> None:
        lane = hosted.lane
        place = Place(lane.source_topic, lane.partition, effect.offset, lane.id)
        try:
            async with self._turns:
                at = await self._letters.keep(place, effect.data, BY_POLICY, effect.behind)
        except Exception as error:  # noqa: BLE001 -- whatever it is, the record stays, and the lane tells why
            log.warning("record_not_parked", lane=lane.id, offset=effect.offset, error=str(error) or repr(error))
            hosted.tell(LettersTold(effect.question, -1, str(error) or repr(error)))
        else:
            hosted.tell(LettersTold(effect.question, at))
