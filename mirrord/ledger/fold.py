"""Changes the state of a flow, one ledger entry at a time. No other code changes this state.

`fold` is total and deterministic. Every entry that the codec accepts can be folded, and the same entries give the same
state everywhere. A fact that does not take effect changes nothing, and every reader of the ledger sees that it did not
take effect.

These facts take effect:

- The first `FlowOpened` of the ledger. No other fact takes effect before it.
- `LeaseTaken` if its epoch is one more than the previous epoch and equals the epoch of its entry. If it does not take
  effect, its writer is not the holder. In this case, the facts that follow it in the same entry do not take effect
  either.
- Every other fact if its entry has the epoch of the current lease and this lease has not been released. Facts of jobs
  (audits, repairs, compactions) also take effect after the release, because jobs hold no lease.

Some of these other facts have to meet a further condition:

- `LeaseContinued`: its turn is one more than the current turn, and its daemon is that of the holder.
- `LaneOpened`: it is the first one for its lane. `LaneTaken`: its grant is one more than the lane's grant. All other
  facts about a lane: they carry the lane's grant.
- Facts about failovers (`RecoveryFact`): see `mirrord.ledger.folding.failovers`. After a failover has ended the copying
  of a topic (`CopyingEnded`), facts about its lanes do not take effect any more.
- Operator commands (`OrderFact`): they change something. Commands about the quarantine: the lane is waiting for a
  decision. Seeks (`LaneSought`): no earlier seek of the lane reaches at least as far.

If the ledger already contains an entry, as its writer and number show, a second copy of the entry has no effect.
"""

from mirrord.ledger import displaced, reassigned_ordinals
from mirrord.ledger.decided_verdicts import (
    epochs_after_runs,
    epochs_after_verdicts,
    invalidated_decisions,
    rebuilt_offsets,
    void_no_longer,
    void_pieces,
)
from mirrord.ledger.facts.archive import CompactionBegan, MapCompacted
from mirrord.ledger.facts.audit import AuditFact
from mirrord.ledger.facts.commands import RecordSkipped, StateRecordSkipped
from mirrord.ledger.facts.core import (
    AclsPlanned,
    AclsSynced,
    AnyFact,
    ConfigChanged,
    CopyInherited,
    Entry,
    FlowFact,
    FlowOpened,
    HoleFound,
    LaneFact,
    LaneHalted,
    LaneOpened,
    LaneResumed,
    LaneTaken,
    LeaseContinued,
    LeaseReleased,
    LeaseTaken,
    MapRebuilt,
    PolicyChanged,
    Rebuild,
    SourceRun,
    TakeoverChecked,
    TargetProbed,
    TargetRun,
    TopicFact,
    VerdictGiven,
)
from mirrord.ledger.facts.jobs import JobFact
from mirrord.ledger.facts.orders import OrderFact
from mirrord.ledger.facts.quarantine import Quarantined, QuarantineOrder
from mirrord.ledger.facts.recovery import RecoveryFact
from mirrord.ledger.facts.seeks import LaneSought, SeekDone
from mirrord.ledger.folding.failovers import has_ended, take
from mirrord.ledger.folding.target_topics import apply_to_topic
from mirrord.ledger.hole_plans import after_rebuild, after_runs
from mirrord.ledger.job_state import after
from mirrord.ledger.proven_ranges import clip_proof, doubt, take_audit_fact
from mirrord.ledger.quarantine import decide, go_on, park
from mirrord.ledger.seeks import cut, done, sought
from mirrord.ledger.start_offsets import note_begun, take_starts
from mirrord.ledger.state import FlowState, LaneState, shared
from mirrord.ledger.state_topic_records import LastEntry
from mirrord.model.archived_runs import ArchivedPart
from mirrord.model.names import LaneKey
from mirrord.model.runs import Runs

WRITERS_KEPT = 1000
"""Maximum number of writers whose latest entries are remembered. Each replicator writes under its own name, and one
lease may outlive many replicators."""
_OF_ANYBODY = AuditFact | CompactionBegan | MapCompacted | JobFact
"""Facts of jobs and repairs. They also take effect after the last holder has released the lease."""

_OF_READERS = RecordSkipped | StateRecordSkipped
"""Facts that concern the readers of the ledger's topics (`mirrord.ledger.store.entry_gate`), not the state."""


def writer_text(writer: str, number: int) -> str:
    """Return the value of `Entry.writer` for one append by a writer. `number` increases with each append."""
    return f"{writer}#{number}"


