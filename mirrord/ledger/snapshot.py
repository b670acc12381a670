"""Creates the snapshots of the folded ledger, which are written to the state topic. At startup, a process restores them
(`mirrord.ledger.snapshot_restore`) and reads only the entries after them.

A snapshot is written in three steps, in this order: pieces of runs, lanes, and then the flow. The record of the flow
makes the snapshot valid. If the process crashes between these steps, the state topic holds the previous snapshot, with
newer records of some lanes. A process that starts later can still read them together, because the record of a lane
contains the ledger offset up to which the lane was folded. The records to which the previous snapshot refers are
removed only after a complete newer snapshot exists.

The pieces are also the form in which a process keeps the older runs of a lane in memory (`Runs.pieces`). The key of a
piece in the state topic identifies its content. If runs of a piece are later replaced, the piece gets a different key.
Only pieces whose keys are not in the state topic yet are written.
"""

from collections.abc import Iterator
from itertools import chain, islice
from typing import NamedTuple

from mirrord.kafka.protocol.crc32c import checksum
from mirrord.ledger.state import FlowState, LaneState
from mirrord.ledger.state_topic_records import (
    PACKED,
    FlowSnapshot,
    LaneSnapshot,
    LedgerEnd,
    RunsPiece,
    RunsSnapshot,
    Snapshot,
    Tenure,
    flow_key,
    lane_key,
    runs_key,
)
from mirrord.ledger.state_topic_rows import Kept, KeptLane
from mirrord.model.names import LaneId, LaneKey, Side
from mirrord.model.run_memory import PackedPiece
from mirrord.model.runs import Runs


class PieceOfLane(NamedTuple):
    """A piece of a lane's runs that is to be written. Its data may be in a file and is loaded only when the piece is
    written."""

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
    """The snapshot of a flow at one ledger offset: the records to be written, in this order, and the keys of all
    records that belong to the snapshot. Some of the records with these keys were written earlier."""

    tenure: Tenure
    offset: int
    pieces: tuple[PieceOfLane, ...]
    lanes: tuple[LaneSnapshot, ...]
    flow: FlowSnapshot
    """The flow's record, which is written last and separately."""
    keys: frozenset[str]

    @property
    def records(self) -> list[Snapshot]:
        """All records of the snapshot."""
        return [*(record for records in self.groups(1) for record in records), self.flow]

    def groups(self, count: int) -> Iterator[list[RunsPiece | LaneSnapshot]]:
        """Yield all records except the flow's, in lists of up to `count`. Pieces are loaded one list at a time, because
        all of them together may be large."""
        pieces = (piece.record(self.tenure) for piece in self.pieces)
        records = chain[RunsPiece | LaneSnapshot](pieces, self.lanes)
        while group := list(islice(records, count)):
            yield group

    def stale(self, kept: Kept) -> list[str]:
        """Return the keys of older snapshots, which may be removed once this snapshot is complete. Keys that a later
        holder of the lease has written in the meantime are not returned."""
        return sorted(key for key in kept.keys - self.keys if Tenure.of_key(key) <= self.tenure)


def snapshots(state: FlowState, kept: Kept, ledger: LedgerEnd) -> SnapshotCut:
    """Return the snapshot of the flow at the current position of the state. Records that the state topic already holds
    unchanged are not written again."""
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
        forgotten_losses=dict(state.forgotten_losses),
        recoveries=state.recoveries,
    )
    keys.add(flow_key(state.tenure))
    return SnapshotCut(state.tenure, state.next_offset, tuple(pieces), tuple(lanes), flow, frozenset(keys))


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
        displaced=lane.displaced,
        regiven_until=lane.regiven_until,
        left_out_epochs=lane.left_out_epochs,
        rebuilds=lane.rebuilds,
    )


def _split(
    tenure: Tenure, lane: LaneId, side: Side, runs: Runs, old_pieces: tuple[str, ...]
) -> tuple[list[PieceOfLane], RunsSnapshot]:
    """Return the pieces that have to be written, and the snapshot of one side's runs. The snapshot contains the keys of
    all pieces, and the runs that are not in a piece."""
    archived = tuple(piece.archived for piece in runs.pieces if piece.archived is not None)
    pieces = [piece for piece in runs.pieces if piece.archived is None]
    keys = tuple(runs_key(tenure, lane, side, piece.first_ordinal, piece.count, _checksum(piece)) for piece in pieces)
    known = set(old_pieces)
    new = [PieceOfLane(lane, side, piece) for piece, key in zip(pieces, keys, strict=True) if key not in known]
    return new, RunsSnapshot(keys, runs.tail_packed(), PACKED, archived)


def _checksum(piece: PackedPiece) -> int:
    """Return the checksum of the piece's bytes. It is computed only once, because the bytes may have to be loaded from
    a file."""
    if piece.checksum is None:
        piece.checksum = checksum(piece.packed)
    return piece.checksum


def _first_ordinals(lane: LaneState) -> tuple[int, int]:
    source, target = lane.source_runs.first, lane.target_runs.first
    return source.ordinal if source else -1, target.ordinal if target else -1
