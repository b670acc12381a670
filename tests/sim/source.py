"""A fake source partition: plain, transactional and compacted logs of numbered records."""

import random
from bisect import bisect_left
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from operator import attrgetter
from typing import NamedTuple

from mirrord.kafka.protocol.record_batch import CONTROL, HEADER, TRANSACTIONAL
from tests.sim import toy

OUT_OF_RANGE = 1


@dataclass
class SourceBatch:
    base: int
    last: int
    records: list[tuple[int, int]]
    """(offset, number)"""
    attributes: int = 0
    producer: int = -1
    newest_ms: int = 0
    epoch: int = 0
    _encoded_as: tuple[int, int] = (-1, -1)
    _encoded: bytes = b""
    """The bytes, and with how many keys and records. The cleaner removes records, nothing else changes."""

    def encoded(self, keys: int = 0) -> bytes:
        as_it_is = keys, len(self.records)
        if as_it_is != self._encoded_as:
            self._encoded_as = as_it_is
            data = toy.encode(
                self.base,
                self.last,
                self.records,
                newest_ms=self.newest_ms,
                leader_epoch=self.epoch,
                attributes=self.attributes,
                producer=(self.producer, 0 if self.producer >= 0 else -1, 0 if self.producer >= 0 else -1),
                keys=keys,
            )
            self._encoded = bytes(data)
        return self._encoded


class Loss(NamedTuple):
    """What an unclean election removed from the end of the log."""

    begin: int
    end: int
    """The end of the log before the election."""
    numbers: set[int]


_LAST = attrgetter("last")


