"""A fake target partition on two brokers that answers as real ones do (docs/explanation/broker-behaviour.md).

The contract tests (`tests/sim/contract.py`) compare the two.

Each broker has its own log, its own memory of producers and its own belief about who leads. The memory ages by record
time. A deposed leader continues to answer from its own log until it learns of its successor.
"""

from dataclasses import dataclass, field, replace

import google_crc32c

from mirrord.kafka.protocol.record_batch import CONTROL, HEADER, LENGTH_OFFSET, TRANSACTIONAL
from tests.sim import toy
from tests.sim.stored import SEQUENCES, Stored, UnknownCopies, adopt, ordinal_of

CORRUPT, UNKNOWN_TOPIC, NOT_LEADER, TOO_LARGE, OUT_OF_ORDER, INVALID_EPOCH = 2, 3, 6, 10, 45, 47
INVALID_TXN, FENCED_EPOCH, UNKNOWN_EPOCH, NOT_AVAILABLE, INVALID_RECORD = 53, 74, 75, 78, 87


@dataclass
class Memory:
    """What a broker remembers of one producer id: the last batches (at most five), newest last."""

    epoch: int
    newest_ms: int
    batches: list[tuple[int, int, int]] = field(default_factory=list)
    """(first sequence, last sequence, base offset)"""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1][1]


@dataclass
class Broker:
    log: list[Stored] = field(default_factory=list)
    memory: dict[int, Memory] = field(default_factory=dict)
    leads: bool = False
    epoch: int = 0
    began: int = 0
    """Its end when it became the leader."""
    watermark: int | None = None
    """The high watermark when it was deposed, until it learns of that."""
    whole: list[Stored] = field(default_factory=list)
    """Everything appended, whatever the cleaner has removed since: its knowledge of leader epochs."""
    start: int = 0
    """The log start offset."""
    origin: int = 0
    """The log start offset at the beginning of the story."""
    deleted: list[Stored] = field(default_factory=list)
    """What retention has deleted from the log."""
    unknown: UnknownCopies = field(default_factory=UnknownCopies)
    """All brokers of a partition have the same."""

    @property
    def history(self) -> list[Stored]:
        """The log with what retention has deleted from it, except for what may as well never have been there."""
        return self.unknown.without(self.deleted, self.whole) + self.log if self.deleted else self.log

    @property
    def end(self) -> int:
        whole = self.whole
        return whole[-1].end if whole else min(self.start, self.origin)

    def append(self, stored: Stored) -> None:
        self.log.append(stored)
        self.whole.append(stored)

    def truncate(self, end: int) -> None:
        for log in (self.log, self.whole, self.deleted):
            log[:] = [stored for stored in log if stored.end <= end]
        self.start = min(self.start, end)

    def expire(self, start: int) -> None:
        """Delete everything below an offset at which a batch begins. Producers are remembered all the same."""
        self.start = max(self.start, start)
        if not self.log or self.log[0].end > self.start:
            return
        self.deleted += [stored for stored in self.log if stored.end <= self.start]
        self.log[:] = [stored for stored in self.log if stored.end > self.start]

    def start_anew(self, leader: "Broker") -> None:
        """Begin where the leader's log starts (ReplicaFetcherThread.truncateFullyAndStartAt)."""
        self.log.clear()
        self.memory.clear()
        self.start = leader.start
        self.whole[:] = [stored for stored in leader.whole if stored.base < leader.start]
        self.deleted[:] = list(leader.deleted)

    def end_of(self, epoch: int, start: int = 0) -> tuple[int, int]:
        """LeaderEpochFileCache.endOffsetFor: the newest epoch up to this one, and where it ends. An epoch below all
        known ones ends where the first of these begins. (-1, -1) if the epoch is above all known ones.

        `start` is the log start offset; of the epochs that ended below it, none is known.
        """
        begins: dict[int, int] = {}
        for stored in self.whole:
            begins.setdefault(stored.leader_epoch, stored.base)
        if self.leads:
            begins.setdefault(self.epoch, self.began)
        first = max((each for each, begin in begins.items() if begin <= start), default=-1)
        begins = {each: max(begin, start) for each, begin in begins.items() if each >= first}
        if epoch > max(begins, default=-1):
            return -1, -1
        known = max((each for each in begins if each <= epoch), default=epoch)
        return known, min((begin for each, begin in begins.items() if each > epoch), default=self.end)


