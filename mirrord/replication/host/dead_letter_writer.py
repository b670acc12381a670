"""Parks the rejected records of one replicator's lanes in the dead-letter topic, if the flow is configured to skip
them."""

import asyncio

import structlog

from mirrord.ledger.quarantine import BY_POLICY
from mirrord.replication.dead_letters.records import LetterPlace
from mirrord.replication.dead_letters.topic import DeadLetters
from mirrord.replication.host.hosted_lane import Begin, HostedLane
from mirrord.replication.lane.assignment import FlowSetup
from mirrord.replication.lane.signals import Park, ParkAnswer

AT_ONCE = 8
"""Maximum number of lanes whose records are written to the dead-letter topic at the same time. All other lanes wait."""

log = structlog.get_logger()


class DeadLetterWriter:
    """Parks the records that lanes skip because of `on_reject = "skip"`. No connection is opened until the first record
    is parked."""

    def __init__(self, setup: FlowSetup, begin: Begin) -> None:
        """`begin` runs a coroutine as a background task, which is cancelled when the `LaneHost` closes."""
        self._begin = begin
        self._letters = DeadLetters(setup.flow, setup.source, setup.target)
        self._turns = asyncio.Semaphore(AT_ONCE)

    def ask(self, hosted: HostedLane, effect: Park) -> None:
        """Park a record of a lane. Afterwards, report to the lane either the record's offset in the dead-letter topic,
        or why the record was not parked."""
        self._begin(hosted, self._park(hosted, effect))

    async def _park(self, hosted: HostedLane, effect: Park) -> None:
        lane = hosted.lane
        place = LetterPlace(lane.source_topic, lane.partition, effect.offset, lane.id)
        try:
            async with self._turns:
                at = await self._letters.keep(place, effect.data, BY_POLICY, effect.behind)
        except Exception as error:  # noqa: BLE001 -- on any error the record is not parked, and the lane reports why
            log.warning("record_not_parked", lane=lane.id, offset=effect.offset, error=str(error) or repr(error))
            hosted.tell(ParkAnswer(effect.question, -1, str(error) or repr(error)))
        else:
            hosted.tell(ParkAnswer(effect.question, at))