class FakeSource:
    """One source partition."""

    def __init__(self, rng: random.Random, *, shows_all: bool = False) -> None:
        self.rng = rng
        self.shows_all = shows_all
        """Whether some readers read above the last stable offset. A fetch there is answered, perhaps with nothing."""
        self.log: list[SourceBatch] = []
        self.keys = 0
        """How many keys the records have; 0: they have none."""
        self.end = 0
        self.open: dict[int, int] = {}
        """Producer id → first offset of its transaction in progress."""
        self.aborted: list[tuple[int, int, int]] = []
        """(producer id, first offset, offset of the marker)"""
        self.offset_of: dict[int, int] = {}
        """Number → offset, of every record that was ever written."""
        self.unwanted: set[int] = set()
        """Numbers of aborted records and of records that compaction removed."""
        self.cleaned: set[int] = set()
        """Numbers of records that compaction removed."""
        self.number = 1000
        self.epochs: list[tuple[int, int]] = [(0, 0)]
        """(leader epoch, offset at which it began), ascending."""
        self.begin = 0
        """The flow does not copy the records before this offset."""
        self.start = 0
        """The log's first offset: retention has removed everything before it."""
        self.expired: set[int] = set()
        """Numbers of wanted records that retention removed."""
        self.cut: set[int] = set()
        """Numbers of records that an unclean election removed."""
        self.noticed: set[int] = set()
        """Those of them whose loss is in the ledger."""
        self.untraced: set[int] = set()
        """Those of them whose loss was not in the ledger when retention deleted what had replaced them."""
        self.spoilt: set[int] = set()
        """Epochs of such records: no other record ever had such an epoch and such an offset."""
        self.parts: set[int] = set()
        """Offsets at which unclean elections truncated the log."""
        self.losses: list[Loss] = []
        """The same, one after the other."""
        self.shown: dict[int, set[int]] = {}
        """Leader epoch → numbers of the records that its log had when it was last asked about the epochs in it."""
        self._wanted: list[int] = []
        self._wanted_from: list[SourceBatch] = []
        self._wanted_in: tuple[int, ...] = ()
        """What is wanted, from which batches, and in which state. A record that a batch loses becomes unwanted."""
        self._never_copied_in: tuple[int, ...] = ()
        self._never_copied: AbstractSet[int] = frozenset()
        """What no lane copies, and in which state of the log."""

    def begin_at(self, offset: int) -> None:
        """Before the story, retention has deleted everything below this offset."""
        self.start = self.end = self.begin = offset
        self.epochs = [(self.epochs[-1][0], offset)]

    def append(self, count: int, newest_ms: int, producer: int = -1) -> None:
        """Write a batch, in a transaction if a producer id is given."""
        records: list[tuple[int, int]] = []
        for offset in range(self.end, self.end + count):
            self.number += 1
            self.offset_of[self.number] = offset
            records.append((offset, self.number))
        attributes = TRANSACTIONAL if producer >= 0 else 0
        if producer >= 0:
            self.open.setdefault(producer, self.end)
        self.log.append(
            SourceBatch(self.end, self.end + count - 1, records, attributes, producer, newest_ms, self.epochs[-1][0])
        )
        self.end += count

    def finish(self, producer: int, newest_ms: int, *, commit: bool) -> None:
        """End a transaction: a marker takes one offset."""
        first = self.open.pop(producer)
        if not commit:
            self.aborted.append((producer, first, self.end))
            for batch in self.log:
                if batch.producer == producer and batch.base >= first:
                    self.unwanted.update(number for _, number in batch.records)
        self.number += 1
        marker = SourceBatch(
            self.end,
            self.end,
            [(self.end, self.number)],
            TRANSACTIONAL | CONTROL,
            producer,
            newest_ms,
            self.epochs[-1][0],
        )
        self.log.append(marker)
        self.end += 1

    def never_copied(self) -> AbstractSet[int]:
        """Offsets of transaction markers and of records of aborted transactions."""
        if self.state != self._never_copied_in:
            self._never_copied_in = self.state
            markers = {batch.base for batch in self.log if batch.attributes & CONTROL}
            self._never_copied = markers | self.aborted_offsets()
        return self._never_copied

    def aborted_offsets(self) -> set[int]:
        """Offsets of records of aborted transactions."""
        return {
            offset
            for producer, first, marker in self.aborted
            for batch in self.log
            if batch.producer == producer and first <= batch.base < marker
            for offset, _ in batch.records
        }

    @property
    def state(self) -> tuple[int, ...]:
        """A value that changes whenever the log does."""
        return self.number, self.start, self.end, len(self.log), len(self.unwanted), len(self.open)

    @property
    def leader_epoch(self) -> int:
        return self.epochs[-1][0]

    @property
    def last_stable(self) -> int:
        return min(self.open.values()) if self.open else self.end

    def compact(self, below: int, above: int = 0) -> bool:
        """Remove a record somewhere below an offset, as the cleaner does; the batch keeps its span."""
        candidates = [
            batch for batch in self.log if above <= batch.last < below and batch.records and batch.producer < 0
        ]
        if not candidates:
            return False
        batch = self.rng.choice(candidates)
        self.remove(batch, self.rng.randrange(len(batch.records)))
        # The cleaner does not touch the active segment, so the log keeps its last batch.
        if not batch.records and self.rng.random() < 0.7 and batch is not self.log[-1]:
            self.log.remove(batch)
        return True

    def remove(self, batch: SourceBatch, at: int) -> None:
        """The cleaner removes one record of a batch; the batch keeps its span."""
        _, number = batch.records.pop(at)
        self.cleaned.add(number)
        self.unwanted.add(number)

    def expire(self, batches: int) -> None:
        """Retention removes the first batches, but never one above the last stable offset."""
        gone = [batch for batch in self.log[:batches] if batch.last < self.last_stable]
        if not gone:
            return
        del self.log[: len(gone)]
        for batch in gone:
            wanted = [] if batch.attributes & CONTROL else batch.records
            self.expired.update(number for at, number in wanted if at >= self.begin and number not in self.unwanted)
            self.unwanted.update(number for _, number in batch.records)
        self.start = gone[-1].last + 1
        self._forget_epochs()
        self.untraced.update(number for number in self.cut - self.noticed if self.offset_of[number] < self.start)

    def _forget_epochs(self) -> None:
        """Keep only the leader epochs that have not ended below the log start
        (LeaderEpochFileCache.truncateFromStart)."""
        begun = [epoch for epoch, at in self.epochs if at <= self.start]
        self.epochs = [*((epoch, self.start) for epoch in begun[-1:]), *(e for e in self.epochs if e[1] > self.start)]

    def elect(self) -> None:
        """Another leader, which lacks nothing. If the former one has written nothing, no log keeps its epoch
        (LeaderEpochFileCache.assign)."""
        epoch = self.epochs[-1][0] + 1
        self.epochs = [*(each for each in self.epochs if each[1] < self.end), (epoch, self.end)]

    def truncate(self, batches: int) -> None:
        """Another leader, which lacks the last batches: the next records have the same offsets."""
        if self._lose(self.log[len(self.log) - batches :]):
            epoch = self.epochs[-1][0] + 1
            self.epochs = [each for each in self.epochs if each[1] < self.end]
            self.epochs.append((epoch, self.end))

    def branch(self, count: int, newest_ms: int) -> None:
        """Another leader, which lacks the newest epoch and has records of the previous one that no reader saw."""
        if len(self.epochs) < 2 or self.epochs[-1][1] < self.start or self.epochs[-2][0] in self.spoilt:
            return
        epoch, begun = self.epochs[-1]
        if self._lose([batch for batch in self.log if batch.base >= begun], begun):
            self.epochs.pop()
            self.append(count, newest_ms)
            self.epochs.append((epoch + 1, self.end))

    def _lose(self, lost: list[SourceBatch], begin: int | None = None) -> bool:
        """An unclean election removes the last batches; False if that is not possible. All replicas have what was
        there before the flow. The log may end below the first of these batches (`begin`): a cleaner may have removed
        those before it, which the next leader lacks, too."""
        end = lost[0].base if lost and begin is None else begin or 0
        if not lost or self.open or end < self.begin or self._splits_transaction(lost):
            return False
        del self.log[len(self.log) - len(lost) :]
        self.aborted = [each for each in self.aborted if each[2] < lost[0].base]
        self.unwanted.update(number for batch in lost for _, number in batch.records)
        self.spoilt.update(batch.epoch for batch in lost)
        former_end, self.end = self.end, end
        # Also what a cleaner has removed from them: it may have been copied before.
        removed = {number for number, offset in self.offset_of.items() if offset >= self.end} - self.cut
        self.losses.append(Loss(self.end, former_end, removed))
        self.parts.add(self.end)
        self.cut |= removed
        return True

    def notice(self, start: int) -> list[set[int]]:
        """The ledger says that the source has lost what it had from this offset on. Return the numbers of the records
        that the election removed that truncated the log there, or nearest below. A log does not show elections that
        truncated it before, at a higher offset. The ledger may say so only after a later election, so there may be
        several possibilities. Return an empty list if there was no such election."""
        self.noticed.update(number for number in self.cut if self.offset_of[number] >= start)
        shown: list[Loss] = []
        found: list[set[int]] = []
        for loss in self.losses:
            shown = [*(each for each in shown if each.begin < loss.begin), loss]
            near = next((each for each in reversed(shown) if each.begin <= start), None)
            if near is not None and not (found and found[-1] is near.numbers):
                found.append(near.numbers)
        return found

    def _splits_transaction(self, lost: list[SourceBatch]) -> bool:
        """Whether the log would keep records of a transaction whose end is among these last batches."""
        kept = self.log[: len(self.log) - len(lost)]
        newest = {batch.producer: batch for batch in kept if batch.attributes}
        return any(not batch.attributes & CONTROL for batch in newest.values())

    def diverging(self, position: int, epoch: int) -> tuple[int, int]:
        """Where the log diverges from what a reader has seen before its position, as (epoch, end); (-1, -1) if it does
        not (KIP-595)."""
        if epoch < 0:
            return -1, -1
        if epoch == self.epochs[-1][0]:
            return (epoch, self.end) if self.end < position else (-1, -1)
        # LeaderEpochFileCache.endOffsetFor: below everything known the answer is the requested epoch.
        known = max((each[0] for each in self.epochs if each[0] <= epoch), default=epoch)
        end = next((start for later, start in self.epochs if later > epoch), self.end)
        return (known, end) if known < epoch or end < position else (-1, -1)

    def parting(self, position: int, epoch: int) -> tuple[int, int, int]:
        """The same, as (error, epoch, end)."""
        shown = self.shown.setdefault(self.leader_epoch, set())
        shown.update(number for batch in self.log for _, number in batch.records)
        if position < self.start:
            return OUT_OF_RANGE, -1, -1
        parts = self.diverging(position, epoch)
        return OUT_OF_RANGE if position > self.end and parts[1] < 0 else 0, *parts

    def fetch(self, position: int, batches: int, committed: bool = True) -> tuple[bytearray, list[tuple[int, int]]]:
        """Whole batches from the one that holds the position on, below the last stable offset; aborted transactions.
        If `committed` is not set, batches above the last stable offset as well."""
        stable = self.last_stable if committed else self.end
        first = self._first_from(position)
        found = [batch for batch in self.log[first : first + batches] if batch.last < stable]
        data = bytearray(b"".join(batch.encoded(self.keys) for batch in found))
        if not found:
            return data, []
        last = found[-1].last
        aborted = [(p, first) for p, first, marker in self.aborted if first <= last and marker >= position]
        return data, sorted(aborted, key=lambda each: each[1])

    def has(self, position: int) -> bool:
        """Whether a fetch from this position finds anything."""
        stable = self.end if self.shows_all else self.last_stable
        if position >= stable:
            return False
        at = self._first_from(position)
        return at < len(self.log) and self.log[at].last < stable

    def wanted(self) -> Sequence[int]:
        """The numbers that a read_committed reader should have seen so far, in order."""
        stable, state = self.last_stable, (len(self.unwanted), self.begin)
        if state != self._wanted_in or self.log[: len(self._wanted_from)] != self._wanted_from:
            self._wanted_in, self._wanted_from, self._wanted = state, [], []
        first = len(self._wanted_from)
        if first < len(self.log) and self.log[first].last < stable:
            batches = [batch for batch in self.log[first:] if batch.last < stable]
            self._wanted_from += batches
            self._wanted = self._wanted + [
                number
                for batch in batches
                if not batch.attributes & CONTROL
                for offset, number in batch.records
                if offset >= self.begin and number not in self.unwanted
            ]
        return self._wanted

    def epoch_of(self, offset: int) -> int:
        """The epoch of the batch that holds an offset now, or -1."""
        batch = self._batch_at(offset)
        return batch.epoch if batch is not None else -1

    def at(self, offset: int) -> int | None:
        """The number at this offset now."""
        batch = self._batch_at(offset)
        return next((number for at, number in batch.records if at == offset), None) if batch is not None else None

    def from_offset(self, offset: int) -> list[SourceBatch]:
        """The batches from the one that holds an offset on."""
        return self.log[self._first_from(offset) :]

    def _batch_at(self, offset: int) -> SourceBatch | None:
        at = self._first_from(offset)
        return self.log[at] if at < len(self.log) and self.log[at].base <= offset else None

    def _first_from(self, offset: int) -> int:
        """Which batch is the first one that ends at this offset or later."""
        return bisect_left(self.log, offset, key=_LAST)


assert HEADER.size == 61
