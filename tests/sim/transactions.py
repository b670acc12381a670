"""Transactions of other clients on the target (KIP-98).

A transactional client writes batches in a transaction, and its coordinator then writes a marker, which has an offset of
its own. Until the marker is replicated, the last stable offset is not above the first batch of the transaction. All
batches stay in the log; readers of committed records skip those of aborted transactions. A broker finds all of this in
its own log. So if an election removes a marker, the transaction is open again, and if the coordinator already knows
that the marker was written, the transaction hangs until the client ends its next one (KIP-664).

`tests/sim/transaction_contract.py` compares the fake with real brokers.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from mirrord.kafka.protocol.record_batch import TRANSACTIONAL
from tests.sim import toy
from tests.sim.stored import BatchId, Stored
from tests.sim.target import Broker, FakeTarget
from tests.sim.violation import Violation

if TYPE_CHECKING:
    from tests.sim.host import Shape
    from tests.sim.world import World

Ending = Literal["commit", "abort"]
_FIRST_ID = 9_000
"""Producer ids from here on belong to other clients."""
_OPERATOR = -1_000
_RATE = 0.08
"""How often another client or its coordinator does something in a step of a story."""
_SOON = 0.5
_LEFT_OPEN = 0.5
"""How often the quiet period of a story begins with open transactions."""


@dataclass(frozen=True)
class InTransaction(Stored):
    """A batch that another client wrote in a transaction, or the marker of a transaction. `producer` is -2 for the
    first client, -3 for the second one and so on. `numbers` contains the records only in a log that shows that the
    transaction was committed. Otherwise it contains zeros."""

    ending: Ending | None = None
    """What the marker says. None if the batch has records."""
    known_as: int = -1
    """The producer id in the batch, if it is not that of the client."""
    contents: tuple[int, ...] = ()
    """The numbers of the records, whatever became of the transaction. 0 if the cleaner has removed a record."""

    @property
    def written(self) -> tuple[int, ...]:
        return self.contents

    def encoded(self, keys: int) -> bytes:
        """The batch as it is stored."""
        who = (self.known_as if self.known_as >= 0 else producer_id(self.producer), self.epoch)
        if self.ending is not None:
            return toy.marker(
                self.base,
                commit=self.ending == "commit",
                newest_ms=self.newest_ms,
                producer=who,
                leader_epoch=self.leader_epoch,
            )
        data = toy.encode(
            self.base,
            self.end - 1,
            [(offset, number) for offset, number in enumerate(self.contents, self.base) if number],
            newest_ms=self.newest_ms,
            attributes=TRANSACTIONAL,
            producer=(*who, self.sequence),
            leader_epoch=self.leader_epoch,
            keys=keys,
        )
        return bytes(data)


class Described(NamedTuple):
    """What a broker tells about a transactional producer (DescribeProducers)."""

    last_sequence: int
    newest_ms: int
    begun: int
    """The first offset of the open transaction, or -1."""


@dataclass
class Client:
    """A client that writes in transactions, and its coordinator."""

    producer: int
    sequence: int = 0
    is_open: bool = False
    """It has begun a transaction, as far as it knows."""
    ending: Ending | None = None
    """What the coordinator has decided. It writes the marker until a leader acknowledges it."""
    marker: BatchId = (-1, -1)
    """The marker that was written last."""


def producer_id(producer: int) -> int:
    """The producer id of another client, as it is in batches."""
    return _FIRST_ID - producer


class TransactionalTarget(FakeTarget):
    """A fake target to which other clients write in transactions."""

    def __init__(self, expiry_ms: int = 86_400_000, clients: int = 1) -> None:
        super().__init__(expiry_ms)
        self.clients = [Client(-2 - at) for at in range(clients)]
        self.in_transactions: set[int] = set()
        """Numbers of all records that were written in transactions, without the sign."""
        self._known_from = [0, 0]
        """Broker → the offset below which it knows of no transaction that is still open."""
        self._expired: tuple[set[int], set[int]] = (set(), set())

    # --- what a broker answers

    def last_stable(self, at: int | None = None) -> int:
        """ListOffsets for readers of committed records (`ProducerStateManager.firstUnstableOffset`). A marker counts
        once it is replicated."""
        at = self.leader if at is None else at
        broker = self.brokers[at]
        watermark = min(self.high_watermark if broker.watermark is None else broker.watermark, broker.end)
        begun, held = dict[int, int](), [watermark]
        for stored in broker.whole:
            if not isinstance(stored, InTransaction) or stored.end <= self._known_from[at]:
                continue
            if stored.ending is None:
                begun.setdefault(stored.producer, stored.base)
            elif (first := begun.pop(stored.producer, None)) is not None and stored.end > watermark:
                held.append(first)
        return min(watermark, max(min([*held, *begun.values()]), broker.start))

    def aborted(self) -> set[BatchId]:
        """The batches of aborted transactions in the leader's log."""
        markers = _markers(self.brokers[self.leader].whole)
        return {each for each, marker in markers.items() if marker.ending == "abort"}

    def described(self, producer: int, at: int | None = None) -> Described | None:
        """DescribeProducers for another client."""
        at = self.leader if at is None else at
        its = [each for each in _in_transactions(self.brokers[at].whole) if each.producer == producer]
        records = [each for each in its if each.ending is None]
        if not its or producer in self._expired[at]:
            return None
        ended = _markers(self.brokers[at].whole)
        begun = [each.base for each in records if each.id not in ended]
        last = records[-1].sequence + records[-1].count - 1 if records else -1
        return Described(last, its[-1].newest_ms, min(begun, default=-1))

    def read(self, start: int, end: int) -> list[Stored]:
        """The numbers of records are those that readers of committed records see."""
        if not self.keys:
            return super().read(start, end)
        unstable = {
            each
            for each, marker in _markers(self.brokers[self.leader].whole).items()
            if marker.ending == "commit" and marker.end > self.high_watermark
        }
        return [_hidden(each) if each.id in unstable else each for each in super().read(start, end)]

    def uncommitted(self) -> frozenset[int]:
        """Numbers of records in the leader's log that readers of committed records do not see, without the sign."""
        log = _in_transactions(self.read(0, self.end))
        return frozenset(-each for stored in log if not any(stored.numbers) for each in stored.contents if each)

    # --- what other clients do

    def write_in_transaction(self, client: Client, count: int, now_ms: int) -> None:
        """Write a batch. If no transaction is open, one begins."""
        broker = self.brokers[self.leader]
        self.foreign_numbers += count if self.keys else 0
        contents = tuple(-self.foreign_numbers + at for at in range(count)) if self.keys else ()
        self.in_transactions.update(-each for each in contents)
        client.is_open = True
        where = (broker.end, count, client.producer, 0, client.sequence, now_ms)
        broker.append(InTransaction(*where, (0,) * len(contents), broker.epoch, contents=contents))
        client.sequence += count
        for each in self._expired:
            each.discard(client.producer)
        self.advance()

    def end_transaction(self, client: Client, ending: Ending, now_ms: int) -> None:
        """The coordinator decides, and writes the marker."""
        client.ending = ending
        self.write_marker(client, now_ms)

    def write_marker(self, client: Client, now_ms: int) -> None:
        """The coordinator writes its marker. If the leader has it, nothing happens until it is acknowledged."""
        broker = self.brokers[self.leader]
        if any(stored.id == client.marker for stored in broker.whole):
            if client.marker[0] < self.high_watermark:
                client.ending, client.is_open, client.marker = None, False, (-1, -1)
            return
        where = (broker.end, 1, client.producer, 0, -1, now_ms)
        broker.append(InTransaction(*where, (), broker.epoch, ending=client.ending))
        client.marker = broker.whole[-1].id
        self._settle(broker)
        self.advance()

    def write_marker_for(self, known_as: int, now_ms: int) -> None:
        """An operator writes the marker of a transaction that does not exist, for any producer id."""
        broker = self.brokers[self.leader]
        where = (broker.end, 1, _OPERATOR, 0, -1, now_ms)
        broker.append(InTransaction(*where, (), broker.epoch, ending="abort", known_as=known_as))
        self.advance()

    # --- what happens to brokers

    def replicate(self) -> bool:
        leader, follower = self.brokers[self.leader], self.brokers[1 - self.leader]
        if not follower.leads and follower.end < leader.start:
            self._known_from[1 - self.leader] = leader.start  # ProducerStateManager.truncateFullyAndStartAt
        has_changed = super().replicate()
        self._settle(follower)
        return has_changed

    def elect(self) -> bool:
        # Leadership may come back at once, after the follower has lost the end of its log (`bounce`).
        self._settle(self.brokers[1 - self.leader])
        return super().elect()

    def learn(self, now_ms: int) -> bool:
        has_changed = super().learn(now_ms)
        self._settle(self.brokers[1 - self.leader])
        return has_changed

    def reload(self, at: int, now_ms: int) -> None:
        if not self.has_snapshots:
            self._known_from[at] = max(self._known_from[at], self.brokers[at].start)
        super().reload(at, now_ms)

    def _settle(self, broker: Broker) -> None:
        """Show the records of the transactions that are committed according to this log, and of no others."""
        if not self.keys:
            return
        markers = _markers(broker.whole)
        for part in (broker.log, broker.whole, broker.deleted):
            for at, each in enumerate(part):
                if isinstance(each, InTransaction) and each.contents:
                    marker = markers.get(each.id)
                    is_committed = marker is not None and marker.ending == "commit"
                    numbers = each.contents if is_committed else (0,) * len(each.contents)
                    if each.numbers != numbers:
                        part[at] = replace(each, numbers=numbers)

    def replace_follower(self) -> None:
        self._known_from[1 - self.leader] = 0
        super().replace_follower()

    def forget(self, at: int, now_ms: int) -> bool:
        """No producer with an open transaction is forgotten."""
        for client in self.clients:
            known = self.described(client.producer, at)
            if known is not None and known.begun < 0 and now_ms - known.newest_ms >= self.expiry_ms:
                self._expired[at].add(client.producer)
        return super().forget(at, now_ms)

    def clean(self, at: int, below: int) -> None:
        """The cleaner stops at the last stable offset. It removes records of aborted transactions, and then their
        markers (`CleanedTransactionMetadata`). Records that are not committed supersede nothing."""
        broker = self.brokers[at]
        below = min(below, self.high_watermark, self.last_stable(at))
        before = list(broker.log)
        super().clean(at, below)
        after = {each.base: each for each in broker.log}
        for each in before:
            left = after.get(each.base)
            if isinstance(left, InTransaction) and left.numbers != each.numbers:
                after[each.base] = replace(left, contents=left.numbers)
        # A replica that leads no longer may have to truncate what it cleans.
        below = below if at == self.leader or not broker.leads else 0
        theirs = _in_transactions(before)
        last = {each.producer: each.base for each in theirs if each.ending is None}
        for each in theirs:
            is_last = last.get(each.producer, -1) == each.base
            if each.base not in after and each.end > below:
                after[each.base] = each
            elif each.base not in after and is_last:
                nothing = (0,) * len(each.contents)
                after[each.base] = replace(each, numbers=nothing, contents=nothing)
        _keep_markers(theirs, after)
        broker.log[:] = [after[each.base] for each in before if each.base in after]


