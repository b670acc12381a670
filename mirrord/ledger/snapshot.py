"""Snapshots of the folded ledger. At startup, a process reads them and only the entries after them.

A cut is written in three steps, in this order: pieces of runs, lanes, and then the flow. The flow record makes the cut
valid. A crash in between leaves the former cut and some newer lanes. This is readable, because a lane's record says up
to which entry it was folded, and the records that it refers to are removed only after a complete newer cut exists.

The older runs of a lane are also packed into pieces in memory (`Runs.pieces`), and each of these is written once. The
key of a piece identifies its content. If a lane takes back runs that a piece holds, this is detected, and only the
pieces that differ are written again.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from itertools import chain, islice
from typing import NamedTuple

from mirrord.kafka.protocol.crc32c import checksum
from mirrord.ledger.codec import decode_state
from mirrord.ledger.errors import LedgerCorrupt
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.standing_orders import Orders
from mirrord.ledger.start_offsets import note_all_begun
from mirrord.ledger.state import FlowState, LaneState, VerdictTally
from mirrord.ledger.state_topic_records import (
    RUNS_KEY,
    FlowSnapshot,
    LaneSnapshot,
    LedgerEnd,
    RunsPiece,
    RunsSnapshot,
    Snapshot,
    StateRecord,
    Tenure,
    flow_key,
    lane_key,
    runs_key,
)
from mirrord.model.archived_runs import ArchivedPart, ArchivedRuns
from mirrord.model.names import LaneId, LaneKey, Side, TopicId
from mirrord.model.packed_runs import Packed
from mirrord.model.run_memory import ALL_OF_IT, PackedPiece, RunMemory
from mirrord.model.runs import Runs

COLUMNS, PACKED = 0, 1
"""The forms of runs in the state topic (`RunsPiece.form`). Only the newer form is written."""


class KeptLane(NamedTuple):
    """What is known about a lane's record in the state topic."""

    changed_at: int
    first_ordinals: tuple[int, int]
    source_pieces: tuple[str, ...]
    target_pieces: tuple[str, ...]


class Kept:
    """The snapshots in the state topic, kept current by every reader and writer of the topic."""

    def __init__(self) -> None:
        self.keys: set[str] = set()
        self.lanes: dict[str, KeptLane] = {}

    def note(self, key: str, record: StateRecord | None) -> None:
        """Note that a record was written under a key, or removed (None). Records that are not snapshots are ignored."""
        if key.partition("/")[0] not in {"flow", "lane", RUNS_KEY}:
            return
        self.lanes.pop(key, None)
        if record is None:
            self.keys.discard(key)
            return
        self.keys.add(key)
        if isinstance(record, LaneSnapshot):
            self.lanes[key] = KeptLane(
                record.changed_at,
                (_first_ordinal(record.source_runs), _first_ordinal(record.target_runs)),
                record.source_runs.pieces,
                record.target_runs.pieces,
            )


class PieceOfLane(NamedTuple):
    """A piece that is to be written. Until then its data stays where it is stored."""

    lane: LaneId
    side: Side
    piece: PackedPiece

    def record(self, tenure: Tenure) -> RunsPiece:
        """Return the record that is written for the piece."""
        piece = self.piece
        return RunsPiece(
            lease_epoch=tenure.lease_epoch,
            lane=self.lane,
            side=self.side,
            first=piece.first_ordinal,
            count=piece.count,
            checksum=_checksum(piece),
            packed=piece.packed,
            form=PACKED,
            turn=tenure.turn,
        )


class SnapshotCut(NamedTuple):
    """A consistent cut: the records to be written, in this order, and the keys that a reader needs afterwards."""

    tenure: Tenure
    offset: int
    pieces: tuple[PieceOfLane, ...]
    lanes: tuple[LaneSnapshot, ...]
    flow: FlowSnapshot
    """The flow's record, which is written last and on its own."""
    keys: frozenset[str]

    @property
    def records(self) -> list[Snapshot]:
        """All records of the cut."""
        return [*(record for records in self.groups(1) for record in records), self.flow]

    def groups(self, count: int) -> Iterator[list[RunsPiece | LaneSnapshot]]:
        """Yield all records except the flow's, in lists of up to `count`. Pieces are loaded only at that point, because
        all of them together may be large."""
        pieces = (piece.record(self.tenure) for piece in self.pieces)
        records = chain[RunsPiece | LaneSnapshot](pieces, self.lanes)
        while group := list(islice(records, count)):
            yield group

    def stale(self, kept: Kept) -> list[str]:
        """Return the keys that may be removed once the cut is complete. Keys that a later holder has written in the
        meantime are not among them."""
        return sorted(key for key in kept.keys - self.keys if Tenure.of_key(key) <= self.tenure)


