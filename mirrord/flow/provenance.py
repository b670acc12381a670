"""Copies in the source: what another flow wrote into the partition that a lane reads is never copied on.

Where names are the same on both sides, flows in both directions meet in the same topics. A batch of the source is a
copy exactly when it lies in a target run of a lane that writes into this very topic id and partition. Those lanes are
told by the ledgers of all flows into the source's cluster, which lie on that cluster.

The header of a batch gives the hint: the producer id, its epoch and the sequence, which is the ordinal. The hint alone
decides nothing, because ids collide after a cluster was cloned or restored:

- No lane into this partition has the id: it is no copy, provided that the ledgers were read up to an end that was asked
  for after the batch was seen. A lane's id stands in its ledger before its first use, so that of a visible copy does.
- A run says that the ordinal stands at this very offset: a copy.
- It stands behind all that is known of the lane, and goes on with its ordinals: a copy. Of a lane of which nothing is
  known to stand here this is not believed: whoever was given the same id begins with the sequence 0, too. The lane
  itself tells the ledger where its first record stands, at once.
- The lane's mark is in front of it or it belongs to a younger leader epoch than the mark: not known yet, the ledgers
  are asked again.
- The lane's mark lies behind it, in its leader epoch or a later one, and no run holds it: no copy. What stands below a
  mark is explained by the ledger (`report.progress`).
"""

from collections.abc import Iterable
from enum import Enum
from typing import NamedTuple

from mirrord.flow.sequences import nearest
from mirrord.flow.signals import Writer
from mirrord.wire.batch import TRANSACTIONAL, HeaderTuple


class Origin(Enum):
    """What a batch of the source is."""

    NATIVE = "native"
    """Written there by somebody else than mirrord."""
    COPY = "copy"
    UNKNOWN = "unknown"
    """The ledgers have to be read first, or once more."""


class Doubt(NamedTuple):
    """A batch of which it has to be asked where it comes from."""

    producer_id: int
    offset: int


class _Known:
    """One writer, and how far its batches have been followed."""

    __slots__ = ("offset", "ordinal", "writer")

    def __init__(self, writer: Writer) -> None:
        self.writer = writer
        run = writer.runs.last
        told = (writer.ordinal, writer.offset)
        self.ordinal, self.offset = told if run is None else max(told, (run.ordinal, run.offset))
        """The next ordinal, and the offset behind the last record that is known."""

    @property
    def has_written(self) -> bool:
        """It is known to have records here."""
        return self.ordinal > 0 or len(self.writer.runs) > 0

    def near(self, offset: int) -> int:
        """An ordinal that stands, or would stand, not far from this offset."""
        if offset >= self.offset:
            return self.ordinal
        runs = self.writer.runs
        at = runs.floor(offset, 0, len(runs))
        return runs.at(at).ordinal + offset - runs.at(at).offset if at >= 0 else self.ordinal


class Origins:
    """What a lane knows of the writers into its source partition."""

    __slots__ = ("_epoch", "_natives", "_writers")

    def __init__(self) -> None:
        self._writers: dict[int, list[_Known]] = {}
        self._natives: set[int] = set()
        """Producer ids that are known to be no lane's, as of one leader epoch: a cluster that was restored has had
        another leader since."""
        self._epoch = -1

    def __repr__(self) -> str:
        return f"Origins(of {sorted(self._writers)})"

    def learn(self, writers: Iterable[Writer], asked: int) -> None:
        """The ledgers were read to an end that was asked for after a batch of the producer id `asked` was seen."""
        self._writers = {}
        for writer in writers:
            self._writers.setdefault(writer.producer_id, []).append(_Known(writer))
        self._natives.difference_update(self._writers)
        if asked not in self._writers:
            self._natives.add(asked)

    def judge(self, header: HeaderTuple) -> Origin:
        """What the batch with this header is."""
        producer = header[9]
        # A lane's batches are never part of a transaction, and always have a producer id.
        if producer < 0 or header[5] & TRANSACTIONAL:
            return Origin.NATIVE
        if header[2] != self._epoch:
            self._epoch = header[2]
            self._natives.clear()
        if producer in self._natives:
            return Origin.NATIVE
        writers = self._writers.get(producer)
        if writers is None:
            return Origin.UNKNOWN
        found = {_judge(known, header) for known in writers}
        if Origin.COPY in found:
            return Origin.COPY
        return Origin.UNKNOWN if Origin.UNKNOWN in found else Origin.NATIVE


def _judge(known: _Known, header: HeaderTuple) -> Origin:
    base, _, leader_epoch, _, _, _, last_delta, _, _, _, epoch, sequence, _ = header
    writer = known.writer
    if epoch != writer.producer_epoch or sequence < 0:
        return Origin.NATIVE  # a lane keeps its epoch for ever
    ordinal, count = nearest(sequence, known.near(base)), last_delta + 1
    ahead = ordinal - known.ordinal
    if ordinal >= 0 and writer.runs.offset_of(ordinal) == base:
        is_copy = True
    else:
        is_copy = known.has_written and 0 <= ahead <= base - known.offset
    if is_copy:
        if ahead >= 0:
            known.ordinal, known.offset = ordinal + count, base + count
        return Origin.COPY
    if writer.leader_epoch >= leader_epoch and writer.offset >= base + count:
        return Origin.NATIVE
    return Origin.UNKNOWN
