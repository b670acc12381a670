"""Reads all entries of a ledger, beginning with the first one, to display them. It does not create topics or write
records."""

from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import aclosing
from typing import NamedTuple

from mirrord.ledger.errors import LedgerCorrupt, LedgerUnavailable, LedgerWentBack
from mirrord.ledger.facts.core import AnyFact, Entry, Progress
from mirrord.ledger.fold import fold
from mirrord.ledger.gaps import Gaps
from mirrord.ledger.snapshot_restore import restore
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import StateRecord
from mirrord.ledger.state_topic_rows import StateTopicRows
from mirrord.ledger.store.append_queue import FactBindings
from mirrord.ledger.store.entry_gate import Admitted, EntryGate
from mirrord.ledger.store.log_interface import LedgerLog, LedgerRow, LogTrimmed
from mirrord.ledger.store.loss_detection import LedgerWatch
from mirrord.model.run_memory import ALL_OF_IT, RunMemory


class ReadEntry(NamedTuple):
    """An entry as it is stored in the ledger."""

    offset: int
    entry: Entry | LedgerCorrupt
    """The entry, or why there is none."""
    bound: FactBindings | None
    """For each fact, whether it took effect. None if this can no longer be determined, because earlier entries were
    trimmed."""
    skipped: bool
    """True if all readers skip the record: mirrord did not write it, or an operator has ordered to skip it."""
    left: int
    """Number of entries that are still to be read, among those that the ledger contained when reading began."""


class LedgerReading:
    """Reads a ledger, beginning with its first entry, and folds the entries."""

    def __init__(self, topics: LedgerLog, memory: RunMemory = ALL_OF_IT) -> None:
        self._log = topics
        self._memory = memory
        self.state = FlowState(memory=memory)
        """The state, folded up to the last entry that was read. If the first entries of the ledger were trimmed, the
        state is restored from the snapshots before the remaining entries are read."""

    async def entries(self, *, follow: bool) -> AsyncGenerator[ReadEntry]:
        """Yield all entries. If `follow` is true, continue to wait for new entries and yield them too. In this case,
        the iteration never ends.

        Raises LedgerMissing and LedgerUnavailable. Raises LogTrimmed if the ledger is trimmed faster than it is read.
        If the ledger has lost entries, raises LedgerWentBack after the last entry.
        """
        await self._log.open(create=False)
        try:
            seal = self._log.seal
            rows = StateTopicRows(self._memory, seal, self._log.state_topic)
            async for row in self._log.load_state():
                rows.take(row)
            read, ends, lost = rows.read(), await self._log.ends(), None
            try:
                await LedgerWatch(self._log).check_recorded_ends(read.records.values(), ends)
            except LedgerWentBack as error:
                lost = error
            if ends.start > 0:
                self.state = restore(read, self._memory)
            else:
                _take_source_ends(self.state, read.records.values())
            self._log.seek(ends.start)
            # Where the ledger was signed, an operator has vouched for the entries before the first signature.
            seal.adopts = seal.adopts or read.holds_snapshot
            gate = EntryGate(self._log.topic, seal, ends.start)
            while gate.read_to < ends.end or (follow and lost is None):
                for row in await self._log.read():
                    if isinstance(row, LedgerRow) and (follow or row.offset < ends.end):
                        for admitted in gate.take(row):
                            yield self._fold(admitted, ends.end, skipped=True)
                # An order to skip a record that cannot be read would follow it.
                while gate.obstacle is not None and gate.read_to >= ends.end:
                    for number, admitted in enumerate(gate.step_over()):
                        yield self._fold(admitted, ends.end, skipped=number > 0)
            if lost is not None:
                raise lost
        finally:
            await self._log.close()

    def _fold(self, admitted: Admitted, end: int, *, skipped: bool) -> ReadEntry:
        """Fold a record. `skipped` says whether all readers skip it if it holds no entry."""
        offset, entry = admitted.row.offset, admitted.entry
        left = max(0, end - offset - 1)
        if isinstance(entry, LedgerCorrupt):
            return ReadEntry(offset, entry, None, skipped, left)
        is_folded = offset < self.state.next_offset
        return ReadEntry(offset, entry, None if is_folded else fold(self.state, entry, offset), False, left)


def _take_source_ends(state: FlowState, records: Iterable[StateRecord]) -> None:
    """Take over the records with the ends of source partitions (`SourceEnds`) from the state topic. They contain the
    losses of topics that never had a lane. No entry of the ledger contains these losses."""
    for record in records:
        if isinstance(record, Progress) and record.source is not None:
            state.accept_progress(record)


async def read_gaps(reading: LedgerReading, see: Callable[[AnyFact], None] = lambda _: None) -> Gaps:
    """Read the ledger to its end and return all verdicts that the ledger still holds. `see` is called with each fact
    that took effect.

    Raises LedgerMissing and LedgerUnavailable. Raises LedgerCorrupt if an entry cannot be read, because its verdicts
    would otherwise be missing without any indication. Records that all readers skip are not included.
    """
    gaps: Gaps | None = None
    try:
        async with aclosing(reading.entries(follow=False)) as entries:
            async for read in entries:
                if gaps is None:
                    # A fact may be both in an entry and in a snapshot. Only the entry shows when the fact was recorded.
                    gaps = Gaps(reading.state)
                if isinstance(read.entry, LedgerCorrupt):
                    if read.skipped:
                        continue
                    raise read.entry
                for number, fact in enumerate(read.entry.facts):
                    if read.bound is None or read.bound[number]:
                        gaps.take(fact, read.entry.at_ms)
                        see(fact)
    except LogTrimmed:
        raise LedgerUnavailable("the ledger was trimmed while it was being read: try again") from None
    return gaps or Gaps(reading.state)
