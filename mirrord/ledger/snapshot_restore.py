"""Restores the folded state of a flow from the snapshots in the state topic."""

from mirrord.kafka.protocol.crc32c import checksum
from mirrord.ledger.errors import LOST, LedgerCorrupt
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.hole_list import HoleList
from mirrord.ledger.standing_orders import Orders
from mirrord.ledger.start_offsets import note_all_begun
from mirrord.ledger.state import FlowState, LaneState, shared
from mirrord.ledger.state_topic_records import (
    COLUMNS,
    PACKED,
    FlowSnapshot,
    LaneSnapshot,
    RunsPiece,
    piece_ordinal,
    written_under,
)
from mirrord.ledger.state_topic_rows import StateTopicContents
from mirrord.ledger.verdict_tally import VerdictTally
from mirrord.model.archived_runs import ArchivedPart, ArchivedRuns
from mirrord.model.names import LaneId, LaneKey, Side, TopicId
from mirrord.model.run_memory import ALL_OF_IT, PackedPiece, RunMemory
from mirrord.model.runs import Runs


def restore(read: StateTopicContents, memory: RunMemory = ALL_OF_IT) -> FlowState:
    """Return the state of the newest valid snapshot, with the progress records. Without a snapshot, return an empty
    state that begins at ledger offset 0.

    The record of a lane may be newer than the record of the flow. The state of the lane then already includes some of
    the entries after the flow's ledger offset. When these entries are folded, they do not change the lane again. Raises
    LedgerCorrupt if a part of the snapshot is missing.
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
            state.lanes[record.lane] = _restore_lane(state, record, read)
    if flow and len(state.lanes) < flow.lanes:
        raise LedgerCorrupt(
            f"the snapshot at ledger offset {flow.cut} has {flow.lanes} lanes, found {len(state.lanes)}: {LOST}"
        )
    note_all_begun(state)
    return state


def _topics_of(lane: LaneId) -> tuple[TopicId, TopicId]:
    try:
        return LaneKey.parse(lane).topics
    except ValueError as error:
        raise LedgerCorrupt(f"the state topic holds a record of an impossible lane: {error}") from None


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
        forgotten_losses=dict(flow.forgotten_losses),
        recoveries=flow.recoveries,
        next_offset=flow.cut,
    )


def _restore_lane(state: FlowState, lane: LaneSnapshot, read: StateTopicContents) -> LaneState:
    memory = state.memory
    try:
        key, source_topic, target_topic = state.shared_names(
            LaneKey.parse(lane.lane), lane.source_topic, lane.target_topic
        )
        source_runs = _restore_runs(lane, "source", read, memory)
        target_runs = _restore_runs(lane, "target", read, memory)
    except ValueError as error:
        raise LedgerCorrupt(f"the snapshot of lane {lane.lane} cannot be read: {error}: {LOST}") from None
    return LaneState(
        key=key,
        source_topic=source_topic,
        target_topic=target_topic,
        producer_id=lane.producer_id,
        producer_epoch=lane.producer_epoch,
        policy=shared(lane.policy),
        mode=shared(lane.mode),
        grant=lane.grant,
        replicator=lane.replicator,
        source_runs=source_runs,
        target_runs=target_runs,
        verdicts=VerdictTally(dict(lane.verdict_counts), lane.recent_verdicts),
        hole_list=HoleList(lane.holes),
        halted=lane.halted,
        last_check=lane.last_check,
        inherited=lane.inherited,
        truncations=lane.cuts,
        epochs=lane.epochs,
        quarantine=lane.quarantine,
        seeks=lane.seeks,
        audited=lane.audited,
        retold=lane.retold if lane.retold[1] else shared(lane.retold),
        regiven=lane.regiven,
        regiven_until=lane.regiven_until,
        left_out_epochs=lane.left_out_epochs,
        rewinds=lane.rewinds,
        rebuilds=lane.rebuilds,
        displaced=lane.displaced,
        repaired=lane.repaired,
        times=shared(lane.times),
        opened_at=lane.opened_at,
        changed_at=lane.changed_at,
        folded_to=lane.folded_to,
    )


def _restore_runs(lane: LaneSnapshot, side: Side, read: StateTopicContents, memory: RunMemory) -> Runs:
    snapshot = lane.source_runs if side == "source" else lane.target_runs
    if snapshot.form == PACKED:
        # Pieces and archived parts are merged by their first ordinals. The pieces themselves are in order.
        found: list[tuple[int, str | ArchivedRuns]] = [(piece_ordinal(key), key) for key in snapshot.pieces]
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
