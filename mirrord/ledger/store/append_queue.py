"""The queue of appends of one store. The facts of callers are combined into numbered entries. When an entry has been
read back and folded, its callers get the results.

An entry keeps its number when it is sent again. The fold accepts an entry only if its number is higher than all earlier
numbers of the same writer, which is this store. An append whose answer was lost can therefore be retried. If the first
attempt is in the ledger after all, the caller gets the result of that attempt. If an entry is folded before an entry of
the same writer with a lower number, the entry with the lower number can never take effect. Its facts are then sent
under a new number.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from mirrord.ledger.codec import encode_entry
from mirrord.ledger.errors import LedgerUnavailable
from mirrord.ledger.facts.core import AnyFact, Entry, LeaseTaken
from mirrord.ledger.fold import writer_text

ENTRY_BYTES = 512 << 10
"""Maximum size in bytes of an entry that combines several appends. The entry of a single append may be larger."""
KEPT_OUTCOMES = 10_000

FactBindings = tuple[bool, ...]
Ask = tuple[int, tuple[AnyFact, ...]]


@dataclass(slots=True, eq=False)
class PendingAppend:
    """One append: the facts of one caller."""

    lease_epoch: int
    facts: tuple[AnyFact, ...]
    waiter: asyncio.Future[FactBindings] | None
    entry: "Numbered | None" = None
    """The entry that contains the append. None while the append is in the queue."""
    bound: FactBindings | None = None
    """For each fact, whether it took effect. It is set when the entry has been folded, even if the caller has already
    given up."""

    @property
    def ask(self) -> Ask:
        """The lease epoch and the facts. If a caller retries the append, the retry has the same value."""
        return self.lease_epoch, self.facts

    def answer(self, bound: FactBindings) -> None:
        """Pass the result to the caller. If the caller has given up, keep the result until the caller retries the
        append."""
        self.bound = bound
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(bound)


@dataclass(slots=True, eq=False)
class Numbered:
    """A ledger entry that has been given its number, and the pending appends whose facts it contains."""

    number: int
    data: bytes
    appends: list[PendingAppend]
    failed: bool = False
    """True if sending the entry failed. It is then unknown whether the entry is in the ledger."""


@dataclass(slots=True)
class Outbox:
    """All appends of one store that are in the queue, that have been sent but not read back, or whose outcome is
    unknown."""

    writer: str
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while there are entries to send."""
    _next: int = 1
    _queue: deque[PendingAppend] = field(default_factory=deque[PendingAppend])
    _again: set[int] = field(default_factory=set[int])
    _sent: dict[int, Numbered] = field(default_factory=dict[int, Numbered])
    _in_doubt: dict[Ask, PendingAppend] = field(default_factory=dict[Ask, PendingAppend])
    _standing: dict[int, int] = field(default_factory=dict[int, int])
    """Maps the offset of each entry that has been acknowledged but not read back to the entry's number."""

    @property
    def acknowledged_end(self) -> int:
        """The offset after the last entry that has been acknowledged but not read back; 0 if there is none."""
        return max(self._standing, default=-1) + 1

    def add(self, lease_epoch: int, facts: tuple[AnyFact, ...]) -> PendingAppend:
        """Add facts to the queue, and return the new append. If an earlier append of the same facts has an unknown
        outcome, do not add them again, and return the earlier append.

        The caller waits for the `waiter` of the returned append.
        """
        waiter: asyncio.Future[FactBindings] = asyncio.get_running_loop().create_future()
        append = self._in_doubt.pop((lease_epoch, facts), None)
        if append is None:
            append = PendingAppend(lease_epoch, facts, waiter)
            self._enqueue(append)
            return append
        append.waiter = waiter
        if append.bound is not None:
            append.answer(append.bound)
        elif append.entry is not None and append.entry.failed:
            self._again.add(append.entry.number)
            self.wanted.set()
        return append

    def give_up(self, append: PendingAppend) -> None:
        """Stop waiting for an append. An append that has not been sent yet is dropped. The outcome of any other append
        is kept."""
        append.waiter = None
        if append.entry is None:
            if append in self._queue:
                self._queue.remove(append)
        else:
            self._in_doubt[append.ask] = append
            while len(self._in_doubt) > KEPT_OUTCOMES:
                del self._in_doubt[next(iter(self._in_doubt))]

    def take(self, at_ms: int) -> list[Numbered]:
        """Return the entries to send now, in order. Entries that have to be sent again come first."""
        self.wanted.clear()
        entries = [self._sent[number] for number in sorted(self._again) if number in self._sent]
        self._again.clear()
        for entry in entries:
            entry.failed = False
        for appends in self._groups():
            entries.extend(self._number(appends, at_ms))
        return entries

    def fail(self, entries: Iterable[Numbered], error: LedgerUnavailable) -> None:
        """Record that sending these entries failed. Raise the error in their callers, because the outcome is
        unknown."""
        for entry in entries:
            entry.failed = True
            for append in entry.appends:
                if append.waiter is not None and not append.waiter.done():
                    append.waiter.set_exception(error)

    def acknowledged(self, entries: Iterable[Numbered], offsets: Iterable[int], read: int) -> int | None:
        """Record the offsets at which the broker has appended these entries. An offset is -1 if it is unknown. The
        ledger has already been read up to the offset `read` (exclusive).

        Also detect a loss: an entry may have an offset below `read` although it has not been read back. The reader must
        then have found a different entry at this offset, so the ledger has lost the appended entry. Return the offset
        of the first such entry, or None if there is none.
        """
        for entry, offset in zip(entries, offsets, strict=True):
            if offset < 0 or self._sent.get(entry.number) is not entry:
                continue
            if offset < read:
                return offset
            self._standing[offset] = entry.number
        return None

    def may_stand_at(self, offset: int, entry: Entry) -> bool:
        """Return whether `entry`, which was read at this offset, is consistent with what this store knows. Return False
        if a different entry of this store was acknowledged at this offset. The ledger has then lost the acknowledged
        entry."""
        number = self._standing.pop(offset, None)
        return number is None or entry.writer == writer_text(self.writer, number)

    def folded(self, entry: Entry, bound: FactBindings) -> None:
        """Process an entry that has been folded, whichever store wrote it."""
        self._outdate(entry.facts)
        writer, _, number = entry.writer.rpartition("#")
        if writer != self.writer:
            return
        own = self._sent.pop(int(number), None)
        if own is not None:
            at = 0
            # Each append refers to its entry. Without the opposite references, they need no garbage collector.
            appends, own.appends = own.appends, []
            for append in appends:
                append.answer(bound[at : at + len(append.facts)])
                at += len(append.facts)
        for late in [sent for sent in self._sent if sent < int(number)]:
            for append in self._sent.pop(late).appends:
                self._in_doubt.pop(append.ask, None)
                append.entry = None
                if append.waiter is not None and not append.waiter.done():
                    self._enqueue(append)

    def skipped(self, number: int) -> None:
        """Give up on this store's entries with numbers up to `number` that have not been read back. They are among the
        entries that were trimmed before this store read them. Raise an error in their callers, because the results are
        unknown."""
        lost = [self._sent.pop(sent) for sent in list(self._sent) if sent <= number]
        self._standing = {offset: sent for offset, sent in self._standing.items() if sent in self._sent}
        self.fail(lost, LedgerUnavailable("the ledger was trimmed before an append was read back"))
        for entry in lost:
            for append in entry.appends:
                self._in_doubt.pop(append.ask, None)

    def fail_all(self, error: Exception) -> None:
        """Raise the error in the callers of all pending appends, because no more entries will be sent or folded."""
        appends = [append for entry in self._sent.values() for append in entry.appends]
        for append in (*appends, *self._queue):
            if append.waiter is not None and not append.waiter.done():
                append.waiter.set_exception(error)
        self._queue.clear()

    def _outdate(self, facts: tuple[AnyFact, ...]) -> None:
        """Drop outcomes that are kept for callers that have given up. An outcome is dropped if one of its facts is
        about the same lane as one of `facts`. Facts that are not about a lane are compared by their kind instead.

        If a caller appends the same facts again after `facts` have been folded, that is a new append, not a retry of
        the earlier one.
        """
        if not self._in_doubt:
            return
        matters = {_matter(fact) for fact in facts}
        for ask, append in list(self._in_doubt.items()):
            if append.bound is not None and not matters.isdisjoint(map(_matter, append.facts)):
                del self._in_doubt[ask]

    def _enqueue(self, append: PendingAppend) -> None:
        self._queue.append(append)
        self.wanted.set()

    def _groups(self) -> Iterable[list[PendingAppend]]:
        """Yield groups of appends that can share an entry.

        A `LeaseTaken` needs a separate entry. If it does not take effect, no other fact in its entry does.
        """
        group: list[PendingAppend] = []
        while self._queue:
            append = self._queue.popleft()
            alone = any(isinstance(fact, LeaseTaken) for fact in append.facts)
            if group and (alone or append.lease_epoch != group[0].lease_epoch):
                yield group
                group = []
            group.append(append)
            if alone:
                yield group
                group = []
        if group:
            yield group

    def _number(self, appends: list[PendingAppend], at_ms: int) -> list[Numbered]:
        facts = tuple(fact for append in appends for fact in append.facts)
        data = encode_entry(Entry(appends[0].lease_epoch, at_ms, facts, writer_text(self.writer, self._next)))
        if len(data) > ENTRY_BYTES and len(appends) > 1:
            half = len(appends) // 2
            return [*self._number(appends[:half], at_ms), *self._number(appends[half:], at_ms)]
        entry = Numbered(self._next, data, appends)
        self._next += 1
        self._sent[entry.number] = entry
        for append in appends:
            append.entry = entry
        return [entry]


def _matter(fact: AnyFact) -> str:
    return getattr(fact, "lane", type(fact).__name__)
