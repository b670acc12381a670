"""Produces to the target over one connection to each broker, with pipelined requests and several lanes in each request.

A lane's batches of one round are sent over one connection, in order. When the connection is lost, the batches that had
been sent are answered with NETWORK_EXCEPTION: they may or may not be in the log. Batches that had not been sent are
answered with NOT_LEADER_OR_FOLLOWER: they are not in the log. Further batches of the same round are refused with
NOT_LEADER_OR_FOLLOWER as well. The lane has to begin a new round, in which it initially sends only one batch.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import Protocol

from mirrord.kafka.client.cluster_metadata import ClusterView, PartitionId
from mirrord.kafka.client.connection import Connection
from mirrord.kafka.client.quota_throttle import Throttle
from mirrord.kafka.client.receive_buffers import Frame
from mirrord.kafka.client.request_pipeline import ConnectionLost
from mirrord.kafka.protocol.api_versions import PRODUCE, PRODUCE_BY_TOPIC_ID
from mirrord.kafka.protocol.errors import ErrorCode, WireError
from mirrord.kafka.protocol.produce import ProducedPartition, ProduceEntry, decode, encode
from mirrord.model.errors import EnvironmentFault
from mirrord.replication.lane.flow_control.byte_window import ByteWindow
from mirrord.replication.lane.flow_control.read_coalescing import Owed
from mirrord.replication.lane.flow_control.request_packing import Packer
from mirrord.replication.lane.signals import Batch, Input, Produce, ProduceAccepted, ProduceAnswer, TargetFar
from mirrord.replication.lane.state import Lane

WRITE_BYTES = 1 << 20
"""Requests are combined into system calls of up to this size, in bytes. The lease is checked right before each system
call."""
UNKNOWN = int(ErrorCode.NETWORK_EXCEPTION)
_NO_OUTCOME = ProducedPartition("", -1, UNKNOWN, -1, -1, -1)
"""The outcome that is assumed when the broker's answer does not mention a batch."""
NOT_SENT = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
LEASE_POLL_S = 0.05
LATEST_S = 0.1
"""An answer that has arrived is processed within this many seconds, even if more answers are expected."""
_LINGER_S = 1.0


class Sender(Protocol):
    """The attributes of a hosted lane that a `TargetProducer` uses."""

    lane: Lane
    tell: Callable[[Input], None]
    target: PartitionId
    outlet: "TargetOutlet | None"
    """The connection over which the batches of the current round are sent."""
    outlet_round: int
    connections: int
    """The value of `TargetOutlet.connections` when the round began. If the value has changed since, the round's
    connection is lost."""


OutgoingBatch = tuple[Sender, int, Batch]
"""A lane, the number of its round, and a batch to send in that round."""


class TargetProducer:
    """Sends the batches of one replicator's lanes to the target brokers."""

    def __init__(self, view: ClusterView, may_write: Callable[[], bool], request_timeout_ms: int) -> None:
        self.view = view
        self.may_write = may_write
        """Called right before each write. Returns whether the lease is valid."""
        self.request_timeout_ms = request_timeout_ms
        self._outlets: dict[int, TargetOutlet] = {}
        self._loop = asyncio.get_running_loop()

    def produce(self, sender: Sender, effect: Produce) -> None:
        """Send a lane's batches. The lane later receives exactly one answer for each batch, in the order in which
        the batches were sent."""
        if sender.outlet_round != effect.round:
            self._bind(sender, effect.round)
        outlet = sender.outlet
        if outlet is None or sender.connections != outlet.connections:
            self._loop.call_soon(self.refuse, [(sender, effect.round, batch) for batch in effect.batches])
        else:
            outlet.add(sender, effect.round, effect.batches)

    def forget(self, sender: Sender) -> None:
        """Drop the state of a lane that is no longer hosted."""
        for outlet in self._outlets.values():
            outlet.forget(sender)

    def close(self) -> None:
        """Close all connections."""
        for outlet in self._outlets.values():
            outlet.link.close()

    def refuse(self, items: Sequence[OutgoingBatch]) -> None:
        """Report to the lanes that these batches were not sent."""
        for sender, number, batch in items:
            sender.tell(ProduceAnswer(number, batch, NOT_SENT, -1))

    def _bind(self, sender: Sender, number: int) -> None:
        sender.outlet_round = number
        sender.outlet = None
        leader = self.view.leader(sender.target)
        # For this round, the lane got the log end offset from the leader of the epoch `end_epoch`. A different leader
        # may have a different log.
        if leader is None or leader.epoch != sender.lane.log.end_epoch:
            self.view.refresh()
            return
        outlet = self._outlets.get(leader.node)
        if outlet is None:
            outlet = self._outlets[leader.node] = TargetOutlet(self, leader.node)
        sender.outlet, sender.connections = outlet, outlet.connections


