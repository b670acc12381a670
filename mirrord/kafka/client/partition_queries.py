"""Asks brokers about partitions: where a log begins and ends, and which producers a leader remembers. These questions
are rare compared with Fetch and Produce requests. The module also requests new producer ids.

Questions to the same broker that are added in one iteration of the event loop share a request. Otherwise, a thousand
lanes that start together would send a thousand requests. Each answer is passed to a callback, together with a Kafka
error code.

If the leader is unknown or does not answer, the question is asked again after the next metadata refresh. After
`PATIENCE_S` seconds, the callback gets an error: LEADER_NOT_AVAILABLE if the leader is unknown, or NETWORK_EXCEPTION if
the leader did not answer. Two errors are passed to the callback immediately: UNKNOWN_TOPIC_ID if the topic no longer
exists, and UNSUPPORTED_VERSION if the broker is too old for the question.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

import structlog

from mirrord.config.value_parsers import StartPoint
from mirrord.kafka.client.cluster_metadata import ClusterView, Leader, PartitionId
from mirrord.kafka.client.range_reader import ReadFailed
from mirrord.kafka.client.reconnecting_link import ask
from mirrord.kafka.protocol.api_versions import (
    DESCRIBE_PRODUCERS,
    INIT_PRODUCER_ID,
    LIST_LOCAL_OFFSETS,
    LIST_OFFSETS,
    OFFSET_FOR_LEADER_EPOCH,
    Api,
)
from mirrord.kafka.protocol.errors import ErrorCode, UnsupportedBroker
from mirrord.kafka.protocol.list_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    EpochEnd,
    EpochQuestion,
    ListedOffset,
    OffsetQuestion,
    decode_epoch_ends,
    decode_list_offsets,
    encode_epoch_ends,
    encode_list_offsets,
)
from mirrord.kafka.protocol.primitives import Reader
from mirrord.kafka.protocol.producer_ids import (
    ActiveProducer,
    PartitionProducers,
    ProducerIdentity,
    decode_describe_producers,
    decode_init_producer_id,
    encode_describe_producers,
    encode_init_producer_id,
)
from mirrord.model.errors import MirrordError
from mirrord.runtime.tasks import BackgroundTasks

NETWORK = int(ErrorCode.NETWORK_EXCEPTION)
NO_LEADER = int(ErrorCode.LEADER_NOT_AVAILABLE)
NO_TOPIC = int(ErrorCode.UNKNOWN_TOPIC_ID)
UNSUPPORTED = int(ErrorCode.UNSUPPORTED_VERSION)
log = structlog.get_logger()

PATIENCE_S = 2.0
"""How long, in seconds, `Asks` retries a question while the partition's leader is unknown or does not answer."""


class PartitionAnswer(Protocol):
    """The fields that all answers about a partition have in common."""

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def error(self) -> int: ...


AnswerT = TypeVar("AnswerT", bound=PartitionAnswer)
AnswerCallback = Callable[[int, AnswerT | None], None]


class PartitionQuestion(Generic[AnswerT]):
    """A question about one partition. Questions about different partitions can share a request."""

    __slots__ = ("give_up_at", "leader", "leader_epoch", "on_answer", "partition", "time")

    def __init__(
        self, partition: PartitionId, on_answer: AnswerCallback[AnswerT], leader_epoch: int = -1, time: int = 0
    ) -> None:
        self.partition = partition
        self.on_answer = on_answer
        """Called with the error code and the answer. The answer is None if there is an error."""
        self.give_up_at = asyncio.get_running_loop().time() + PATIENCE_S
        self.leader = Leader(-1, -1)
        self.leader_epoch = leader_epoch
        self.time = time