def snapshots(state: FlowState, kept: Kept, ledger: LedgerEnd) -> SnapshotCut:
    """Return the cut at the state's current position. Records that are unchanged in the state topic are not written
    again."""
    pieces: list[PieceOfLane] = []
    lanes: list[LaneSnapshot] = []
    keys: set[str] = set()
    for lane_id, lane in state.lanes.items():
        key = lane_key(state.tenure, lane_id)
        keys.add(key)
        old = kept.lanes.get(key)
        if old is None or old[:2] != (lane.changed_at, _first_ordinals(lane)):
            new, record = _snapshot_lane(state, lane_id, lane, old)
            pieces.extend(new)
            lanes.append(record)
            keys.update(record.source_runs.pieces, record.target_runs.pieces)
        else:
            keys.update(old.source_pieces, old.target_pieces)
    flow = FlowSnapshot(
        lease_epoch=state.lease_epoch,
        cut=state.next_offset,
        flow=state.flow,
        source_cluster=state.source_cluster,
        target_cluster=state.target_cluster,
        holder=state.holder,
        ttl_ms=state.ttl_ms,
        released=state.released,
        topics=tuple(state.topics.values()),
        lanes=len(state.lanes),
        writers=dict(state.writers),
        ledger=ledger,
        probed=state.probed,
        acls=tuple(sorted(state.acls)),
        planned_acls=tuple(sorted(state.planned_acls)),
        turn=state.tenure.turn,
        orders=state.orders.facts(),
        forgotten_topics=tuple(state.forgotten_topics),
        forgotten_copies=tuple(sorted({LaneKey.parse(lane).topics for lane in state.forgotten_lanes})),
        compaction=state.compaction,
        named=tuple(state.named.values()),
        jobs=tuple(state.jobs.values()),
        keeps_starts=state.keeps_starts,
        selected=state.selected,
        starts=tuple(state.starts.values()),
    )
    keys.add(flow_key(state.tenure))
    return SnapshotCut(state.tenure, state.next_offset, tuple(pieces), tuple(lanes), flow, frozenset(keys))


class StateTopicRows:
    """The state topic as it is read: the newest row of each key. Packed runs are moved row by row to where `RunMemory`
    has room."""

    def __init__(self, memory: RunMemory = ALL_OF_IT) -> None:
        self._memory = memory
        self._rows: dict[str, bytes] = {}
        self._pieces: dict[str, PackedPiece] = {}

    def take(self, key: str, value: bytes | None) -> None:
        """Take in the next row."""
        self._rows.pop(key, None)
        if value is None:
            self._pieces.pop(key, None)
        elif key not in self._pieces and not (key.startswith(f"{RUNS_KEY}/") and self._keep(key, value)):
            self._rows[key] = value

    def _keep(self, key: str, value: bytes) -> bool:
        """Return whether the row was a valid piece. An invalid piece is reported when something refers to it."""
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
        """Return all rows, decoded. Raises LedgerCorrupt."""
        return StateTopicContents({key: decode_state(key, value) for key, value in self._rows.items()}, self._pieces)


class StateTopicContents(NamedTuple):
    """The contents of the state topic, by key."""

    records: Mapping[str, StateRecord]
    pieces: Mapping[str, PackedPiece] = {}
    """Pieces of packed runs. Pieces that are not here are among the records."""

    def kept(self) -> Kept:
        """Return the snapshots in the state topic."""
        kept = Kept()
        kept.keys.update(self.pieces)
        for key, record in self.records.items():
            kept.note(key, record)
        return kept


def restore(read: StateTopicContents, memory: RunMemory = ALL_OF_IT) -> FlowState:
    """Return the state of the newest valid cut, with the progress records. It is empty and at offset 0 if there is no
    cut.

    Lanes that are newer than the cut keep their state and skip the entries that they have already folded. Raises
    LedgerCorrupt if a part of the cut is missing.
    """
    records = read.records
    flows = [record for record in records.values() if isinstance(record, FlowSnapshot)]
    flow = max(flows, key=lambda record: (record.cut, record.lease_epoch, record.turn), default=None)
    state = FlowState() if flow is None else _restore_flow(flow)
    state.memory = memory
    forgotten = set(flow.forgotten_copies) if flow else set[tuple[TopicId, TopicId]]()
    for record in records.values():
        if flow and forgotten and isinstance(record, Progress | LaneSnapshot) and _topics_of(record.lane) in forgotten:
            state.forgotten_lanes[record.lane] = flow.cut - 1
        elif isinstance(record, Progress):
            state.accept_progress(record)
        elif flow and isinstance(record, LaneSnapshot) and written_under(record) == written_under(flow):
            state.lanes[record.lane] = _restore_lane(record, read, memory)
    if flow and len(state.lanes) < flow.lanes:
        raise LedgerCorrupt(
            f"the snapshot at ledger offset {flow.cut} has {flow.lanes} lanes, found {len(state.lanes)}"
        )
    note_all_begun(state)
    return state