class FakeTarget:
    """One partition. `now_ms` is the brokers' wall clock."""

    def __init__(self, expiry_ms: int = 86_400_000) -> None:
        self.unknown = UnknownCopies()
        self.brokers = [Broker(leads=True, epoch=1, unknown=self.unknown), Broker(epoch=1, unknown=self.unknown)]
        self.leader = 0
        self.epoch = 1
        self.high_watermark = 0
        self.has_snapshots = True
        """Whether brokers have snapshots of their memory that cover what retention has deleted."""
        self.in_sync = True
        self.exists = True
        self.refusal: int | None = None
        """The next produce requests are refused with this error, before anything is appended."""
        self.refusals_left = 0
        self.unreadable = False
        """Whether consumers get nothing for now."""
        self.forget_after = False
        """With the last refusal comes the check that forgets expired producers."""
        self.settings = 0
        """How often the configs of the topic were altered."""
        self.poison: set[int] = set()
        """Numbers of records that are refused for their content."""
        self.former_poison: set[int] = set()
        """The same, before the configs were altered."""
        self.largest = 1 << 62
        """max.message.bytes"""
        self.expiry_ms = expiry_ms
        self.forgot = False
        """A producer was forgotten, or the log went back: from then on sequences alone no longer protect."""
        self.keys = 0
        """How many keys the records have; 0: the topic is not compacted."""
        self.foreign_numbers = 0
        self.parted_at: dict[int, int] = {}
        """Number of a record that an election has removed → the end of the log that was left."""
        self.lost: dict[int, int] = {}
        """Number of a record that an election removed → the leader epoch that began without it, the last one."""
        self.cleaned: set[int] = set()
        """Numbers of records that a replica's cleaner removed."""
        self.outlived: set[int] = set()
        """Numbers of records that retention had deleted when an election lost them as well."""
        self.unseen: dict[tuple[int, int], set[int]] = {}
        """Base offset and leader epoch of a batch → numbers of records that the cleaner had removed from this log when
        the batch was appended to it. Kept once an election has removed records."""
        self.hid: dict[tuple[int, int], set[int]] = {}
        """The same, for those records that the log hid (`hidden`), or the log in which the holder had looked them
        up."""
        self.leapt = False
        """Having forgotten the producer, a broker accepted a batch that does not follow the producer's last one."""
        self.first_ordinal = 0
        """The lowest ordinal of the lane in this story."""

    @property
    def end(self) -> int:
        """The end of the leader's log."""
        return self.brokers[self.leader].end

    @property
    def start(self) -> int:
        """The log start offset of the leader; what was deleted below it is remembered all the same."""
        return self.brokers[self.leader].start

    @start.setter
    def start(self, start: int) -> None:
        for broker in self.brokers:
            broker.start = start

    # --- what a broker answers

    def produce(self, at: int, batch: bytes, now_ms: int) -> tuple[int, int]:
        """(error, base offset), as if the request was handled now. Replication is separate: see `committed`."""
        broker = self.brokers[at]
        if not self.exists:
            return UNKNOWN_TOPIC, -1
        if not broker.leads:
            return NOT_LEADER, -1
        if self.refusals_left > 0 and self.refusal is not None:
            self.refusals_left -= 1
            if self.refusals_left == 0 and self.forget_after:
                self.forget_after = False
                self.forget(at, now_ms)
            return self.refusal, -1
        error = _invalid(batch, now_ms) or self._dislikes(batch)
        if error:
            return error, -1
        header = HEADER.unpack_from(batch, 0)
        producer, epoch, sequence, count = header[9:13]
        last = (sequence + count - 1) % SEQUENCES
        known = broker.memory.get(producer)
        if known is not None:
            if epoch < known.epoch:
                return INVALID_EPOCH, -1
            for first_known, last_known, base in known.batches:
                if (first_known, last_known) == (sequence, last) and epoch == known.epoch:
                    return 0, base
            wanted = 0 if epoch > known.epoch else (known.last_sequence + 1) % SEQUENCES
            if sequence != wanted:
                return OUT_OF_ORDER, -1
        elif self.forgot:
            before = [stored for stored in broker.whole if stored.producer == producer]
            after = before[-1].ordinal + before[-1].count if before else self.first_ordinal
            self.leapt = self.leapt or ordinal_of(sequence, self.first_ordinal) > after
        numbers = tuple(number for _, number in toy.records(batch))
        turns = ordinal_of(sequence, self.first_ordinal) // SEQUENCES
        stored = Stored(broker.end, count, producer, epoch, sequence, header[8], numbers, broker.epoch, turns)
        self._note_hidden(at, stored)
        broker.append(stored)
        _remember(broker, stored)
        self.advance()
        return 0, stored.base

    def _note_hidden(self, at: int, stored: Stored) -> None:
        if self.lost and self.keys:
            self.unseen[stored.base, stored.leader_epoch] = cleaned_from(self.brokers[at])
            self.hid[stored.base, stored.leader_epoch] = self.hidden(at)

    def _dislikes(self, batch: bytes) -> int:
        if len(batch) > self.largest:
            return TOO_LARGE
        if not self.poison:
            return 0
        return INVALID_RECORD if self.poison.intersection(number for _, number in toy.records(batch)) else 0

    def end_for(self, at: int, epoch: int) -> tuple[int, int, int]:
        """OffsetForLeaderEpoch for the current epoch: (error, leader epoch, end)."""
        broker = self.brokers[at]
        error = self._fence(broker, epoch)
        return (error, -1, -1) if error else (0, broker.epoch, broker.end)

    def producers(self, at: int, producer: int, now_ms: int) -> tuple[int, tuple[int, int] | None]:
        """DescribeProducers, answered by any replica: (error, (last sequence, age in ms) or None)."""
        if not self.exists:
            return UNKNOWN_TOPIC, None
        known = self.brokers[at].memory.get(producer)
        return 0, None if known is None else (known.last_sequence, now_ms - known.newest_ms)

    def visible(self, at: int, epoch: int) -> tuple[int, int, int]:
        """ListOffsets: (error, high watermark, log start). A deposed leader's high watermark does not move.

        A new leader returns OFFSET_NOT_AVAILABLE until its high watermark has reached the start of its own epoch,
        because the former leader may have reported offsets up to there (KIP-207).
        """
        broker = self.brokers[at]
        error = self._fence(broker, epoch)
        if not error and self.high_watermark < broker.began:
            error = NOT_AVAILABLE
        known = self.high_watermark if broker.watermark is None else broker.watermark
        return (error, -1, -1) if error else (0, min(known, broker.end), broker.start)

    def shared(self, at: int, leader_epoch: int, epoch: int) -> tuple[int, int, int]:
        """OffsetForLeaderEpoch for an older epoch: (error, epoch, end)."""
        error = self._fence(self.brokers[at], leader_epoch)
        return (error, -1, -1) if error else (0, *self.brokers[at].end_of(epoch, self.brokers[at].start))

    def committed(self, at: int, stored_end: int, epoch: int) -> bool:
        """Whether an append up to this end, accepted in this epoch, may be acknowledged."""
        return self.leader == at and self.epoch == epoch and self.high_watermark >= stored_end

    def read(self, start: int, end: int) -> list[Stored]:
        """What a consumer of the present leader sees in [start, end)."""
        log = self.brokers[self.leader].log
        first, last = max(start, self.start), min(end, self.high_watermark)
        return [stored for stored in log if stored.end > first and stored.base < last]

    def _fence(self, broker: Broker, epoch: int) -> int:
        if not self.exists:
            return UNKNOWN_TOPIC
        if not broker.leads:
            return NOT_LEADER
        if epoch < broker.epoch:
            return FENCED_EPOCH
        return UNKNOWN_EPOCH if epoch > broker.epoch else 0

    # --- what happens to brokers

    def advance(self) -> None:
        """Move the high watermark: to the lowest end of the in-sync replicas. What a deposed leader has not truncated
        yet does not count."""
        leader, follower = self.brokers[self.leader], self.brokers[1 - self.leader]
        end = min(leader.end, _shared(follower, leader) if follower.leads else follower.end)
        end = end if self.in_sync else leader.end
        self.high_watermark = max(self.high_watermark, end)

    def replicate(self) -> bool:
        """The follower copies one batch; False if there is none or it cannot."""
        leader, follower = self.brokers[self.leader], self.brokers[1 - self.leader]
        if follower.leads:
            return False
        if follower.end < leader.start:
            follower.start_anew(leader)
        end = follower.end
        follower.expire(min(leader.start, end))
        missing = next((stored for stored in leader.log if stored.base >= end), None)
        if missing is None:
            if not self.in_sync:
                self.in_sync = True
                return True
            return False
        follower.append(missing)
        _remember(follower, missing)
        self.advance()
        return True

    def elect(self) -> bool:
        """The other broker leads; what only the old one had is lost. The election is unclean if it was out of sync.

        It knows the producers that it has followed: nothing is forgotten.
        """
        old, new = self.leader, 1 - self.leader
        if self.brokers[new].leads:
            return False
        if self.brokers[new].end < self.high_watermark:
            self.forgot = True
        self.brokers[old].watermark = self.high_watermark
        kept = {each for stored in self.brokers[new].whole for each in stored.numbers}
        held = {each for stored in self.brokers[old].whole for each in stored.numbers}
        self.leader = new
        self.epoch += 1
        self.lost.update((each, self.epoch) for each in held - kept if each)
        self.parted_at.update((each, self.brokers[new].end) for each in held - kept if each)
        deleted = [stored for stored in self.brokers[old].history if stored.end <= self.brokers[old].start]
        self.outlived |= {each for stored in deleted for each in stored.numbers} - kept
        broker = self.brokers[new]
        broker.leads, broker.epoch, broker.began = True, self.epoch, broker.end
        self.high_watermark = min(self.high_watermark, broker.end)
        # Every other time the old leader stays in the ISR, so nothing is committed before it follows.
        self.in_sync = self.epoch % 2 == 0 and self.brokers[old].end >= self.high_watermark
        self.advance()
        return True

    def replace_follower(self) -> None:
        """The follower's disk is replaced: it begins with an empty log, and is out of sync."""
        follower = self.brokers[1 - self.leader]
        for part in (follower.log, follower.whole, follower.deleted, follower.memory):
            part.clear()
        follower.start, follower.leads, follower.epoch, follower.watermark = 0, False, self.epoch, None
        self.in_sync = False
        self.advance()

    def expire(self, at: int, batches: int) -> None:
        """Retention deletes the first batches of a replica's log, but nothing above the high watermark."""
        broker = self.brokers[at]
        ends = [stored.end for stored in broker.log[:batches] if stored.end <= self.high_watermark]
        broker.expire(max(ends, default=broker.start))

    def foreign(self, count: int, now_ms: int) -> None:
        """Another client writes into the partition."""
        broker = self.brokers[self.leader]
        self.foreign_numbers += count if self.keys else 0
        numbers = tuple(-self.foreign_numbers + at for at in range(count)) if self.keys else ()
        broker.append(Stored(broker.end, count, -1, -1, -1, now_ms, numbers, broker.epoch))
        self.advance()

    def taken(self) -> set[int]:
        """Numbers of all records that the leader's log has, or would have if its cleaner had not removed them."""
        return {number for stored in self.brokers[self.leader].whole for number in stored.numbers}

    def key(self, number: int) -> int:
        return toy.key_of(number, self.keys)

    def hidden(self, at: int) -> set[int]:
        """Numbers of records that a replica's cleaner removed because of newer ones of their keys, which the replica
        has lost since. Its log has nothing left that shows these records."""
        if not self.lost or not self.keys:
            return set()
        broker = self.brokers[at]
        newest = {self.key(number): stored.base for stored in broker.log for number in stored.numbers if number}
        gone = cleaned_from(broker)
        return {
            number
            for stored in broker.whole
            for number in gone.intersection(stored.numbers)
            if newest.get(self.key(number), -1) < stored.base
        }

    def clean(self, at: int, below: int) -> None:
        """One replica's cleaner removes superseded records below an offset, but keeps the last batch of a producer that
        it remembers."""
        broker = self.brokers[at]
        # It removes nothing that the replica may still have to truncate.
        below = min(below, self.high_watermark, _shared(broker, self.brokers[self.leader]))
        newest: dict[int, int] = {}
        for stored in broker.log:
            for delta, number in enumerate(stored.numbers):
                if number and stored.base + delta < below:
                    newest[self.key(number)] = stored.base + delta
        kept: list[Stored] = []
        for stored in broker.log:
            numbers = tuple(
                0 if number and stored.base + delta < newest.get(self.key(number), -1) else number
                for delta, number in enumerate(stored.numbers)
            )
            self.cleaned.update(each for each in {*stored.numbers} - {*numbers} if each)
            known = broker.memory.get(stored.producer)
            is_last = known is not None and known.batches[-1][2] == stored.base
            if any(numbers) or is_last or stored.end >= broker.end:
                kept.append(replace(stored, numbers=numbers))
        broker.log[:] = kept

    def bounce(self, now_ms: int, lost: int) -> bool:
        """Leadership goes to the other broker, which lacks some batches, and comes back; connections stay open."""
        follower = self.brokers[1 - self.leader]
        if not follower.leads:
            cut = follower.whole[max(0, len(follower.whole) - lost) :]
            follower.truncate(cut[0].base if cut else follower.end)
            self.reload(1 - self.leader, now_ms)
        return self.elect() and self.learn(now_ms) and self.elect() and self.learn(now_ms)

    def learn(self, now_ms: int) -> bool:
        """A deposed leader learns of its successor and truncates its log to what they share."""
        at = 1 - self.leader
        broker, leader = self.brokers[at], self.brokers[self.leader]
        if not broker.leads:
            return False
        broker.leads, broker.epoch, broker.watermark = False, self.epoch, None
        shared = _shared(broker, leader)
        if shared < broker.end:
            broker.truncate(shared)
            self.reload(at, now_ms)
        adopt(broker.deleted, leader.deleted + leader.log, broker.start)
        adopt(broker.whole, leader.whole, broker.start)
        return True

    def reload(self, at: int, now_ms: int) -> None:
        """Rebuild the memory after a restart or truncation, as from a snapshot: only a producer's very last batch.

        A truncated log without a snapshot near its new end is read again, and more is known: this is the worst case.
        """
        broker = self.brokers[at]
        broker.memory.clear()
        self.forgot = self.forgot or not self.has_snapshots
        for stored in broker.deleted + broker.log if self.has_snapshots else broker.log:
            _remember(broker, stored)
        for known in broker.memory.values():
            del known.batches[:-1]
        self.forget(at, now_ms)

    def forget(self, at: int, now_ms: int) -> bool:
        """ProducerStateManager.isProducerExpired: by record time, not by the clock."""
        memory = self.brokers[at].memory
        old = [producer for producer, known in memory.items() if now_ms - known.newest_ms >= self.expiry_ms]
        for producer in old:
            del memory[producer]
        self.forgot = self.forgot or bool(old)
        return bool(old)