class _Kind(Generic[AnswerT]):
    """The questions of one kind that are still to be sent. Some are new, and are sent in the next iteration of the
    event loop. Others are waiting for new metadata, because their partition's leader is unknown or did not answer."""

    def __init__(
        self,
        asks: "Asks",
        api: Api,
        encode: Callable[[Iterable[PartitionQuestion[AnswerT]]], bytes],
        decode: Callable[[Reader], list[AnswerT]],
    ) -> None:
        self._asks = asks
        self._view = asks.view
        self._api = api
        self._encode = encode
        self._decode = decode
        self._loop = asyncio.get_running_loop()
        self._fresh: list[PartitionQuestion[AnswerT]] = []
        self._waiting: list[PartitionQuestion[AnswerT]] = []

    def add(self, question: PartitionQuestion[AnswerT]) -> None:
        """Ask this question together with all other questions that are added in this iteration of the event loop."""
        if not self._fresh:
            self._loop.call_soon(self._flush)
        self._fresh.append(question)

    def again(self) -> None:
        """Ask the questions that are waiting for new metadata. This method is called when the metadata has changed."""
        waiting, self._waiting = self._waiting, []
        self._spread(waiting)

    def _flush(self) -> None:
        fresh, self._fresh = self._fresh, []
        self._spread(fresh)

    def _spread(self, questions: Sequence[PartitionQuestion[AnswerT]]) -> None:
        """Send one request to each leader, with all questions about its partitions."""
        by_node: dict[int, list[PartitionQuestion[AnswerT]]] = {}
        unknown: list[PartitionQuestion[AnswerT]] = []
        for question in questions:
            leader = self._view.leader(question.partition)
            if leader is None:
                unknown.append(question)
            else:
                question.leader = leader
                by_node.setdefault(leader.node, []).append(question)
        for node, group in by_node.items():
            self._asks.begin(self._ask_leader(node, group))
        if unknown:
            self._postpone(unknown, NO_LEADER)

    async def _ask_leader(self, node: int, questions: Sequence[PartitionQuestion[AnswerT]]) -> None:
        # If there are two questions about one partition, only the later question is sent, and both get its answer.
        asked = {(question.partition.topic, question.partition.partition): question for question in questions}
        api = self._api
        try:
            connection = await self._view.link(node, "ask").get()
            answers = await ask(connection, api, self._encode(asked.values()), connection.version(api), self._decode)
        except UnsupportedBroker:
            for question in questions:
                question.on_answer(UNSUPPORTED, None)
            return
        except MirrordError:
            self._postpone(questions, NETWORK)
            return
        except Exception:
            # The lanes that have asked would wait for their answers forever.
            log.exception("question_failed", cluster=self._view.alias)
            self._postpone(questions, NETWORK)
            return
        found = {(answer.topic, answer.partition): answer for answer in answers}
        for question in questions:
            answer = found.get((question.partition.topic, question.partition.partition))
            if answer is None:
                question.on_answer(int(ErrorCode.UNKNOWN_SERVER_ERROR), None)
            else:
                question.on_answer(answer.error, answer if answer.error == 0 else None)

    def _postpone(self, questions: Iterable[PartitionQuestion[AnswerT]], error: int) -> None:
        self._view.refresh()
        now = self._loop.time()
        for question in questions:
            if self._view.gone(question.partition.topic_id):
                question.on_answer(NO_TOPIC, None)
            elif now >= question.give_up_at:
                question.on_answer(error, None)
            else:
                if not self._waiting:
                    self._loop.call_later(PATIENCE_S, self._give_up, error)
                self._waiting.append(question)

    def _give_up(self, error: int) -> None:
        waiting, self._waiting = self._waiting, []
        self._postpone(waiting, error)


