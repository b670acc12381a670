"""Detects transactions on the source that never end. Such a transaction keeps the last stable offset of its partition
from advancing.

If a producer dies, the transaction coordinator aborts the open transaction after `transaction.timeout.ms`. However, if
the coordinator has lost track of the transaction, the transaction never ends (KIP-664), and no read_committed consumer
gets past it. The partition leader knows the producer of the transaction (DescribeProducers). The coordinator knows the
transactional id. Because it is not known which broker is the coordinator, every broker is asked (ListTransactions).
Both requests are sent only after a lane has waited for a long time.
"""

import asyncio
import time
from collections.abc import Callable, Collection

import structlog
from msgspec.structs import replace

from mirrord.kafka.client.partition_queries import Asks
from mirrord.kafka.client.reconnecting_link import Link, ask
from mirrord.kafka.protocol.api_versions import LIST_TRANSACTIONS
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.producer_ids import ActiveProducer
from mirrord.kafka.protocol.transactions import decode_list_transactions, encode_list_transactions
from mirrord.model.errors import MirrordError
from mirrord.model.names import LaneId
from mirrord.model.open_transaction import OpenTransaction
from mirrord.replication.host.hosted_lane import HostedLane
from mirrord.replication.lane.phases import Phase
from mirrord.runtime.clock import Clock

AGAIN_S = 30.0
"""Interval in seconds at which the source is asked again about an open transaction. This is necessary because the first
answer may not have identified the transaction, and because the transaction's state may change."""

log = structlog.get_logger()


class OpenTransactions:
    """The source transactions that lanes of one replicator are waiting for. All methods except `of` must run on the
    event loop of the replicator."""

    def __init__(self, asks: Asks, clock: Clock, alarm_s: float, now: Callable[[], float] = time.monotonic) -> None:
        self._asks = asks
        self._clock = clock
        self._now = now
        self._alarm_s = alarm_s
        """Time in seconds for which a lane may wait before the transaction is reported."""
        self._known: dict[LaneId, OpenTransaction] = {}
        self._asked: dict[LaneId, float] = {}

    def of(self, lane: LaneId) -> OpenTransaction | None:
        """Return the open transaction that the lane has been waiting for too long, or None if there is none. Another
        thread may call this method."""
        return self._known.get(lane)

    def look(self, lanes: Collection[HostedLane]) -> None:
        """Find the lanes that have been waiting too long for a transaction to end, and ask the source about these
        transactions. Forget the transactions of lanes that are no longer waiting. This method is called every
        second."""
        now = self._now()
        waiting: set[LaneId] = set()
        for hosted in lanes:
            lane, stable = hosted.lane, hosted.tap.stable
            waited_s = stable.waited_s(lane.position, now) if lane.phase is Phase.COPYING else 0.0
            if waited_s < self._alarm_s:
                continue
            waiting.add(lane.id)
            known = self._known.get(lane.id)
            if known is None or known.first_offset != stable.offset:
                since_ms = self._clock.wall_ms() - int(waited_s * 1000)
                self._known[lane.id] = OpenTransaction(first_offset=stable.offset, since_ms=since_ms)
                self._asked.pop(lane.id, None)
            if now - self._asked.get(lane.id, -AGAIN_S) >= AGAIN_S:
                self._asked[lane.id] = now
                self._ask(hosted, stable.offset)
        for lane_id in self._known.keys() - waiting:
            known = self._known.pop(lane_id)
            self._asked.pop(lane_id, None)
            log.info("open_transaction_over", lane=lane_id, first_offset=known.first_offset)

    def _ask(self, hosted: HostedLane, first_offset: int) -> None:
        def take(error: int, producers: Collection[ActiveProducer]) -> None:
            # Only the oldest transaction holds back the last stable offset, so a later one is not reported.
            oldest = next((each for each in producers if each.transaction_start_offset == first_offset), None)
            if oldest is None:
                answer = (
                    f"answers {ErrorCode.name_of(error)}" if error else "does not know a transaction that began there"
                )
                self._tell(hosted, first_offset, trouble=f"the source {answer}")
            else:
                self._asks.begin(self._name(hosted, first_offset, oldest))

        self._asks.producers(hosted.source, take)

    async def _name(self, hosted: HostedLane, first_offset: int, producer: ActiveProducer) -> None:
        transactional_id, state = await self._coordinated(producer.producer_id)
        self._tell(
            hosted,
            first_offset,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            transactional_id=transactional_id,
            state=state,
            last_record_ms=producer.last_timestamp_ms,
        )

    async def _coordinated(self, producer_id: int) -> tuple[str, str]:
        """Return the transactional id of the producer, and the state of its transaction. Both are empty if no
        coordinator knows the producer."""
        view, body = self._asks.view, encode_list_transactions([producer_id])
        answers = await asyncio.gather(*(self._list(view.link(node, "ask"), body) for node in view.nodes))
        return next((found for answer in answers for found in answer), ("", ""))

    async def _list(self, link: Link, body: bytes) -> list[tuple[str, str]]:
        try:
            connection = await link.get()
            version = connection.version(LIST_TRANSACTIONS)
            answer = await ask(connection, LIST_TRANSACTIONS, body, version, decode_list_transactions)
        except MirrordError:
            return []  # the broker is down or older than Kafka 3.0; the producer id is reported nevertheless
        return [(each.transactional_id, each.state) for each in answer.transactions]

    def _tell(self, hosted: HostedLane, first_offset: int, **fields: int | str) -> None:
        known = self._known.get(hosted.lane.id)
        if known is None or known.first_offset != first_offset:
            return  # the transaction has ended in the meantime
        now = replace(known, **{"trouble": "", **fields})
        if now.line != known.line or (now.producer_id < 0 and now.trouble != known.trouble):
            log.warning(
                "open_transaction",
                lane=hosted.lane.id,
                topic=hosted.source.topic,
                partition=hosted.source.partition,
                first_offset=first_offset,
                since_ms=now.since_ms,
                producer_id=now.producer_id,
                producer_epoch=now.producer_epoch,
                transactional_id=now.transactional_id,
                line=now.line,
            )
        self._known[hosted.lane.id] = now
