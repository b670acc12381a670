"""Decides which records of the ledger topic are folded, and which are skipped.

A record that mirrord did not write is skipped and reported. A record that has mirrord's form but cannot be read stops
every reader, because it may hold facts that matter. It is skipped only if an operator has ordered so for exactly its
offset (`RecordSkipped`). The order follows the record, so a reader that opens the ledger first reads on to the
current end. A record of a newer version of mirrord is never skipped.
"""

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

import structlog

from mirrord.ledger.codec import SIGNED, decode_entry
from mirrord.ledger.errors import LedgerCorrupt, NotOurs, NotSigned, SignedLedger, TooNew, UnknownKey
from mirrord.ledger.facts.commands import RecordSkipped
from mirrord.ledger.facts.core import Entry
from mirrord.ledger.state_topic_rows import MOST_FOREIGN
from mirrord.ledger.store.log_interface import LedgerRow
from mirrord.ledger.store.seal import Seal

NOTHING = Entry(-1, 0, ())
"""What is folded in place of a skipped record."""

log = structlog.get_logger()


class Admitted(NamedTuple):
    """A record of the ledger topic whose turn has come."""

    row: LedgerRow
    entry: Entry | LedgerCorrupt
    """The entry to fold, or the reason why the record is skipped."""


class EntryGate:
    """Passes the records of one ledger topic on, in order. While a record cannot be read, the records after it wait."""

    def __init__(self, topic: str, seal: Seal, position: int = 0, *, is_signed: bool = False) -> None:
        """Begin at the ledger offset `position`. `is_signed`: the ledger is known to be signed from there on."""
        self.position = position
        """The offset after the last record that was passed on."""
        self._topic = topic
        self._waiting: deque[LedgerRow] = deque()
        self._ordered: set[int] = set()
        self._obstacle: LedgerCorrupt | None = None
        self._seal = seal
        self._is_signed = is_signed

    @property
    def read_to(self) -> int:
        """The offset after the last record that was taken."""
        return self._waiting[-1].offset + 1 if self._waiting else self.position

    @property
    def obstacle(self) -> LedgerCorrupt | None:
        """Why the first of the waiting records cannot be read; None if no record waits."""
        return self._obstacle

    def take(self, row: LedgerRow) -> list[Admitted]:
        """Take the next record, and return the records whose turn has come. Raises LedgerCorrupt if records are
        missing before it. A record that was taken before is ignored."""
        if row.offset < self.read_to:
            return []
        if row.offset > self.read_to:
            raise LedgerCorrupt(f"{self._topic} lacks the offsets {self.read_to} to {row.offset - 1}")
        if self._waiting:
            self._ordered.update(orders_in(row, self._seal))
        self._waiting.append(row)
        return list(self._pass_on())

    def check(self) -> None:
        """Raise LedgerCorrupt if a record waits."""
        obstacle = self._obstacle
        if obstacle is None:
            return
        where = f"{self._topic}, offset {self.position}: {obstacle}"
        if isinstance(obstacle, TooNew):
            raise TooNew(f"{where}; start the newer version")
        if isinstance(obstacle, NotSigned | SignedLedger):
            raise type(obstacle)(where)
        kind = UnknownKey if isinstance(obstacle, UnknownKey) else LedgerCorrupt
        raise kind(f"{where}; `mirrord ledger skip --offset {self.position}` skips exactly this record")

    def step_over(self) -> list[Admitted]:
        """Return the waiting record as one that is skipped, and the records after it that can then be passed on. Only a
        reader that shows the ledger may do this."""
        if self._obstacle is None:
            return []
        row = self._waiting.popleft()
        over = Admitted(row, self._obstacle)
        self.position, self._obstacle = row.offset + 1, None
        return [over, *self._pass_on()]

    def _pass_on(self) -> Iterator[Admitted]:
        self._obstacle = None
        while self._waiting:
            row = self._waiting[0]
            try:
                entry: Entry | LedgerCorrupt = self._decode(row)
            except NotOurs as error:
                if isinstance(error, NotSigned) and not self._is_signed:
                    self._obstacle = error
                    return
                entry = error
            except LedgerCorrupt as error:
                if isinstance(error, TooNew | SignedLedger) or row.offset not in self._ordered:
                    self._obstacle = error
                    return
                entry = error
            self._waiting.popleft()
            self.position = row.offset + 1
            yield Admitted(row, entry)

    def _decode(self, row: LedgerRow) -> Entry:
        entry = decode_entry(self._seal.entry(row.value))
        if row.value and row.value[0] == SIGNED:
            self._is_signed = True
            # What precedes the first signature may be accepted without one, but nothing after it.
            self._seal.adopts = False
        return entry


def orders_in(row: LedgerRow, seal: Seal) -> list[int]:
    """Return the offsets that an entry orders to be skipped."""
    try:
        entry = decode_entry(seal.entry(row.value))
    except LedgerCorrupt:
        return []
    return [fact.offset for fact in entry.facts if isinstance(fact, RecordSkipped)]


class SkippedRecords:
    """The records of both topics that one store has skipped."""

    def __init__(self, topic: str, *, reports: bool) -> None:
        """Begin without any. `reports`: whether this store logs them. One process per flow does."""
        self._topic = topic
        self._reports = reports
        self._entries = 0
        self._seen_to = 0
        self._keys: dict[str, None] = {}
        self._range: tuple[int, int] | None = None
        self._why = ""

    @property
    def count(self) -> int:
        """The number of skipped records in the part of the topics that this store has read."""
        return self._entries + len(self._keys)

    def skip_entry(self, offset: int, why: LedgerCorrupt) -> None:
        """Note a record of the ledger topic."""
        if offset < self._seen_to:
            return
        self._seen_to = offset + 1
        self._entries += 1
        if self._range is not None and self._range[1] != offset:
            self.report()
        first = self._range[0] if self._range is not None else offset
        self._range, self._why = (first, offset + 1), self._why or str(why)

    def skip_row(self, key: str, why: LedgerCorrupt) -> None:
        """Note a record of the state topic."""
        if key in self._keys or len(self._keys) >= MOST_FOREIGN:
            return
        self._keys[key] = None
        if self._reports:
            log.warning("state_record_skipped", topic=self._topic, key=key, reason=str(why))

    def report(self) -> None:
        """Log the range of skipped entries that has not been logged yet."""
        if self._range is not None and self._reports:
            first, end = self._range
            log.warning("ledger_records_skipped", topic=self._topic, first=first, last=end - 1, reason=self._why)
        self._range, self._why = None, ""

    def remark(self) -> str:
        """Return one line for operators; empty if nothing was skipped."""
        if not self.count:
            return ""
        records = "1 record" if self.count == 1 else f"{self.count} records"
        return f"{records} in the ledger's topics skipped, which mirrord did not write: only mirrord should write there"