class Asks:
    """A client that asks the brokers of one cluster about partitions. Its methods do not wait for answers. Each answer
    is passed to a callback."""

    def __init__(self, view: ClusterView, *, read_committed: bool) -> None:
        self.view = view
        self._read_committed = read_committed
        self._tasks = BackgroundTasks("question_failed")
        self._ends = _Kind(self, OFFSET_FOR_LEADER_EPOCH, _encode_ends, decode_epoch_ends)
        self._epochs = _Kind(self, OFFSET_FOR_LEADER_EPOCH, _encode_epochs, decode_epoch_ends)
        self._producers = _Kind(self, DESCRIBE_PRODUCERS, _encode_producers, decode_describe_producers)
        # A broker refuses two questions about one partition in one request, so each kind of question has a separate
        # `_Kind`.
        self._latest = _Kind(self, LIST_OFFSETS, _encode_visible, decode_list_offsets)
        self._earliest = _Kind(self, LIST_OFFSETS, _encode_visible, decode_list_offsets)
        self._starts = _Kind(self, LIST_OFFSETS, self._encode_start, decode_list_offsets)
        self._stable = _Kind(self, LIST_OFFSETS, _encode_stable, decode_list_offsets)
        self._local_starts = _Kind(self, LIST_LOCAL_OFFSETS, _encode_visible, decode_list_offsets)
        view.on_change.append(self._again)

    def close(self) -> None:
        """Cancel all requests. The callbacks of unanswered questions are not called."""
        self._tasks.cancel()

    def end(self, partition: PartitionId, report: Callable[[int, int, int], None]) -> None:
        """Request the end of a partition's log, and pass (error code, leader epoch, end) to `report`. The end is the
        leader's own log end offset, which includes records that have not been replicated yet (KIP-320)."""

        def answered(error: int, answer: EpochEnd | None) -> None:
            if answer is not None and answer.epoch < 0:
                error, answer = NO_LEADER, None  # the leader has not stored its own epoch yet
            report(error, -1 if answer is None else answer.epoch, -1 if answer is None else answer.end)

        self._ends.add(PartitionQuestion(partition, answered))

    def shared(self, partition: PartitionId, epoch: int, report: Callable[[int, int, int], None]) -> None:
        """Request where a leader epoch ends, and pass (error code, leader epoch, end) to `report`. The leader epoch is
        the highest one in the log that does not exceed `epoch`. The end is the offset at which that leader epoch ends.

        Both are -1 if the log has no such leader epoch (KIP-101, KIP-320).
        """

        def answered(error: int, answer: EpochEnd | None) -> None:
            report(error, -1 if answer is None else answer.epoch, -1 if answer is None else answer.end)

        self._epochs.add(PartitionQuestion(partition, answered, epoch))

    def producer(
        self, partition: PartitionId, producer_id: int, report: Callable[[int, ActiveProducer | None], None]
    ) -> None:
        """Request the state of a producer, and pass (error code, entry) to `report`. The entry is the state that the
        leader stores for this producer (KIP-664), or None if the leader stores no state for it."""

        def answered(error: int, answer: PartitionProducers | None) -> None:
            producers = answer.producers if answer is not None else ()
            # An entry without a sequence is ignored, because another client's transaction marker has created it.
            known = (each for each in producers if each.producer_id == producer_id and each.last_sequence >= 0)
            report(error, next(known, None))

        self._producers.add(PartitionQuestion(partition, answered))

    def producers(self, partition: PartitionId, report: Callable[[int, Sequence[ActiveProducer]], None]) -> None:
        """Request the state of all producers, and pass (error code, entries) to `report`. There is one entry for each
        producer that the leader remembers (KIP-664)."""

        def answered(error: int, answer: PartitionProducers | None) -> None:
            report(error, () if answer is None else answer.producers)

        self._producers.add(PartitionQuestion(partition, answered))

    def bounds(self, partition: PartitionId, leader_epoch: int, report: Callable[[int, int, int], None]) -> None:
        """Request the bounds of a partition's log, and pass (error code, high watermark, log start offset) to `report`.
        The broker returns an error if its leader epoch differs from `leader_epoch`, unless `leader_epoch` is -1."""
        found: dict[int, tuple[int, int]] = {}

        def answered(time: int, error: int, answer: ListedOffset | None) -> None:
            found[time] = (error, -1 if answer is None else answer.offset)
            if len(found) == 2:
                (latest_error, latest), (earliest_error, earliest) = found[LATEST], found[EARLIEST]
                report(latest_error or earliest_error, latest, earliest)

        self._latest.add(PartitionQuestion(partition, partial(answered, LATEST), leader_epoch, LATEST))
        self._earliest.add(PartitionQuestion(partition, partial(answered, EARLIEST), leader_epoch, EARLIEST))

    def start(self, partition: PartitionId, start: StartPoint, report: Callable[[int, int], None]) -> None:
        """Request the offset of the start point `start` in a partition, and pass (error code, offset) to `report`. A
        lane that has not copied anything yet begins at this offset.

        If `start` is a time after the last record, the offset is the log end.
        """
        time = EARLIEST if start == "earliest" else LATEST if start == "latest" else start

        def answered(error: int, answer: ListedOffset | None) -> None:
            if answer is not None and answer.offset < 0 <= time:
                self.start(partition, "latest", report)
            else:
                report(error, -1 if answer is None else answer.offset)

        self._starts.add(PartitionQuestion(partition, answered, -1, time))

    def last_stable(self, partition: PartitionId, report: Callable[[int, int], None]) -> None:
        """Request a partition's last stable offset, and pass (error code, last stable offset) to `report`. No
        transaction is open below this offset (KIP-98)."""

        def answered(error: int, answer: ListedOffset | None) -> None:
            report(error, -1 if answer is None else answer.offset)

        self._stable.add(PartitionQuestion(partition, answered, -1, LATEST))

    def local_start(self, partition: PartitionId, report: Callable[[int, int], None]) -> None:
        """Request the first offset that is on the leader's own disks, and pass (error code, offset) to `report`.

        Records below that offset are in remote storage (KIP-405). If the broker is older than Kafka 3.4, the error is
        UNSUPPORTED_VERSION.
        """

        def answered(error: int, answer: ListedOffset | None) -> None:
            report(error, -1 if answer is None else answer.offset)

        self._local_starts.add(PartitionQuestion(partition, answered, -1, EARLIEST_LOCAL))

    def producer_id(self, report: Callable[[int, int, int], None]) -> None:
        """Request, from any broker, a producer id for a new producer without a transactional id. Pass (error code,
        producer id, producer epoch) to `report`."""
        self.begin(self._ask_producer_id(report))

    async def _ask_producer_id(self, report: Callable[[int, int, int], None]) -> None:
        try:
            connection = await self.view.any_broker()
            version = connection.version(INIT_PRODUCER_ID)
            body = encode_init_producer_id()
            identity = await ask(connection, INIT_PRODUCER_ID, body, version, decode_init_producer_id)
        except Exception as error:
            if not isinstance(error, MirrordError):
                log.exception("question_failed", cluster=self.view.alias)
            self.view.refresh()
            identity = ProducerIdentity(NETWORK, -1, -1)
        report(identity.error, identity.producer_id, identity.producer_epoch)

    def begin(self, work: Coroutine[None, None, None]) -> None:
        """Run the coroutine in the background until it ends or `close` cancels it."""
        self._tasks.start(work)

    def _again(self) -> None:
        bounds = self._latest, self._earliest, self._starts, self._stable, self._local_starts
        for kind in (self._ends, self._epochs, self._producers, *bounds):
            kind.again()

    def _encode_start(self, questions: Iterable[PartitionQuestion[ListedOffset]]) -> bytes:
        return encode_list_offsets(map(_offset_question, questions), self._read_committed)