def _keep_markers(theirs: Iterable[InTransaction], after: dict[int, Stored]) -> None:
    """Keep each marker as long as the log has records of its transaction."""
    standing = set[int]()
    for each in theirs:
        if each.ending is None:
            standing |= {each.producer} if each.base in after else set()
        elif each.producer in standing:
            after.setdefault(each.base, each)
            standing.discard(each.producer)


def _in_transactions(log: Iterable[Stored]) -> list[InTransaction]:
    return [each for each in log if isinstance(each, InTransaction)]


def _markers(whole: list[Stored]) -> dict[BatchId, InTransaction]:
    """Batches with records → the marker of their transaction. Those of open transactions have none."""
    found, nexts = dict[BatchId, InTransaction](), dict[int, InTransaction]()
    for each in reversed(_in_transactions(whole)):
        if each.ending is not None:
            nexts[each.producer] = each
        elif each.producer in nexts:
            found[each.id] = nexts[each.producer]
    return found


def _hidden(stored: Stored) -> Stored:
    return replace(stored, numbers=(0,) * len(stored.numbers))


# --- what a story asks of any target


def target_of(shape: "Shape") -> FakeTarget:
    """The target of a kind of world."""
    return TransactionalTarget(shape.expiry_ms, shape.others) if shape.others else FakeTarget(shape.expiry_ms)


