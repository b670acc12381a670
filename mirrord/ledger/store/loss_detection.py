"""Detects that a ledger topic has lost entries or was deleted and re-created.

The state topic records ends of the ledger: how far the ledger was known to extend at a given time (`LedgerEnd`). A
recorded end proves a loss if the ledger later does not contain all entries below it. The recorded end that proves a
loss is saved in the state topic, so that processes that are started later also detect the loss.
"""

import asyncio
from collections.abc import Iterable
from typing import NoReturn

from mirrord.ledger.codec import encode_state
from mirrord.ledger.errors import LedgerGone, went_back
from mirrord.ledger.facts.core import LeaseRenewed
from mirrord.ledger.log_evidence import Contradicted, Evidence, covers
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import LedgerEnd, StateRecord, recorded_end, state_key
from mirrord.ledger.store.log_interface import LedgerLog, LedgerRow, LogEnds, StateRow
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import LaneId

RETRY_SECONDS = 0.5


class LedgerWatch:
    """Detects losses in the ledger of one store. Its methods raise LedgerWentBack if they find a loss."""

    def __init__(self, log: LedgerLog) -> None:
        self.remembered: LedgerEnd | None = None
        """How far the ledger extended according to an earlier store of this process; None if there was none."""
        self._log = log
        self._saved: LedgerEnd | None = None
        """The newest end that the state topic records."""
        self._evidence: Evidence | None = None
        self._lost: LedgerEnd | None = None
        """The recorded end that proves a loss; None if no loss has been found."""
        self._verified = -1
        """The newest leader epoch at which a check has found no loss. The same epoch is not checked again."""
        self._lease_epoch = 0
        self._grants: tuple[tuple[LaneId, int], ...] = ()

    @property
    def known(self) -> LedgerEnd | None:
        """The end of the part of the ledger that has been read. Before the ledger is read, this is the value of
        `remembered`. After a loss has been found, it is the recorded end that proves the loss."""
        if self._lost is not None:
            return self._lost
        return self._evidence.read if self._evidence is not None else self.remembered

    def may_save(self, recorded: LedgerEnd) -> bool:
        """Return whether this end may be recorded in the state topic. It must not replace a recorded end that is higher
        or belongs to a different ledger topic."""
        saved = self._saved
        return saved is None or (saved.topic_id == recorded.topic_id and saved.end <= recorded.end)

    async def check_recorded_ends(self, records: Iterable[StateRecord], ends: LogEnds) -> None:
        """Check whether the ledger has lost entries. `ends` are the ends of the topics that the brokers reported after
        the state topic was read. They are compared with every end that the state topic records, and with `known`."""
        recorded_ends = [recorded for record in records if (recorded := recorded_end(record)) is not None]
        self._saved = max(recorded_ends, key=lambda recorded: recorded.end, default=None)
        self._verified = -1
        mine = self.known
        for recorded in recorded_ends:
            await self._check(recorded, ends)
        saved = self._saved
        # After `mirrord rebuild`, the state topic names the new ledger. Information about the old ledger then no longer
        # applies.
        rebuilt = mine is not None and saved is not None and mine.topic_id != saved.topic_id
        if mine is not None and not rebuilt:
            await self._check(mine, ends)

    def begin(self, state: FlowState, renewal: LeaseRenewed | None, ends: LogEnds) -> None:
        """Start from a state that was restored from snapshots. The entries after the snapshots are read next."""
        self._evidence = Evidence(ends.topic_id, state.next_offset, ends.leader_epoch)
        self._know(_end_of(ends))
        self._verified = ends.leader_epoch
        epochs = [progress.lease_epoch for progress in state.progress.values()]
        self._lease_epoch = max([*epochs, renewal.epoch if renewal is not None else 0])
        self._grants = tuple((lane, progress.grant) for lane, progress in state.progress.items())

    def check_state(self, state: FlowState) -> None:
        """Check the state after the ledger has been read to its end.

        The state must contain the lease and the grants under which records of the state topic were written.
        """
        if self._lease_epoch > state.lease_epoch:
            self.lose(f"lacks the lease {self._lease_epoch}, under which the state topic was written")
        for lane, grant in self._grants:
            known = state.lanes.get(lane)
            if known is not None and grant > known.grant:
                name = f"{known.source_topic}-{known.partition}"
                self.lose(f"lacks grant {grant} of {name}, under which the state topic was written")

    async def ends(self, acknowledged: int) -> LogEnds:
        """Return the bounds of the ledger topic and the end of the state topic. The ledger must extend at least to
        `acknowledged`, the end of this store's acknowledged appends."""
        evidence = self._evidence
        if evidence is None:
            raise RuntimeError("the store is not open")
        read, end = evidence.read, max(evidence.end, acknowledged)
        ends = await self._log.ends()
        if evidence is not self._evidence:  # in the meantime, entries were trimmed and the snapshots were reloaded
            return ends
        await self._check(read, ends)
        if ends.end < end:
            self.lose(_too_short(ends, end), LedgerEnd(read.topic_id, end, read.leader_epoch))
        self._verified = max(self._verified, ends.leader_epoch)
        self._know(_end_of(ends))
        return ends

    def take(self, row: LedgerRow) -> None:
        """Check that the next entry does not contradict the known leader epochs and recorded ends."""
        if self._evidence is None:
            raise RuntimeError("the store is not open")
        try:
            self._evidence.take(row.offset, row.leader_epoch)
        except Contradicted as contradicted:
            self.lose(_lost_below(contradicted.recorded), contradicted.recorded)

    def hear(self, record: StateRecord) -> None:
        """Process a record of the state topic, because it may show how far the ledger extended when it was written."""
        recorded = recorded_end(record)
        if recorded is None:
            return
        if isinstance(record, LedgerEnd) or self._saved is None or recorded.end > self._saved.end:
            self._saved = recorded
        self._know(recorded)

    def replaced(self, offset: int) -> NoReturn:
        """Report a loss: the ledger holds a different entry at the offset at which an entry of this store was
        acknowledged."""
        proof = self._evidence.replaced(offset) if self._evidence is not None else None
        self.lose(f"lost an entry that was acknowledged at offset {offset}", proof)

    def lose(self, what: str, proof: LedgerEnd | None = None) -> NoReturn:
        """Raise LedgerWentBack. `what` describes the loss, and `proof` is the recorded end that proves it. By default,
        `proof` is the end of the part of the ledger that was read."""
        self.note_loss(proof)
        raise went_back(self._log.topic, what)

    def note_loss(self, proof: LedgerEnd | None = None) -> None:
        """Remember that the ledger has lost entries, and remember `proof`, the recorded end that proves the loss. By
        default, `proof` is the end of the part of the ledger that was read, as in `lose`."""
        if self._lost is None:
            self._lost = proof if proof is not None else self.known

    async def keep_proof(self) -> None:
        """In the state topic, save the recorded end that proves a loss. Retry until this succeeds. Do nothing if the
        state topic already records an end that proves the loss, or an end of a different ledger topic."""
        lost, saved = self._lost, self._saved
        if lost is None or (saved is not None and (covers(saved, lost) or saved.topic_id != lost.topic_id)):
            return
        while True:
            try:
                # The recorded end may have been read before a `mirrord rebuild`. The proof concerns one ledger topic,
                # so it is not needed once this topic has been deleted.
                if saved is not None and await self._is_another(lost):
                    return
                await self._log.save([StateRow(state_key(lost), encode_state(lost))])
            except EnvironmentFault:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    async def _is_another(self, recorded: LedgerEnd) -> bool:
        """Return whether the ledger topic to which a recorded end belongs no longer exists. A topic that was created
        again under the same name is a different topic."""
        try:
            return (await self._log.ends()).topic_id != recorded.topic_id
        except LedgerGone:
            return True

    def _know(self, recorded: LedgerEnd) -> None:
        if self._evidence is None:
            return
        try:
            self._evidence.know(recorded)
        except Contradicted:
            is_same = recorded.topic_id == self._evidence.read.topic_id
            self.lose(_lost_below(recorded) if is_same else "is being rebuilt, or was rebuilt", recorded)

    async def _check(self, recorded: LedgerEnd, ends: LogEnds) -> None:
        if recorded.topic_id != ends.topic_id:
            self.lose("was deleted and re-created", recorded)
        if ends.end < recorded.end:
            self.lose(_too_short(ends, recorded.end), recorded)
        if ends.leader_epoch > max(recorded.leader_epoch, self._verified):
            end = await self._log.epoch_end(recorded.leader_epoch)
            if 0 <= end < recorded.end:
                self.lose(_lost_below(recorded), recorded)


def _end_of(ends: LogEnds) -> LedgerEnd:
    return LedgerEnd(ends.topic_id, ends.end, ends.leader_epoch)


def _too_short(ends: LogEnds, end: int) -> str:
    return f"ends at offset {ends.end} but reached {end} before"


def _lost_below(recorded: LedgerEnd) -> str:
    return f"lost what it held below offset {recorded.end} when its leader changed"