def _encode_ends(questions: Iterable[PartitionQuestion[EpochEnd]]) -> bytes:
    return encode_epoch_ends(
        EpochQuestion(each.partition.topic, each.partition.partition, each.leader.epoch, each.leader.epoch)
        for each in questions
    )


def _encode_epochs(questions: Iterable[PartitionQuestion[EpochEnd]]) -> bytes:
    return encode_epoch_ends(
        EpochQuestion(each.partition.topic, each.partition.partition, each.leader.epoch, each.leader_epoch)
        for each in questions
    )


def _encode_producers(questions: Iterable[PartitionQuestion[PartitionProducers]]) -> bytes:
    topics: dict[str, list[int]] = {}
    for question in questions:
        topics.setdefault(question.partition.topic, []).append(question.partition.partition)
    return encode_describe_producers(topics)


def _encode_visible(questions: Iterable[PartitionQuestion[ListedOffset]]) -> bytes:
    # `read_committed` is False, so the answer for LATEST is the high watermark instead of the last stable offset.
    return encode_list_offsets(map(_offset_question, questions), read_committed=False)


def _encode_stable(questions: Iterable[PartitionQuestion[ListedOffset]]) -> bytes:
    return encode_list_offsets(map(_offset_question, questions), read_committed=True)


def _offset_question(question: PartitionQuestion[ListedOffset]) -> OffsetQuestion:
    partition = question.partition
    return OffsetQuestion(partition.topic, partition.partition, question.time, question.leader_epoch)


async def bounds(asks: Asks, partition: PartitionId) -> tuple[int, int]:
    """Return (high watermark, log start offset): the end and the beginning of the offsets that a consumer with the
    isolation level `read_uncommitted` can read.

    Raises ReadFailed if no broker answers.
    """
    answer = _Once()
    asks.bounds(partition, -1, answer.take)
    end, begin = await answer.offsets()
    return end, begin


async def leader_end(asks: Asks, partition: PartitionId) -> tuple[int, int]:
    """Return (leader epoch, log end offset of the leader), both from the same leader. The log end offset includes
    records that have not been replicated yet. Raises ReadFailed."""
    answer = _Once()
    asks.end(partition, answer.take)
    epoch, end = await answer.offsets()
    return epoch, end


async def last_stable_offset(asks: Asks, partition: PartitionId) -> int:
    """Return the last stable offset: the end of the records that a consumer of committed records can read (KIP-98).
    Raises ReadFailed."""
    answer = _Once()
    asks.last_stable(partition, answer.take)
    (offset,) = await answer.offsets()
    return offset


async def start_offset(asks: Asks, partition: PartitionId, start: StartPoint) -> int:
    """Return the offset that `start` selects now. For "latest", and for a time after the last record, this is the end
    of the log: the last stable offset if `asks` was created with `read_committed`, and the high watermark otherwise.

    Raises ReadFailed.
    """
    answer = _Once()
    asks.start(partition, start, answer.take)
    (offset,) = await answer.offsets()
    return offset


class _Once:
    """Receives the answer to one question, and passes it to the waiting caller. The caller may be cancelled before the
    answer arrives."""

    def __init__(self) -> None:
        self._answer: asyncio.Future[tuple[int, tuple[int, ...]]] = asyncio.get_running_loop().create_future()

    def take(self, error: int, *offsets: int) -> None:
        """Store the error code and the offsets of the answer."""
        if not self._answer.done():
            self._answer.set_result((error, offsets))

    async def offsets(self) -> tuple[int, ...]:
        """Wait for the answer, and return its offsets. Raises ReadFailed if the answer is an error."""
        error, offsets = await self._answer
        if error:
            raise ReadFailed(error)
        return offsets