def fold(state: FlowState, entry: Entry, offset: int) -> tuple[bool, ...]:
    """Fold the entry at a ledger offset into the state. For each of its facts, return whether the fact took effect.

    An entry below `state.next_offset` has already been folded and is ignored.
    """
    if offset < state.next_offset:
        return (False,) * len(entry.facts)
    state.next_offset = offset + 1
    if entry.lease_epoch < state.lease_epoch or _is_repeated(state, entry):
        return tuple(isinstance(fact, _OF_READERS) for fact in entry.facts)
    bound: list[bool] = []
    for fact in entry.facts:
        bound.append(_apply(state, fact, entry.lease_epoch, offset))
        if isinstance(fact, LeaseTaken) and not bound[-1]:
            bound.extend([False] * (len(entry.facts) - len(bound)))
            break
    return tuple(bound)


def _is_repeated(state: FlowState, entry: Entry) -> bool:
    writer, separator, number = entry.writer.rpartition("#")
    if not separator or not (number.isascii() and number.isdigit()) or len(number) > 18:
        return False
    last = state.writers.get(writer)
    if last is not None and int(number) <= last.number:
        return True
    state.writers.pop(writer, None)
    state.writers[writer] = LastEntry(entry.lease_epoch, int(number))
    if len(state.writers) > WRITERS_KEPT:
        # Drop the writer that has been silent the longest. A store retries an entry only until its deadline, so this
        # writer is the least likely to send a second copy of an entry.
        del state.writers[next(iter(state.writers))]
    return False


def _apply(state: FlowState, fact: AnyFact, lease_epoch: int, offset: int) -> bool:
    if isinstance(fact, FlowOpened):
        return _open_flow(state, fact)
    if not state.flow or isinstance(fact, _OF_READERS):
        return isinstance(fact, _OF_READERS)
    if isinstance(fact, LeaseTaken):
        return _take_lease(state, fact, lease_epoch)
    if lease_epoch != state.lease_epoch or (state.released and not isinstance(fact, _OF_ANYBODY)):
        return False
    if isinstance(fact, LaneFact):  # most facts are of this kind
        return _apply_to_lane(state, fact, offset)
    if isinstance(fact, TopicFact):
        return apply_to_topic(state, fact, offset)
    if isinstance(fact, OrderFact | RecoveryFact):
        return state.orders.take(fact) if isinstance(fact, OrderFact) else _recover(state, fact)
    if isinstance(fact, _OF_ANYBODY):
        return _apply_of_job(state, fact, offset)
    if isinstance(fact, QuarantineOrder | LaneSought):
        return _order_lane(state, fact, offset)
    return _apply_to_flow(state, fact)


def _recover(state: FlowState, fact: RecoveryFact) -> bool:
    recoveries = take(state.recoveries, fact)
    state.recoveries = state.recoveries if recoveries is None else recoveries
    return recoveries is not None


def _apply_to_flow(state: FlowState, fact: FlowFact) -> bool:
    match fact:
        case LeaseContinued():
            return _continue_lease(state, fact)
        case LeaseReleased():
            state.released = fact.epoch == state.lease_epoch
            return state.released
        case TargetProbed():
            state.probed = fact
        case ConfigChanged():
            take_starts(state, fact)
        case AclsPlanned():
            state.planned_acls = frozenset(fact.rules)
        case AclsSynced():
            state.acls = state.acls.union(fact.added).difference(fact.removed)
            state.planned_acls = frozenset()
        case _:
            pass  # `CommandGiven` and `LedgerSigned` are for information only
    return True


def _open_flow(state: FlowState, fact: FlowOpened) -> bool:
    if state.flow:
        return False
    state.flow, state.source_cluster, state.target_cluster = fact.flow, fact.source_cluster, fact.target_cluster
    state.keeps_starts = fact.keeps_starts
    return True


def _take_lease(state: FlowState, fact: LeaseTaken, lease_epoch: int) -> bool:
    if not fact.epoch == lease_epoch == state.lease_epoch + 1:
        return False
    state.lease_epoch, state.holder, state.ttl_ms, state.released = fact.epoch, fact.holder, fact.ttl_ms, False
    state.turn = 1
    # Entries of older leases no longer take effect, so second copies of them do not have to be recognized.
    state.writers = {writer: last for writer, last in state.writers.items() if last.lease_epoch >= fact.epoch}
    return True


def _continue_lease(state: FlowState, fact: LeaseContinued) -> bool:
    holder = state.holder
    is_same = holder is not None and bool(holder.daemon) and holder.daemon == fact.holder.daemon
    if not is_same or (fact.epoch, fact.turn) != (state.lease_epoch, state.turn + 1):
        return False
    state.turn, state.holder = fact.turn, fact.holder
    return True


def _apply_of_job(state: FlowState, fact: AuditFact | CompactionBegan | MapCompacted | JobFact, offset: int) -> bool:
    if isinstance(fact, JobFact):
        job = after(state.jobs.get(fact.job), fact)
        if job is not None:
            state.jobs[fact.job] = job
        return job is not None
    if isinstance(fact, AuditFact):
        lane = state.lanes.get(fact.lane)
        return lane is not None and take_audit_fact(lane, fact, offset)
    match fact:
        case CompactionBegan():
            if fact.number <= state.compaction:
                return False
            state.compaction = fact.number
            return True
        case MapCompacted():
            return _compact(state, fact, offset)