def cleaned_from(broker: Broker) -> set[int]:
    """Numbers of records that this replica's cleaner removed from its log."""
    there = {number for stored in broker.log for number in stored.numbers}
    return {number for stored in broker.whole for number in stored.numbers} - there - {0}


def _shared(follower: Broker, leader: Broker) -> int:
    """Up to where a follower keeps its log (KIP-101, KIP-279)."""
    end = follower.end
    epoch = max((stored.leader_epoch for stored in follower.whole), default=-1)
    while epoch >= 0:
        theirs, their_end = leader.end_of(epoch, leader.start)
        mine, my_end = follower.end_of(theirs, follower.start)
        end = min(end, their_end, my_end) if theirs >= 0 and mine >= 0 else 0
        if theirs == epoch or theirs < 0 or mine == theirs:
            return end
        epoch = mine
    return end


def _invalid(batch: bytes, now_ms: int) -> int:
    header = HEADER.unpack_from(batch, 0)
    if header[5] & TRANSACTIONAL:
        return INVALID_TXN
    if header[1] + LENGTH_OFFSET != len(batch):
        return INVALID_RECORD
    if google_crc32c.value(bytes(batch[21:])) != header[4]:
        return CORRUPT
    if header[6] + 1 != header[12] or header[5] & CONTROL or header[0] != 0:
        return INVALID_RECORD
    return 32 if header[8] > now_ms + 3_600_000 else 0


def _remember(broker: Broker, stored: Stored) -> None:
    if stored.producer < 0:
        return
    last = (stored.sequence + stored.count - 1) % SEQUENCES
    known = broker.memory.get(stored.producer)
    if known is None or stored.epoch > known.epoch:
        known = broker.memory[stored.producer] = Memory(stored.epoch, stored.newest_ms)
    known.newest_ms = stored.newest_ms
    known.batches.append((stored.sequence, last, stored.base))
    del known.batches[:-5]
