"""The appends of one store: from the callers' facts to numbered entries, from folded entries back to the callers.

An entry keeps its number when it is sent again, and fold takes every number of a writer once, in ascending order. So
an append whose answer was lost can be repeated: if it is in the ledger after all, the caller gets what it bound then.
An entry that is missing when a later one of the same writer was folded can never bind any more; its facts are sent
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
"""Appends are put into one entry up to this size; a single append may be larger."""
KEPT_OUTCOMES = 10_000

Bound = tuple[bool, ...]
Ask = tuple[int, tuple[AnyFact, ...]]


@dataclass(slots=True, eq=False)
class Append:
    """One caller's facts."""

    lease_epoch: int
    facts: tuple[AnyFact, ...]
    waiter: asyncio.Future[Bound] | None
    entry: "Numbered | None" = None
    """None while it is queued."""
    bound: Bound | None = None
    """Set when it was folded after its caller had given up."""

    @property
    def ask(self) -> Ask:
        """What makes a repetition of it."""
        return self.lease_epoch, self.facts

    def answer(self, bound: Bound) -> None:
        """Tell the caller, or keep it for when it asks again."""
        self.bound = bound
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(bound)


@dataclass(slots=True, eq=False)
class Numbered:
    """An entry and the appends in it."""

    number: int
    data: bytes
    appends: list[Append]
    failed: bool = False
    """It was sent, and whether it is in the ledger is not known."""


@dataclass(slots=True)
class Outbox:
    """What one store has to append, has sent, and does not know the outcome of."""

    writer: str
    wanted: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while there is something to send."""
    _next: int = 1
    _queue: deque[Append] = field(default_factory=deque[Append])
    _again: set[int] = field(default_factory=set[int])
    _sent: dict[int, Numbered] = field(default_factory=dict[int, Numbered])
    _in_doubt: dict[Ask, Append] = field(default_factory=dict[Ask, Append])
    _standing: dict[int, int] = field(default_factory=dict[int, int])
    """Offset to number, of entries that were acknowledged and not read back yet."""

    @property
    def acknowledged_end(self) -> int:
        """How far the ledger reaches by the answers to appends that were not read back yet."""
        return max(self._standing, default=-1) + 1

    def add(self, lease_epoch: int, facts: tuple[AnyFact, ...]) -> Append:
        """Queue facts, or take up the append of the same facts whose outcome is not known. Its waiter is set."""
        waiter: asyncio.Future[Bound] = asyncio.get_running_loop().create_future()
        append = self._in_doubt.pop((lease_epoch, facts), None)
        if append is None:
            append = Append(lease_epoch, facts, waiter)
            self._enqueue(append)
            return append
        append.waiter = waiter
        if append.bound is not None:
            append.answer(append.bound)
        elif append.entry is not None and append.entry.failed:
            self._again.add(append.entry.number)
            self.wanted.set()
        return append

    def give_up(self, append: Append) -> None:
        """The caller waits no longer. What was not sent is dropped, of the rest the outcome is kept."""
        append.waiter = None
        if append.entry is None:
            if append in self._queue:
                self._queue.remove(append)
        else:
            self._in_doubt[append.ask] = append
            while len(self._in_doubt) > KEPT_OUTCOMES:
                del self._in_doubt[next(iter(self._in_doubt))]

    def take(self, at_ms: int) -> list[Numbered]:
        """What to send now, in this order: entries that are sent again first."""
        self.wanted.clear()
        entries = [self._sent[number] for number in sorted(self._again) if number in self._sent]
        self._again.clear()
        for entry in entries:
            entry.failed = False
        for appends in self._groups():
            entries.extend(self._number(appends, at_ms))
        return entries

    def fail(self, entries: Iterable[Numbered], error: LedgerUnavailable) -> None:
        """Sending failed: the callers are told that the outcome is not known."""
        for entry in entries:
            entry.failed = True
            for append in entry.appends:
                if append.waiter is not None and not append.waiter.done():
                    append.waiter.set_exception(error)

    def acknowledged(self, entries: Iterable[Numbered], offsets: Iterable[int], read: int) -> int | None:
        """Entries were appended at these offsets (-1: not known), and everything below `read` was read before. The
        offset of one that is not among what was read."""
        for entry, offset in zip(entries, offsets, strict=True):
            if offset < 0 or self._sent.get(entry.number) is not entry:
                continue
            if offset < read:
                return offset
            self._standing[offset] = entry.number
        return None

    def may_stand_at(self, offset: int, entry: Entry) -> bool:
        """Whether no other entry was acknowledged at this offset."""
        number = self._standing.pop(offset, None)
        return number is None or entry.writer == writer_text(self.writer, number)

    def folded(self, entry: Entry, bound: Bound) -> None:
        """An entry was folded, whoever wrote it."""
        self._outdate(entry.facts)
        writer, _, number = entry.writer.rpartition("#")
        if writer != self.writer:
            return
        own = self._sent.pop(int(number), None)
        if own is not None:
            at = 0
            for append in own.appends:
                append.answer(bound[at : at + len(append.facts)])
                at += len(append.facts)
        for late in [sent for sent in self._sent if sent < int(number)]:
            for append in self._sent.pop(late).appends:
                self._in_doubt.pop(append.ask, None)
                append.entry = None
                if append.waiter is not None and not append.waiter.done():
                    self._enqueue(append)

    def skipped(self, number: int) -> None:
        """The store leapt over entries that were trimmed, own ones up to this number among them."""
        lost = [self._sent.pop(sent) for sent in list(self._sent) if sent <= number]
        self._standing = {offset: sent for offset, sent in self._standing.items() if sent in self._sent}
        self.fail(lost, LedgerUnavailable("the ledger was trimmed before an append was read back"))
        for entry in lost:
            for append in entry.appends:
                self._in_doubt.pop(append.ask, None)

    def fail_all(self, error: Exception) -> None:
        """Nothing more will be sent or folded."""
        appends = [append for entry in self._sent.values() for append in entry.appends]
        for append in (*appends, *self._queue):
            if append.waiter is not None and not append.waiter.done():
                append.waiter.set_exception(error)
        self._queue.clear()

    def _outdate(self, facts: tuple[AnyFact, ...]) -> None:
        """Later facts on the same matter: who appends the same as before now means it anew."""
        if not self._in_doubt:
            return
        matters = {_matter(fact) for fact in facts}
        for ask, append in list(self._in_doubt.items()):
            if append.bound is not None and not matters.isdisjoint(map(_matter, append.facts)):
                del self._in_doubt[ask]

    def _enqueue(self, append: Append) -> None:
        self._queue.append(append)
        self.wanted.set()

    def _groups(self) -> Iterable[list[Append]]:
        """Appends that can share an entry. A lease is taken in an entry of its own: if it is lost, so is the entry."""
        group: list[Append] = []
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

    def _number(self, appends: list[Append], at_ms: int) -> list[Numbered]:
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