def last_stable(target: FakeTarget) -> int:
    """The last stable offset of the leader."""
    return target.last_stable() if isinstance(target, TransactionalTarget) else target.high_watermark


def aborted(target: FakeTarget) -> Collection[BatchId]:
    """The batches of aborted transactions in the leader's log."""
    return target.aborted() if isinstance(target, TransactionalTarget) else ()


def uncommitted(target: FakeTarget) -> frozenset[int]:
    """Numbers of records in the leader's log that readers of committed records do not see, without the sign."""
    return target.uncommitted() if isinstance(target, TransactionalTarget) else frozenset()


def never_seen(world: "World") -> Collection[int]:
    """Numbers of records of transactions that no lookup has seen, without the sign."""
    target = world.target
    return target.in_transactions - world.known.theirs_seen if isinstance(target, TransactionalTarget) else ()


def act(world: "World") -> None:
    """Now and then, let another client or its coordinator do something."""
    rng = world.rng
    if rng.random() < _RATE and world.target.exists:
        go_on(world, rng.choice(_target(world).clients))


def go_on(world: "World", client: Client) -> None:
    """A client begins a transaction, writes a batch or decides to end the transaction, or its coordinator writes the
    marker."""
    rng, target = world.rng, _target(world)
    if client.ending is not None:
        world.note(f"client {client.producer}: {client.ending} marker")
        target.write_marker(client, world.wall_ms)
    elif not client.is_open or rng.random() < _SOON:
        world.note(f"client {client.producer}: writes in a transaction")
        target.write_in_transaction(client, rng.randint(1, 3), world.wall_ms)
    else:
        client.ending = rng.choice(("commit", "commit", "abort"))