def _compact(state: FlowState, fact: MapCompacted, offset: int) -> bool:
    lane = state.lanes.get(fact.lane)
    if lane is None or offset < lane.folded_to or fact.number != state.compaction or fact.last_ordinal < 0:
        return False
    began, lowest = lane.retold
    if began == fact.number and lowest <= fact.last_ordinal:
        return False
    lane.source_runs.archive([ArchivedPart(lane.source_topic, fact.lane, "source", part) for part in fact.source])
    lane.target_runs.archive([ArchivedPart(lane.source_topic, fact.lane, "target", part) for part in fact.target])
    lane.changed_at = offset
    return True


def _note_recorded_again(state: FlowState, lane: LaneState, ordinal: int) -> None:
    """Remember that a run was recorded at this ordinal. If the current compaction has already read runs at or above
    this ordinal, these runs are no longer valid, and the compaction's `MapCompacted` has no effect."""
    began, lowest = lane.retold
    retold = (state.compaction, min(lowest, ordinal) if began == state.compaction else ordinal)
    if retold != lane.retold:
        lane.retold = retold


def _apply_to_lane(state: FlowState, fact: LaneFact, offset: int) -> bool:
    lane = state.lanes.get(fact.lane)
    if isinstance(fact, LaneOpened):
        ended = has_ended(state.recoveries, fact.source_topic)
        return lane is None and not ended and _open_lane(state, fact, offset)
    if lane is None or offset < lane.folded_to or (state.recoveries and has_ended(state.recoveries, lane.source_topic)):
        return False
    if isinstance(fact, LaneTaken):
        if fact.grant != lane.grant + 1:
            return False
        lane.grant, lane.replicator = fact.grant, fact.replicator
        lane.times = shared(fact.times)
    elif fact.grant != lane.grant:
        return False
    else:
        if isinstance(fact, TargetRun):
            _note_recorded_again(state, lane, fact.ordinal)
        elif isinstance(fact, SourceRun) and fact.runs:
            _note_recorded_again(state, lane, min(run.ordinal for run in fact.runs))
            note_begun(state, lane.key)
        _change_lane(lane, fact)
    lane.changed_at = offset
    return True


def _order_lane(state: FlowState, fact: QuarantineOrder | LaneSought, offset: int) -> bool:
    lane = state.lanes.get(fact.lane)
    if lane is None or offset < lane.folded_to or has_ended(state.recoveries, lane.source_topic):
        return False
    if isinstance(fact, LaneSought):
        seeks = sought(lane.seeks, fact)
        lane.seeks = lane.seeks if seeks is None else seeks
        binds = seeks is not None
    else:
        quarantine = decide(lane.quarantine, fact)
        lane.quarantine = lane.quarantine if quarantine is None else quarantine
        binds = quarantine is not None
    lane.changed_at = offset if binds else lane.changed_at
    return binds


def _open_lane(state: FlowState, fact: LaneOpened, offset: int) -> bool:
    try:
        key = LaneKey.parse(fact.lane)
    except ValueError:
        return False
    if (key.id, key.partition) != (fact.lane, fact.partition):
        return False
    if state.forgotten_lanes:  # the copy exists again, so its records in the state topic must not be removed
        for lane in [lane for lane in state.forgotten_lanes if LaneKey.parse(lane).topics == key.topics]:
            del state.forgotten_lanes[lane]
    before = state.memory.piece_runs
    state.lanes_changed += 1
    names = state.shared_names(key, fact.source_topic, fact.target_topic)
    state.lanes[fact.lane] = LaneState(
        *names,
        producer_id=fact.producer_id,
        producer_epoch=fact.producer_epoch,
        policy=shared(fact.policy),
        mode=fact.mode,
        source_runs=Runs(memory=state.memory),
        target_runs=Runs(memory=state.memory),
        opened_at=offset,
        changed_at=offset,
    )
    if state.memory.piece_runs < before:
        for lane in state.lanes.values():
            lane.source_runs.settle()
            lane.target_runs.settle()
    return True