class TargetOutlet:
    """The connection to one target broker."""

    def __init__(self, target: TargetProducer, node: int) -> None:
        self.link = target.view.link(node, "produce")
        self.connections = 0
        """Number of connections that have been given up. A lane that used one of them has to begin a new round."""
        self._target = target
        self.took = target.view.produces.took
        """Records how long a produce request took."""
        self._loop = asyncio.get_running_loop()
        self._packer: Packer[OutgoingBatch] = Packer()
        self.answering = False
        """Whether answers are being processed. Batches that lanes add in the meantime are sent once the last of these
        answers has been processed."""
        self._taken: dict[Sender, ProduceAccepted] = {}
        """For each lane, its accepted batches in the answers that are being processed. A lane is informed of all its
        accepted batches in one step."""
        self._scheduled = False
        self._opening = False
        self._connection: Connection | None = None
        self._window = ByteWindow()
        self._owed = Owed()
        self._hurries = False
        self._version = 0
        self._awaiting_lease = False
        self.throttle = Throttle(target.view.produces)

    def add(self, sender: Sender, number: int, batches: Sequence[Batch]) -> None:
        """Send batches, together with other batches that are added in this iteration of the event loop."""
        add = self._packer.add
        for batch in batches:
            add(sender, batch.end - batch.start, (sender, number, batch))
        self._flush_soon()

    def forget(self, sender: Sender) -> None:
        """Drop the state of a lane that will add no more batches."""
        self._packer.forget(sender)

    def _flush_soon(self) -> None:
        """Schedule a flush, which sends the waiting batches, once per iteration of the event loop.

        If answers are being processed, the flush takes place right after the last of them.
        """
        if not self._scheduled:
            self._scheduled = True
            if not self.answering:
                self._loop.call_soon(self._flush)

    def _answers_taken(self) -> None:
        self._tell_taken()
        self.answering = False
        if self._scheduled:
            self._flush()
        self._mind_owed()

    def _flush(self) -> None:
        self._scheduled = False
        connection = self._connection
        if connection is None or connection.pipe.lost is not None:
            self._open()
            return
        pipe, packer, window = connection.pipe, self._packer, self._window
        waiting = packer.waiting
        while waiting and window.is_open and pipe.writable:
            if not self._target.may_write():
                self._await_lease()
                return
            if self.link.overdue(connection):
                # A lane's batches must be answered in order, so waiting batches are refused only when no batch is in
                # flight.
                if pipe.in_flight == 0:
                    self._give_up()
                return
            pipe.hold()
            size = 0
            while waiting and window.is_open and size < WRITE_BYTES:
                size += self._send(connection, packer.take())
            pipe.send_held()
        self._mind_owed()

    def _mind_owed(self) -> None:
        """Let the process sleep until several answers have arrived. If they have not arrived after `LATEST_S` seconds,
        any data that arrives wakes the process, because the remaining answers may be late."""
        if self._owed.moved():
            self._set_low_watermark()
            if self._owed.low_watermark_bytes > 1 and not self._hurries:
                self._hurries = True
                self._loop.call_later(LATEST_S, self._hurry)

    def _hurry(self) -> None:
        self._hurries = False
        if self._owed.low_watermark_bytes > 1:
            self._owed.low_watermark_bytes = 1
            self._set_low_watermark()

    def _set_low_watermark(self) -> None:
        if self._connection is not None and self._connection.pipe.lost is None:
            self._connection.pipe.wake_for(self._owed.low_watermark_bytes)

    def _await_lease(self) -> None:
        """Wait until the lease is valid again, and then refuse the waiting batches. By then, these batches are
        outdated. The lanes read the target log again and send new batches.
        """
        if not self._awaiting_lease:
            self._awaiting_lease = True
            self._loop.call_later(LEASE_POLL_S, self._look_at_lease)

    def _look_at_lease(self) -> None:
        self._awaiting_lease = False
        connection = self._connection
        if connection is None or not self._packer:
            return
        if self._target.may_write() and connection.pipe.in_flight == 0:
            self._give_up()
        else:
            self._await_lease()

    def _send(self, connection: Connection, items: list[OutgoingBatch]) -> int:
        by_id = self._version >= PRODUCE_BY_TOPIC_ID
        entries: list[ProduceEntry] = []
        sent: list[OutgoingBatch] = []
        viewed, view = b"", memoryview(b"")
        for item in items:
            sender, number, batch = item
            # The lane may have begun a new round. In that case, it no longer needs the batches of this round.
            if number == sender.lane.round:
                topic, topic_id, partition = sender.target
                if batch.buffer is not viewed:  # usually all batches are in one fetch response
                    viewed, view = batch.buffer, memoryview(batch.buffer)
                entries.append((topic_id if by_id else topic, partition, view[batch.start : batch.end]))
                sent.append(item)
        if not sent:
            return 0
        parts, size = encode(self._version, self._target.request_timeout_ms, entries)
        pending = _Pending(self, connection, self._version, sent, (self._window, size, self._owed))
        connection.pipe.request(PRODUCE, self._version, parts, size, pending)
        return size

    def _open(self) -> None:
        if not self._opening and self._packer:
            self._opening = True
            self._loop.create_task(self.link.get()).add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[Connection]) -> None:
        self._opening = False
        if task.cancelled():
            return
        if isinstance(task.exception(), EnvironmentFault):
            self._give_up()
            return
        self._connection = connection = task.result()
        self._window = ByteWindow()
        self._owed = Owed()
        self._version = connection.version(PRODUCE)
        connection.pipe.on_writable = self._flush
        connection.pipe.on_read = self._answers_taken
        connection.pipe.on_lost = self._lost
        if connection.pipe.lost is not None:
            self._give_up()
        else:
            self._flush()

    def _lost(self, lost: ConnectionLost) -> None:  # noqa: ARG002 -- the reason is not needed here
        self._target.view.refresh()
        self._give_up()

    def _give_up(self) -> None:
        """Give up the connection. Refuse the batches that have not been sent. The lanes that use the connection begin a
        new round."""
        self._tell_taken()
        self.connections += 1
        self.answering = self._scheduled = False
        self._connection = None  # the link opens a new one if this one is lost or overdue
        packer = self._packer
        waiting = [item for _ in range(len(packer)) for item in packer.take()]
        self._target.refuse(waiting)

    def answered(self, items: Sequence[OutgoingBatch], fates: Sequence[ProducedPartition]) -> None:
        """Report the outcomes of sent batches to their lanes, and schedule the waiting batches.

        Failures are reported at once. Successes are usually reported later, when all answers that arrived together have
        been processed.
        """
        taken = self._taken
        for (sender, number, batch), fate in zip(items, fates, strict=True):
            error, base_offset = fate.error, fate.base_offset
            accepted = taken.get(sender)
            if error:
                self._target.view.produces.failed(error)
                if accepted is not None:
                    sender.tell(taken.pop(sender))
                held_s = self.throttle.left_s if error == UNKNOWN else 0.0
                sender.tell(ProduceAnswer(number, batch, error, base_offset, held_s))
            elif accepted is not None and accepted.round == number:
                accepted.batches.append(batch)
                accepted.base_offsets.append(base_offset)
            else:
                if accepted is not None:
                    sender.tell(accepted)
                taken[sender] = ProduceAccepted(number, [batch], [base_offset])
        if self._packer:
            self._flush_soon()

    def _tell_taken(self) -> None:
        taken, self._taken = self._taken, {}
        is_far = self._window.is_far
        for sender, accepted in taken.items():
            if sender.lane.is_far is not is_far:
                sender.tell(TargetFar(is_far))
            sender.tell(accepted)


