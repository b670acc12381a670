"""Determines, from the ledgers on the source cluster, which lanes write to the partitions that a replicator reads.

Every ledger on that cluster is read, regardless of the daemon and the configuration to which its flow belongs. The
ledgers are opened when a lane first asks, and then stay open.

A lane asks when it has received a source batch that may be a copy. To answer, `OriginLookup` lists the topics again and
reads all ledgers to their ends. This scan begins after the lane has asked, so that the answer includes everything that
the ledgers held when the batch became visible. `mirrord.replication.lane.source.loop_detection` relies on this order.
Requests that arrive during a scan share the next scan.
"""

import asyncio
from collections.abc import Callable, Sequence

import structlog

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.range_reader import ReadFailed
from mirrord.kafka.client.topic_admin import KafkaTopicAdmin, TopicAdmin
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.record_batch import HeaderTuple
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.state import LaneState
from mirrord.ledger.store.all_ledgers import ClusterLedgers, ProgressByLane
from mirrord.ledger.store.kafka_log import KafkaLog
from mirrord.ledger.store.spill_file import run_memory
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.errors import MirrordError
from mirrord.replication.host.hosted_lane import HostedLane
from mirrord.replication.lane.assignment import FlowSetup
from mirrord.replication.lane.signals import AskOrigins, OriginsAnswer, Writer
from mirrord.replication.lane.source.loop_detection import BatchOrigin, Origins
from mirrord.runtime.clock import Clock

LOOK_TIMEOUT_S = 10.0
LEAST_PAUSE_S = 0.05
"""Minimum pause, in seconds, between two scans, even if batches from many unknown producers arrive."""

log = structlog.get_logger()

Tell = Callable[[tuple[Writer, ...], str], None]
"""A callback that receives the lanes that write to a partition, or the reason why they are not known."""


class OriginLookup:
    """Answers the lanes of one replicator that ask which other lanes write to their source partitions."""

    def __init__(
        self,
        cluster: str,
        admin: TopicAdmin,
        open_ledger: Callable[[str, bool], LedgerStore],
    ) -> None:
        """`cluster` is the alias of the source cluster. `open_ledger` opens the ledger of a flow, as in
        `ClusterLedgers`."""
        self._ledgers = ClusterLedgers(cluster, admin, open_ledger)
        self._waiting: list[tuple[PartitionId, Tell]] = []
        self._task: asyncio.Task[None] | None = None
        self.trouble = ""
        """Why lanes cannot continue. Empty while the ledgers can be read."""

    def origins(self, hosted: HostedLane) -> Origins | None:
        """Return the object with which a lane recognizes copies in its source partition.

        Return None if the names of the lane's source topic and target topic differ. In that case, the topic names are
        enough to recognize copies.
        """
        return Origins() if hosted.source.topic == hosted.target.topic else None

    def ask(self, hosted: HostedLane, effect: AskOrigins) -> None:
        """Find the lanes of other flows that write to this lane's source partition, and pass the result to the lane.
        Requests that arrive together share one scan of the ledgers."""

        def answered(writers: tuple[Writer, ...], trouble: str) -> None:
            hosted.tell(OriginsAnswer(effect.question, writers, trouble))

        self._find(hosted.source, answered)

    async def copies(self, partition: PartitionId, headers: Sequence[HeaderTuple]) -> set[int]:
        """Return the indexes of those source batches that another flow has copied to this partition.

        `headers` are the headers of all batches to examine, which were read before this call. Raises ReadFailed if the
        origin of a batch cannot be determined at the moment.
        """
        answer: asyncio.Future[tuple[tuple[Writer, ...], str]] = asyncio.get_running_loop().create_future()

        def answered(writers: tuple[Writer, ...], trouble: str) -> None:
            if not answer.done():
                answer.set_result((writers, trouble))

        self._find(partition, answered)
        writers, trouble = await answer
        known, origins = {writer.producer_id for writer in writers}, Origins()
        origins.learn(writers, -1)
        found = {at: origins.judge(header) for at, header in enumerate(headers) if header[9] in known}
        if trouble or BatchOrigin.UNKNOWN in found.values():
            raise ReadFailed(int(ErrorCode.UNKNOWN_SERVER_ERROR))
        return {at for at, origin in found.items() if origin is BatchOrigin.COPY}

    def _find(self, partition: PartitionId, tell: Tell) -> None:
        self._waiting.append((partition, tell))
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._serve())

    async def close(self) -> None:
        """Stop reading the ledgers."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._ledgers.close()

    async def _serve(self) -> None:
        while self._waiting:
            asked, self._waiting = self._waiting, []
            trouble = ""
            progress: dict[str, ProgressByLane] = {}
            try:
                progress = await self._ledgers.read()
            except MirrordError as error:
                trouble = str(error)
            except Exception:
                log.exception("provenance_failed")
                trouble = "where records come from cannot be determined; the log has the reason"
            if trouble and trouble != self.trouble:
                log.warning("copies_not_told_apart", reason=trouble)
            self.trouble = trouble
            for partition, tell in asked:
                tell(() if trouble else self._writers(partition, progress), trouble)
            await asyncio.sleep(LEAST_PAUSE_S)

    def _writers(self, partition: PartitionId, progress: dict[str, ProgressByLane]) -> tuple[Writer, ...]:
        return tuple(
            _writer(flow, lane, progress[flow].get(lane.key.id))
            for flow, _, lane in self._ledgers.lanes()
            if lane.key.target_topic_id == partition.topic_id and lane.partition == partition.partition
        )


def _writer(flow: str, lane: LaneState, progress: Progress | None) -> Writer:
    # The runs are copied, because the lane keeps them while the ledger's own runs change.
    runs = lane.target_runs.copy()
    at = (progress.ordinal, progress.target_offset, progress.leader_epoch) if progress is not None else ()
    return Writer(flow, lane.producer_id, lane.producer_epoch, runs, *at)


def provenance_of(setup: FlowSetup, clock: Clock) -> OriginLookup:
    """Return the `OriginLookup` of a replicator of this flow."""

    def ledger(flow: str, alone: bool) -> LedgerStore:
        return LedgerStore(KafkaLog(flow, setup.source, alone=alone), clock, memory=run_memory(setup.flow))

    return OriginLookup(setup.flow.source, KafkaTopicAdmin(setup.source, LOOK_TIMEOUT_S), ledger)
