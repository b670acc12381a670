"""The contents of the state topic: the newest record of each key, and the keys of the snapshots in the topic."""

from collections.abc import Mapping
from typing import NamedTuple

from mirrord.kafka.protocol.crc32c import checksum
from mirrord.ledger.codec import decode_state, foreign
from mirrord.ledger.errors import LedgerCorrupt, NotOurs, NotSigned, TooNew, UnknownKey
from mirrord.ledger.state_topic_records import (
    PACKED,
    RUNS_KEY,
    SNAPSHOT_KINDS,
    FlowSnapshot,
    LaneSnapshot,
    RunsPiece,
    StateRecord,
    first_ordinal,
    kind_of,
)
from mirrord.ledger.store.log_interface import StateRow
from mirrord.ledger.store.seal import NO_SEAL, Seal
from mirrord.model.run_memory import ALL_OF_IT, PackedPiece, RunMemory

MOST_FOREIGN, LONGEST_FOREIGN = 1_000, 256
"""Maximum number of keys of records that mirrord did not write, and of characters of such a key, that are reported."""


class KeptLane(NamedTuple):
    """Properties of a lane's snapshot record in the state topic. The record is written again only if `changed_at` or
    `first_ordinals` has changed."""

    changed_at: int
    first_ordinals: tuple[int, int]
    source_pieces: tuple[str, ...]
    target_pieces: tuple[str, ...]


class Kept:
    """The keys of the snapshots in the state topic. Every process that reads or writes the topic has a `Kept` object
    and keeps it up to date."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.lanes: dict[str, KeptLane] = {}

    def note(self, key: str, record: StateRecord | None) -> None:
        """Process a record that was written under a key. If `record` is None, the record with this key was removed.
        Records that are not part of a snapshot are ignored."""
        if kind_of(key) not in SNAPSHOT_KINDS:
            return
        self.lanes.pop(key, None)
        if record is None:
            self.keys.discard(key)
            return
        self.keys.add(key)
        if isinstance(record, LaneSnapshot):
            self.lanes[key] = KeptLane(
                record.changed_at,
                (first_ordinal(record.source_runs), first_ordinal(record.target_runs)),
                record.source_runs.pieces,
                record.target_runs.pieces,
            )


class NothingKept(Kept):
    """The `Kept` object of a process that never writes snapshots. It stays empty, which saves memory."""

    def note(self, key: str, record: StateRecord | None) -> None:
        """Ignore a record."""


class _Former(Exception):
    """Raised for a record without a signature that was written before the ledger was signed."""


class StateTopicRows:
    """Collects the newest record of each key while the state topic is read. When a record contains packed runs, the
    runs are passed to `RunMemory`, which keeps them in memory or in a file."""

    def __init__(self, memory: RunMemory = ALL_OF_IT, seal: Seal = NO_SEAL, topic: str = "") -> None:
        """Begin without any. `topic` is the name of the state topic, for error messages."""
        self._memory = memory
        self._topic = topic
        self._seal = seal
        self._is_signed = False
        self._unproven: LedgerCorrupt | None = None
        """Why a snapshot of the flow was skipped: it has no signature, or its key is not configured."""
        self._rows: dict[str, StateRow] = {}
        self._pieces: dict[str, PackedPiece] = {}
        self.foreign: dict[str, NotOurs] = {}
        """Why records were skipped, by their keys. mirrord did not write them, so whoever did may have written any
        number of them, with long keys: only some keys are kept, and only their beginnings."""

    def take(self, row: StateRow) -> None:
        """Add the next record. A record without a value removes its key. A record that mirrord did not write is
        skipped, so that the previous record with this key stays in force until compaction removes it."""
        key, value = row.key, row.value
        try:
            value = value if value is None else self._proven(key, value)
        except NotOurs as why:
            if len(self.foreign) < MOST_FOREIGN:
                self.foreign[key[:LONGEST_FOREIGN]] = why
            return
        except _Former:
            return
        self.foreign.pop(key[:LONGEST_FOREIGN], None)
        self._rows.pop(key, None)
        if value is None:
            self._pieces.pop(key, None)
        elif key not in self._pieces and not (key.startswith(f"{RUNS_KEY}/") and self._keep(key, value)):
            self._rows[key] = row._replace(value=value)

    def _proven(self, key: str, value: bytes) -> bytes:
        """Return the record without its signature. Raises NotOurs if it has to be skipped and reported, and `_Former`
        if it has to be skipped because it is older than the signatures."""
        try:
            proven = self._seal.row(key, value)
        except (NotSigned, UnknownKey) as why:
            if key.startswith("flow/"):
                self._unproven = why
            if isinstance(why, NotSigned) and not self._is_signed:
                raise _Former from None
            raise NotOurs(str(why)) from None
        self._is_signed = self._is_signed or self._seal.is_used
        if (why := foreign(key, proven)) is not None:
            raise why
        return proven

    def _keep(self, key: str, value: bytes) -> bool:
        """Keep the piece if the record is valid, and return whether it is valid. An invalid piece is reported only when
        a snapshot refers to it."""
        try:
            record = decode_state(key, value)
            if not isinstance(record, RunsPiece) or record.form != PACKED or checksum(record.packed) != record.checksum:
                return False
            piece = self._pieces[key] = self._memory.keep(record.packed)
        except (LedgerCorrupt, ValueError):
            return False
        piece.checksum = record.checksum
        return True

    def read(self) -> "StateTopicContents":
        """Return all collected records in decoded form. Raises LedgerCorrupt. Raises NotSigned or UnknownKey if the
        only snapshots have no valid signature."""
        if self._unproven is not None and not any(key.startswith("flow/") for key in self._rows):
            raise self._unproven
        records = {key: decode_row(row, row.value or b"", self._topic) for key, row in self._rows.items()}
        return StateTopicContents(records, self._pieces)


def decode_row(row: StateRow, proven: bytes, topic: str) -> StateRecord:
    """Return the record in a row of the state topic with this name; `proven` is the row's value without its signature.
    Raises LedgerCorrupt, with the command that helps if a record cannot be read."""
    try:
        return decode_state(row.key, proven)
    except (NotOurs, TooNew):
        raise
    except LedgerCorrupt as error:
        command = f"mirrord ledger skip --state --offset {row.offset}"
        raise LedgerCorrupt(f"{topic}, offset {row.offset}: {error}; `{command}` skips exactly this record") from None


class StateTopicContents(NamedTuple):
    """The contents of the state topic, by key."""

    records: Mapping[str, StateRecord]
    pieces: Mapping[str, PackedPiece] = {}
    """The pieces of packed runs. Pieces in an older form are among `records`."""

    @property
    def holds_snapshot(self) -> bool:
        """Whether there is a snapshot of the flow."""
        return any(isinstance(record, FlowSnapshot) for record in self.records.values())

    def kept(self, former: Kept) -> Kept:
        """Return which of these records belong to a snapshot: their keys, and the properties of each lane's record. If
        `former` is a `NothingKept`, the result is one, too."""
        kept = type(former)()
        if isinstance(kept, NothingKept):
            return kept
        kept.keys.update(self.pieces)
        for key, record in self.records.items():
            kept.note(key, record)
        return kept
