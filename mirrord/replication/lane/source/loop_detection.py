"""Recognizes copies in the source. A copy is a batch that another flow wrote to the partition that a lane reads. The
lane skips such batches.

If topics have the same names on both clusters, flows in both directions write to the same topics. A source batch is a
copy if and only if it is in a target run of a lane that writes to this topic id and partition. These lanes are known
from the ledgers of all flows whose target is the source cluster. The ledgers are stored on that cluster.

The header of a batch gives a hint: the producer id, the producer epoch and the sequence. The ordinal is derived from
the sequence. The hint alone is not enough, because two producers may have the same id after a cluster has been cloned
or restored. In the following rules, the writer is a lane that writes to this partition and has the batch's producer id:

- If there is no such writer, the batch is not a copy. This rule applies only if the ledgers were read after the batch
  was seen, up to their ends at that time. A lane records its producer id in its ledger before it first uses the id. The
  ledgers therefore contain the producer id of every copy that was visible at that time.
- If one of the writer's runs maps the ordinal to the offset of the batch, the batch is a copy.
- If the batch is after all known records of the writer and continues the writer's ordinals, it is a copy. This rule
  applies only if the writer is known to have records in this partition, because a different producer with the same id
  would also begin with sequence 0. A writer records the offset of its first record in its ledger without delay, so it
  soon becomes known that the writer has records.
- If the batch is after the writer's resume position, or has a newer leader epoch than that position, the answer is not
  yet known, and the ledgers are read again.
- If the batch is below the writer's resume position, does not have a newer leader epoch than that position, and is in
  no run, it is not a copy. The ledger explains everything below a resume position (see `lane_report.progress_record`).
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from mirrord.kafka.protocol.record_batch import TRANSACTIONAL, HeaderTuple
from mirrord.kafka.protocol.sequence import nearest
from mirrord.replication.lane.signals import Writer


class BatchOrigin(Enum):
    """The origin of a source batch: whether another flow wrote it, so that it is a copy, or another client."""

    NATIVE = "native"
    """Written by a client other than mirrord."""
    COPY = "copy"
    UNKNOWN = "unknown"
    """Not known yet: the ledgers must be read, or read again."""


class Doubt(NamedTuple):
    """A source batch of unknown origin, which must be looked up in the ledgers."""

    producer_id: int
    offset: int


class _Known:
    """One writer, and the position up to which its batches are known."""

    __slots__ = ("offset", "ordinal", "writer")

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        run = writer.runs.last
        position = (writer.ordinal, writer.offset)
        self.ordinal, self.offset = position if run is None else max(position, (run.ordinal, run.offset))
        """The writer's next ordinal, and the offset after its last known record."""

    @property
    def has_written(self) -> bool:
        """Whether the writer is known to have written at least one record to the source partition."""
        return self.ordinal > 0 or len(self.writer.runs) > 0

    def near(self, offset: int) -> int:
        """Return the ordinal of the writer's record at this source offset, or an approximation of this ordinal. It is
        used to derive a batch's ordinal from its sequence."""
        if offset >= self.offset:
            return self.ordinal
        runs = self.writer.runs
        at = runs.floor(offset, 0, len(runs))
        return runs.at(at).ordinal + offset - runs.at(at).offset if at >= 0 else self.ordinal


class Origins:
    """The known writers to a lane's source partition."""

    __slots__ = ("_epoch", "_natives", "_writers")

    def __init__(self) -> None:
        self._writers: dict[int, list[_Known]] = {}
        self._natives: set[int] = set()
        """Producer ids that are known to belong to no lane. This holds for only one leader epoch: after a cluster has
        been restored, its partitions have a different leader epoch, and the id may belong to a lane."""
        self._epoch = -1

    def __repr__(self) -> str:
        return f"Origins(of {sorted(self._writers)})"

    def learn(self, writers: Iterable[Writer], asked: int) -> None:
        """Replace the known writers with those in the ledgers. The caller has seen a batch with the producer id
        `asked`, and has then read all ledgers to their ends. Therefore, if no writer has this id, the id belongs to no
        lane."""
        self._writers = {}
        for writer in writers:
            self._writers.setdefault(writer.producer_id, []).append(_Known(writer))
        self._natives.difference_update(self._writers)
        if asked not in self._writers:
            self._natives.add(asked)

    def judge(self, header: HeaderTuple) -> BatchOrigin:
        """Return the origin of the batch with this header."""
        producer = header[9]
        # A lane's batches are never part of a transaction, and always have a producer id.
        if producer < 0 or header[5] & TRANSACTIONAL:
            return BatchOrigin.NATIVE
        if header[2] != self._epoch:
            self._epoch = header[2]
            self._natives.clear()
        if producer in self._natives:
            return BatchOrigin.NATIVE
        writers = self._writers.get(producer)
        if writers is None:
            return BatchOrigin.UNKNOWN
        found = {_judge(known, header) for known in writers}
        if BatchOrigin.COPY in found:
            return BatchOrigin.COPY
        return BatchOrigin.UNKNOWN if BatchOrigin.UNKNOWN in found else BatchOrigin.NATIVE


def _judge(known: _Known, header: HeaderTuple) -> BatchOrigin:
    base, _, leader_epoch, _, _, _, last_delta, _, _, _, epoch, sequence, _ = header
    writer = known.writer
    if epoch != writer.producer_epoch or sequence < 0:
        return BatchOrigin.NATIVE  # a lane never changes its producer epoch
    ordinal, count = nearest(sequence, known.near(base)), last_delta + 1
    ahead = ordinal - known.ordinal
    if ordinal >= 0 and writer.runs.offset_of(ordinal) == base:
        is_copy = True
    else:
        is_copy = known.has_written and 0 <= ahead <= base - known.offset
    if is_copy:
        if ahead >= 0:
            known.ordinal, known.offset = ordinal + count, base + count
        return BatchOrigin.COPY
    if writer.leader_epoch >= leader_epoch and writer.offset >= base + count:
        return BatchOrigin.NATIVE
    return BatchOrigin.UNKNOWN