def _change_lane(
    lane: LaneState,
    fact: PolicyChanged
    | SourceRun
    | TargetRun
    | VerdictGiven
    | HoleFound
    | LaneHalted
    | LaneResumed
    | TakeoverChecked
    | MapRebuilt
    | CopyInherited
    | Quarantined
    | SeekDone,
) -> None:
    match fact:
        case PolicyChanged():
            lane.policy = fact.policy
        case SourceRun():
            _add_runs(lane, fact)
        case TargetRun():
            _add_target_run(lane, fact)
        case VerdictGiven():
            lane.verdicts.add(fact.verdicts)
            lane.left_out_epochs = epochs_after_verdicts(lane.left_out_epochs, fact.epochs)
        case HoleFound():
            doubt(lane, fact.first)
            lane.hole_list.add(fact)
        case LaneHalted():
            lane.halted = fact
        case LaneResumed():
            lane.halted = None
            lane.quarantine = go_on(lane.quarantine)
        case Quarantined() | SeekDone():
            _leave_out(lane, fact)
        case TakeoverChecked():
            lane.last_check = fact
            lane.regiven, lane.regiven_until = reassigned_ordinals.after_check(lane, fact)
        case CopyInherited():
            lane.inherited = fact
        case MapRebuilt():
            _rebuild(lane, fact)


def _add_target_run(lane: LaneState, fact: TargetRun) -> None:
    doubt(lane, fact.ordinal)
    # Runs with lower ordinals and higher offsets describe a log that has since lost its last records.
    lane.target_runs.add_ascending(fact.ordinal, fact.offset)
    lane.displaced = displaced.after_run(lane.displaced, fact)
    lane.regiven_until = reassigned_ordinals.end_after_run(lane, fact)


def _rebuild(lane: LaneState, fact: MapRebuilt) -> None:
    doubt(lane, fact.first)
    if fact.withdraws_verdicts:
        lane.verdicts.copied(rebuilt_offsets(lane.source_runs, lane.holes, fact))
    lane.holes = after_rebuild(lane.holes, fact)
    lane.last_check, lane.regiven, lane.regiven_until = None, -1, -1
    found = Rebuild(len(lane.rewinds), fact.first, fact.leader_epoch, fact.found_epochs)
    lane.rebuilds = (*(each for each in lane.rebuilds if each.first < fact.first), found)


def _leave_out(lane: LaneState, fact: Quarantined | SeekDone) -> None:
    if isinstance(fact, SeekDone):
        lane.seeks = done(lane.seeks, fact)
    else:
        lane.quarantine = park(lane.quarantine, fact)


def _add_runs(lane: LaneState, fact: SourceRun) -> None:
    verdicts = list(fact.verdicts)
    ordinals = [run.ordinal for run in fact.runs]
    lowest, last = min(ordinals, default=0), max(ordinals, default=0)
    is_lost = any(each.reason == "truncated" for each in verdicts)
    # Most runs change no hole. The holes are read only if one may change, because a lane may have many holes and runs.
    holes = lane.holes if fact.runs and lane.hole_list.is_changed(lowest, last, is_lost=is_lost) else ()
    void = [piece for hole in holes for piece in void_pieces(lane.source_runs, hole)]
    lane.verdicts.explained(void_no_longer(void, lowest)[0])
    before = lane.source_runs.offset_of(lowest) if is_lost else None
    for run in fact.runs:
        lane.source_runs.add(run.ordinal, run.offset)
    if again := invalidated_decisions(lane.source_runs, fact.runs, lane.verdicts.decided):
        lane.verdicts.invalidate_decided(again)
    if fact.runs:
        if fact.regiven:
            lane.regiven = min(lowest, lane.regiven if lane.regiven >= 0 else lowest)
            lane.regiven_until = -1
        if fact.rewound is not None:
            lane.rewinds = (*lane.rewinds, (fact.grant, fact.rewound))
        doubt(lane, lowest)
        lane.displaced = displaced.kept_below(lane.displaced, lowest)
        lane.truncations = tuple((min(ordinal, lowest), offset) for ordinal, offset in lane.truncations)
        # If a truncation is recorded again before anything was copied after it, it is the same truncation, unless the
        # lane has leapt over records since, and goes back now.
        goes_back = before is not None and (lane.source_runs.offset_of(lowest) or 0) < before
        known = {each for each in lane.truncations if each[0] == lowest and not goes_back}
        verdicts = [each for each in verdicts if each.reason != "truncated" or (lowest, each.start) not in known]
        lost = [verdict.start for verdict in verdicts if verdict.reason == "truncated"]
        lane.truncations += tuple((lowest, start) for start in lost)
        if holes:
            lane.holes = after_runs(holes, lowest, last, is_lost=bool(lost))
        if lost:
            lane.seeks = cut(lane.seeks, min(lost))
            # The source now holds different records at these offsets.
            lane.quarantine = tuple(each for each in lane.quarantine if each.end <= min(lost))
            lane.repaired = tuple(each for each in lane.repaired if each.end <= min(lost))
        lane.left_out_epochs = epochs_after_runs(lane.left_out_epochs, fact.runs, lost)
        clip_proof(lane)
        lowest = min([lowest, *(ordinal for ordinal, _ in fact.epochs)])
        lane.epochs = (*(each for each in lane.epochs if each[0] < lowest), *fact.epochs)
    lane.verdicts.add(verdicts)