def written_under(record: FlowSnapshot | LaneSnapshot) -> Tenure:
    """Return the tenure of the holder that wrote the record."""
    return Tenure(record.lease_epoch, record.turn)


def recorded_end(record: StateRecord) -> LedgerEnd | None:
    """Return how far the ledger reached according to a record of the state topic."""
    if isinstance(record, FlowSnapshot):
        return record.ledger
    return record if isinstance(record, LedgerEnd) else None


def _topics_of(lane: LaneId) -> tuple[TopicId, TopicId]:
    try:
        return LaneKey.parse(lane).topics
    except ValueError as error:
        raise LedgerCorrupt(f"the state topic holds a record of an impossible lane: {error}") from None


def _snapshot_lane(
    state: FlowState, lane_id: LaneId, lane: LaneState, old: KeptLane | None
) -> tuple[list[PieceOfLane], LaneSnapshot]:
    tenure = state.tenure
    source, source_runs = _split(tenure, lane_id, "source", lane.source_runs, old.source_pieces if old else ())
    target, target_runs = _split(tenure, lane_id, "target", lane.target_runs, old.target_pieces if old else ())
    return [*source, *target], LaneSnapshot(
        lease_epoch=tenure.lease_epoch,
        folded_to=state.next_offset,
        changed_at=lane.changed_at,
        lane=lane_id,
        source_topic=lane.source_topic,
        target_topic=lane.target_topic,
        producer_id=lane.producer_id,
        producer_epoch=lane.producer_epoch,
        policy=lane.policy,
        mode=lane.mode,
        grant=lane.grant,
        replicator=lane.replicator,
        source_runs=source_runs,
        target_runs=target_runs,
        verdict_counts=dict(lane.verdicts.counts),
        recent_verdicts=tuple(lane.verdicts.recent),
        holes=lane.holes,
        halted=lane.halted,
        last_check=lane.last_check,
        inherited=lane.inherited,
        cuts=lane.truncations,
        epochs=lane.epochs,
        audited=lane.audited,
        turn=tenure.turn,
        quarantine=lane.quarantine,
        retold=lane.retold,
        regiven=lane.regiven,
        rewinds=lane.rewinds,
        seeks=lane.seeks,
        opened_at=lane.opened_at,
        repaired=lane.repaired,
        times=lane.times,
    )


def _split(
    tenure: Tenure, lane: LaneId, side: Side, runs: Runs, old_pieces: tuple[str, ...]
) -> tuple[list[PieceOfLane], RunsSnapshot]:
    """Return the pieces that have to be written, and the snapshot of all runs: the keys of their pieces and
    the rest."""
    archived = tuple(piece.archived for piece in runs.pieces if piece.archived is not None)
    pieces = [piece for piece in runs.pieces if piece.archived is None]
    keys = tuple(runs_key(tenure, lane, side, piece.first_ordinal, piece.count, _checksum(piece)) for piece in pieces)
    known = set(old_pieces)
    new = [PieceOfLane(lane, side, piece) for piece, key in zip(pieces, keys, strict=True) if key not in known]
    return new, RunsSnapshot(keys, runs.tail_packed(), PACKED, archived)


def _checksum(piece: PackedPiece) -> int:
    """Return the checksum of the piece's bytes. The bytes may be stored elsewhere, so it is computed only once."""
    if piece.checksum is None:
        piece.checksum = checksum(piece.packed)
    return piece.checksum


def _first_ordinals(lane: LaneState) -> tuple[int, int]:
    source, target = lane.source_runs.first, lane.target_runs.first
    return source.ordinal if source else -1, target.ordinal if target else -1


def _first_ordinal(runs: RunsSnapshot) -> int:
    """Return the first ordinal, or -1. Raises LedgerCorrupt if the key of a piece is invalid."""
    archived = [part.first_ordinal for part in runs.archived[:1]]
    try:
        if runs.pieces:
            return min([_piece_ordinal(runs.pieces[0]), *archived])
        if archived:
            return archived[0]
        if runs.form == PACKED and runs.packed:
            return Packed(runs.packed).ordinals[0]
    except ValueError:
        raise LedgerCorrupt("a snapshot names impossible runs") from None
    return int.from_bytes(runs.packed[:8], "little") if runs.packed else -1


