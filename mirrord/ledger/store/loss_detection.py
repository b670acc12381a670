"""Notices that a ledger lost its end or is another topic, and keeps the proof where every later start finds it."""

import asyncio
from collections.abc import Iterable
from typing import NoReturn

from mirrord.ledger.codec import encode_state
from mirrord.ledger.errors import LedgerGone, went_back
from mirrord.ledger.facts.core import LeaseRenewed
from mirrord.ledger.log_evidence import Contradicted, Evidence, covers
from mirrord.ledger.snapshot import mark_of
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_records import LedgerMark, StateRecord, state_key
from mirrord.ledger.store.log_port import LedgerLog, LedgerRow, LogEnds, StateRow
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId

RETRY_SECONDS = 0.5


class LedgerWatch:
    """The watch over one store's ledger. If it finds a loss, it raises LedgerWentBack."""

    def __init__(self, log: LedgerLog) -> None:
        self.remembered: LedgerMark | None = None
        """How far an earlier store of this process knew the ledger to reach."""
        self._log = log
        self._saved: LedgerMark | None = None
        """The newest mark of the state topic."""
        self._evidence: Evidence | None = None
        self._lost: LedgerMark | None = None
        """The mark that proves a loss."""
        self._verified = -1
        """The newest leader epoch under which all entries read so far were confirmed to exist."""
        self._lease_epoch = 0
        self._grants: tuple[tuple[LaneId, int], ...] = ()

    @property
    def known(self) -> LedgerMark | None:
        """How far the ledger was known to reach; None if it has not been read."""
        if self._lost is not None:
            return self._lost
        return self._evidence.read if self._evidence is not None else self.remembered

    def may_save(self, mark: LedgerMark) -> bool:
        """Return whether the mark may be saved, that is, whether it does not replace one that reaches further."""
        saved = self._saved
        return saved is None or (saved.topic_id == mark.topic_id and saved.end <= mark.end)

    async def check_marks(self, records: Iterable[StateRecord], ends: LogEnds) -> None:
        """Compare the marks of the state topic with ends that were asked for after the topic was read."""
        marks = [mark for record in records if (mark := mark_of(record)) is not None]
        self._saved = max(marks, key=lambda mark: mark.end, default=None)
        self._verified = -1
        mine = self.known
        for mark in marks:
            await self._check(mark, ends)
        saved = self._saved
        # After `mirrord rebuild` the state topic names the new ledger, so everything known about the old one is void.
        rebuilt = mine is not None and saved is not None and mine.topic_id != saved.topic_id
        if mine is not None and not rebuilt:
            await self._check(mine, ends)

    def begin(self, state: FlowState, renewal: LeaseRenewed | None, ends: LogEnds) -> None:
        """Start from a state that was restored from snapshots; its tail is read next."""
        self._evidence = Evidence(ends.topic_id, state.next_offset, ends.leader_epoch)
        self._know(_end_of(ends))
        self._verified = ends.leader_epoch
        epochs = [progress.lease_epoch for progress in state.progress.values()]
        self._lease_epoch = max([*epochs, renewal.epoch if renewal is not None else 0])
        self._grants = tuple((lane, progress.grant) for lane, progress in state.progress.items())

    def check_state(self, state: FlowState) -> None:
        """Check the state after the tail was read to its end.

        Records already in the state topic depend on facts that must be in the ledger.
        """
        if self._lease_epoch > state.lease_epoch:
            self.lose(f"lacks the lease {self._lease_epoch}, under which the state topic was written")
        for lane, grant in self._grants:
            known = state.lanes.get(lane)
            if known is not None and grant > known.grant:
                name = f"{known.source_topic}-{known.partition}"
                self.lose(f"lacks grant {grant} of {name}, under which the state topic was written")

    async def ends(self, acknowledged: int) -> LogEnds:
        """Ask for the ends of both topics. Appends of this store are known to reach up to `acknowledged`."""
        evidence = self._evidence
        if evidence is None:
            raise RuntimeError("the store is not open")
        read, end = evidence.read, max(evidence.end, acknowledged)
        ends = await self._log.ends()
        if evidence is not self._evidence:  # meanwhile entries were trimmed and the snapshots loaded again
            return ends
        await self._check(read, ends)
        if ends.end < end:
            self.lose(_too_short(ends, end), LedgerMark(read.topic_id, end, read.leader_epoch))
        self._verified = max(self._verified, ends.leader_epoch)
        self._know(_end_of(ends))
        return ends

    def take(self, row: LedgerRow) -> None:
        """Process the next entry."""
        if self._evidence is None:
            raise RuntimeError("the store is not open")
        try:
            self._evidence.take(row.offset, row.leader_epoch)
        except Contradicted as contradicted:
            self.lose(_lost_below(contradicted.mark), contradicted.mark)

    def hear(self, record: StateRecord) -> None:
        """Process a record of the state topic."""
        mark = mark_of(record)
        if mark is None:
            return
        if isinstance(record, LedgerMark) or self._saved is None or mark.end > self._saved.end:
            self._saved = mark
        self._know(mark)

    def replaced(self, offset: int) -> NoReturn:
        """Report a loss: another entry is at an offset where an entry of this store was acknowledged."""
        mark = self._evidence.replaced(offset) if self._evidence is not None else None
        self.lose(f"lost an entry that was acknowledged at offset {offset}", mark)

    def lose(self, what: str, mark: LedgerMark | None = None) -> NoReturn:
        """Raise LedgerWentBack. `mark` proves the loss; by default it is how far the ledger was read."""
        self.note_loss(mark)
        raise went_back(self._log.topic, what)

    def note_loss(self, mark: LedgerMark | None = None) -> None:
        """Record that the ledger lacks something."""
        if self._lost is None:
            self._lost = mark if mark is not None else self.known

    async def keep_proof(self) -> None:
        """Save the proof of a loss to the state topic, unless its mark proves the loss already or names another
        ledger.
        """
        lost, saved = self._lost, self._saved
        if lost is None or (saved is not None and (covers(saved, lost) or saved.topic_id != lost.topic_id)):
            return
        while True:
            try:
                # The mark that was read last may be older than `mirrord rebuild`. It names the ledger that it was saved
                # for, so once that topic is gone no further proof is needed.
                if saved is not None and await self._is_another(lost):
                    return
                await self._log.save([StateRow(state_key(lost), encode_state(lost))])
            except EnvironmentFault:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def _is_another(self, mark: LedgerMark) -> bool:
        """Return whether the ledger topic of a mark was deleted."""
        try:
            return (await self._log.ends()).topic_id != mark.topic_id
        except LedgerGone:
            return True

    def _know(self, mark: LedgerMark) -> None:
        if self._evidence is None:
            return
        try:
            self._evidence.know(mark)
        except Contradicted:
            is_same = mark.topic_id == self._evidence.read.topic_id
            self.lose(_lost_below(mark) if is_same else "is being rebuilt, or was rebuilt", mark)

    async def _check(self, mark: LedgerMark, ends: LogEnds) -> None:
        if mark.topic_id != ends.topic_id:
            self.lose("was deleted and created again", mark)
        if ends.end < mark.end:
            self.lose(_too_short(ends, mark.end), mark)
        if ends.leader_epoch > max(mark.leader_epoch, self._verified):
            end = await self._log.epoch_end(mark.leader_epoch)
            if 0 <= end < mark.end:
                self.lose(_lost_below(mark), mark)


def _end_of(ends: LogEnds) -> LedgerMark:
    return LedgerMark(ends.topic_id, ends.end, ends.leader_epoch)


def _too_short(ends: LogEnds, end: int) -> str:
    return f"ends at offset {ends.end} but reached {end} before"


def _lost_below(mark: LedgerMark) -> str:
    return f"lost what it held below offset {mark.end} when its leader changed"