def come_to_rest(world: "World") -> None:
    """The faults of the story are over. The transactions may stay open: no lane waits for them."""
    if world.rng.random() >= _LEFT_OPEN:
        end_all(world)


def end_all(world: "World") -> None:
    """End all transactions, also those that hang."""
    target = _target(world)
    for client in target.clients:
        known = target.described(client.producer)
        if client.ending is not None or client.is_open or (known is not None and known.begun >= 0):
            target.end_transaction(client, client.ending or "abort", world.wall_ms)


def _target(world: "World") -> TransactionalTarget:
    assert isinstance(world.target, TransactionalTarget)
    return world.target


def check_readers(world: "World") -> None:
    """Consumers that read committed records see each record of the lane below the last stable offset, and all of them
    once no transaction is open. They see no record of an aborted transaction."""
    target = _target(world)
    leader, stable = target.brokers[target.leader], target.last_stable()
    is_open = any(known is not None and known.begun >= 0 for known in map(target.described, _producers(target)))
    if not is_open and target.high_watermark == leader.end != stable:
        raise Violation(f"no transaction is open, and the last stable offset is {stable}")
    seen = consumed(target)
    own = [each for stored in leader.log if stored.producer >= 0 and stored.end <= stable for each in stored.numbers]
    if [each for each in seen if each > 0] != [each for each in own if each]:
        raise Violation(f"of the lane's records {own}, a reader of committed records sees {seen}")
    if hidden := target.uncommitted().intersection(-each for each in seen):
        raise Violation(f"a reader of committed records sees {sorted(hidden)}, which were not committed")


def _producers(target: TransactionalTarget) -> list[int]:
    return [client.producer for client in target.clients]


def consumed(target: TransactionalTarget) -> list[int]:
    """The numbers of the records that a consumer sees that reads committed records, as it finds them from the batches
    and from the list of aborted transactions (`CompletedFetch.nextFetchedRecord`)."""
    log, stable = target.brokers[target.leader].log, target.last_stable()
    gone, begun, found = target.aborted(), set[int](), list[int]()
    first = {(each.producer, each.base) for each in _in_transactions(log) if each.id in gone}
    for stored in log:
        if stored.end > stable:
            break
        begun |= {who for who, base in first if base == stored.base}
        if not isinstance(stored, InTransaction):
            found += [each for each in stored.numbers if each]
        elif stored.ending is not None:
            begun.discard(stored.producer)
        elif stored.producer not in begun:
            found += [each for each in stored.contents if each]
    return found