def _piece_ordinal(key: str) -> int:
    """Return the first ordinal of a piece, taken from its key. Raises ValueError."""
    return int(key.rpartition("/")[2].split("-")[0])


def _restore_flow(flow: FlowSnapshot) -> FlowState:
    return FlowState(
        flow=flow.flow,
        source_cluster=flow.source_cluster,
        target_cluster=flow.target_cluster,
        lease_epoch=flow.lease_epoch,
        turn=flow.turn if flow.lease_epoch else 0,
        holder=flow.holder,
        ttl_ms=flow.ttl_ms,
        released=flow.released,
        topics={topic.topic_id: topic for topic in flow.topics},
        writers=dict(flow.writers),
        probed=flow.probed,
        acls=frozenset(flow.acls),
        planned_acls=frozenset(flow.planned_acls),
        orders=Orders.of(flow.orders),
        forgotten_topics=dict.fromkeys(flow.forgotten_topics),
        compaction=flow.compaction,
        named={each.source_topic_id: each for each in flow.named},
        jobs={job.job: job for job in flow.jobs},
        keeps_starts=flow.keeps_starts,
        selected=flow.selected,
        starts={each.topic_id: each for each in flow.starts},
        next_offset=flow.cut,
    )


def _restore_lane(lane: LaneSnapshot, read: StateTopicContents, memory: RunMemory) -> LaneState:
    try:
        key = LaneKey.parse(lane.lane)
        source_runs = _restore_runs(lane, "source", read, memory)
        target_runs = _restore_runs(lane, "target", read, memory)
    except ValueError as error:
        raise LedgerCorrupt(f"the snapshot of lane {lane.lane} cannot be read: {error}") from None
    return LaneState(
        key=key,
        source_topic=lane.source_topic,
        target_topic=lane.target_topic,
        producer_id=lane.producer_id,
        producer_epoch=lane.producer_epoch,
        policy=lane.policy,
        mode=lane.mode,
        grant=lane.grant,
        replicator=lane.replicator,
        source_runs=source_runs,
        target_runs=target_runs,
        verdicts=VerdictTally(dict(lane.verdict_counts), deque(lane.recent_verdicts)),
        holes=lane.holes,
        halted=lane.halted,
        last_check=lane.last_check,
        inherited=lane.inherited,
        truncations=lane.cuts,
        epochs=lane.epochs,
        quarantine=lane.quarantine,
        seeks=lane.seeks,
        audited=lane.audited,
        retold=lane.retold,
        regiven=lane.regiven,
        rewinds=lane.rewinds,
        repaired=lane.repaired,
        times=lane.times,
        opened_at=lane.opened_at,
        changed_at=lane.changed_at,
        folded_to=lane.folded_to,
    )


def _restore_runs(lane: LaneSnapshot, side: Side, read: StateTopicContents, memory: RunMemory) -> Runs:
    snapshot = lane.source_runs if side == "source" else lane.target_runs
    if snapshot.form == PACKED:
        # Pieces and archived parts are merged by their first ordinals. The pieces themselves are in order.
        found: list[tuple[int, str | ArchivedRuns]] = [(_piece_ordinal(key), key) for key in snapshot.pieces]
        found += [(part.first_ordinal, part) for part in snapshot.archived]
        pieces = [
            _restore_piece(each, read, memory)
            if isinstance(each, str)
            else memory.archived(ArchivedPart(lane.source_topic, lane.lane, side, each))
            for _, each in sorted(found, key=_by_ordinal)
        ]
        return Runs.restored(pieces, snapshot.packed, memory)
    if snapshot.form != COLUMNS:
        raise ValueError("a newer version wrote it")
    runs = Runs(memory=memory)
    for key in snapshot.pieces:
        runs.extend_columns(_piece_record(key, read, COLUMNS).packed)
    runs.extend_columns(snapshot.packed)
    return runs


def _by_ordinal(found: tuple[int, object]) -> int:
    return found[0]


def _restore_piece(key: str, read: StateTopicContents, memory: RunMemory) -> PackedPiece:
    return read.pieces.get(key) or memory.keep(_piece_record(key, read, PACKED).packed)


def _piece_record(key: str, read: StateTopicContents, form: int) -> RunsPiece:
    piece = read.records.get(key)
    if not isinstance(piece, RunsPiece) or checksum(piece.packed) != piece.checksum or piece.form != form:
        raise ValueError(f"{key} is missing or damaged")
    return piece