class _Pending:
    """A produce request that has not been answered yet.

    It keeps references to its batches, so that their buffers are not reused while the transport may still read them.
    """

    __slots__ = (
        "_connection",
        "_counts_at_send",
        "_items",
        "_outlet",
        "_owed",
        "_sent",
        "_size",
        "_version",
        "_window",
    )

    def __init__(
        self,
        outlet: TargetOutlet,
        connection: Connection,
        version: int,
        items: list[OutgoingBatch],
        load: tuple[ByteWindow, int, Owed],
    ) -> None:
        """`load` has three parts: the window that limits the data in flight, the size of the request in bytes, and the
        counter of outstanding answers."""
        self._outlet = outlet
        self._connection = connection
        self._version = version
        self._items = items
        self._window, self._size, self._owed = load
        self._owed.sent(len(items))
        self._counts_at_send = self._window.sent(self._size)
        self._sent = time.monotonic()

    def __call__(self, end: Frame | ConnectionLost) -> None:
        items = self._items
        if isinstance(end, ConnectionLost):
            # uvloop closes an aborted transport one loop iteration later. Until then, it may read these buffers.
            asyncio.get_running_loop().call_later(_LINGER_S, list[OutgoingBatch], items)
            self._outlet.answered(items, [_NO_OUTCOME] * len(items))
            return
        self._outlet.answering = True
        self._owed.answered(len(items))
        took_s = time.monotonic() - self._sent
        self._window.answered(self._size, took_s, self._counts_at_send)
        self._outlet.took(took_s)
        try:
            response = decode(self._version, end.reader())
        except WireError as error:
            # These batches are answered before all later ones, because a lane must receive its answers in the order of
            # its batches.
            self._outlet.answered(items, [_NO_OUTCOME] * len(items))
            self._connection.pipe.close(str(error), error)
            return
        self._outlet.throttle.record(response.throttle_ms, self._connection.pipe)
        partitions = response.partitions
        if len(items) == 1 and len(partitions) == 1:
            self._outlet.answered(items, partitions)
            return
        answers = {(each.topic, each.partition): each for each in partitions}
        by_id = self._version >= PRODUCE_BY_TOPIC_ID
        fates: list[ProducedPartition] = []
        for sender, _, _ in items:
            topic, topic_id, partition = sender.target
            fates.append(answers.get((topic_id if by_id else topic, partition), _NO_OUTCOME))
        self._outlet.answered(items, fates)
