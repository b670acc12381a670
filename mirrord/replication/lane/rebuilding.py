"""Rebuilds the offset map if target and source differ: the lane halts, finds out what the target really holds, records
the result, and resumes.

Two holders of a lane can read different records from the same source partition, for example because the log cleaner
removes records between the two reads. They then assign the same ordinals to different records. The target can accept
batches from both holders, because the sequences are in order. As a result, the contents of the target do not match the
map: records may be missing or appear twice. The map is rebuilt in these steps:

1. Before anything else, record the difference and the halt in the ledger.
2. Wait until no batch that was sent earlier can still be appended.
3. Make the requests of the resume sandwich, and wait for the high watermark, as in every resume (see `resuming`).
4. Read both logs, starting at the first doubtful ordinal, to find the source offsets of the lane's own batches (see
   `target.batch_relocation`).
5. In one ledger entry, record the true map, the records that are in the target twice, and the new ordinals of the
   missing records. Then resume normally. If the entry reports a loss and the flow has `on_loss = "halt"`, stay halted.

If the source offsets of some records cannot be determined with certainty, the lane stays halted, and a one-line message
explains why. Because the difference is in the ledger, a new holder begins with step 2 and does not copy
anything until the map has been rebuilt.
"""

import sys
from collections.abc import Sequence

import msgspec

from mirrord.kafka.protocol.sequence import SEQUENCES, nearest
from mirrord.ledger.displaced import within
from mirrord.ledger.facts.core import (
    Displaced,
    HoleFound,
    LaneFact,
    LaneHalted,
    LaneResumed,
    MapRebuilt,
    SourceRun,
    TakeoverChecked,
    Verdict,
    VerdictGiven,
)
from mirrord.model import intervals
from mirrord.model.runs import Run, Runs
from mirrord.replication.lane.correlation import append, ask
from mirrord.replication.lane.halt import halt, halt_unrecorded
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.phases import Phase, Stage
from mirrord.replication.lane.signals import (
    AskEnd,
    AskRebuild,
    Effects,
    Halted,
    LaneRecord,
    Lost,
    OwnBatch,
    RebuildAnswer,
    Wake,
)
from mirrord.replication.lane.source import last_copied
from mirrord.replication.lane.source.missing_from_target import (
    ReturnedBatches,
    are_in_another_log,
    epochs_of_superseded,
    may_be_cleaned,
    without_filtered,
    without_left_out,
    without_undecided,
)
from mirrord.replication.lane.source.rebuilt_epochs import rebuilt_epochs
from mirrord.replication.lane.source.recorded_epochs import Epochs
from mirrord.replication.lane.state import Lane, ResumePosition
from mirrord.replication.lane.target import (
    in_doubt,
    look_back,
    lookup_after_rebuild,
    missing_ordinals,
    position_rewind,
    rebuilt_verdicts,
    target_scan,
)
from mirrord.replication.lane.target.evidence import (
    acknowledged,
    is_another_leader,
    is_recorded,
    known_until,
    remembered_until,
)
from mirrord.replication.lane.target.out_of_order import NEVER_REFUSED
from mirrord.replication.lane.target.relocation_result import Located
from mirrord.replication.lane.transitions import RebuildMap, Resume


def enter(lane: Lane, now: float, wanted: RebuildMap) -> Effects:
    """Begin to rebuild the offset map in a new round. When this function is called, the lane has already dropped all
    batches in memory."""
    lane.phase = Phase.REBUILDING
    if not is_recorded(lane):
        return _record(lane)
    lane.stage = Stage.END
    lane.late_writes.is_waiting = lane.late_writes.end_read_at < lane.late_writes.until
    if wanted.delay_s > 0:
        return [Wake(ask(lane), now + wanted.delay_s, refresh=True)]
    in_doubt.note_question(lane, now)
    return [AskEnd(ask(lane))]


def _record(lane: Lane) -> Effects:
    record, found = lane.record, lane.comparison.differs
    if record is None or found is None:
        return []
    start, last = record.source_runs.offset_of(found.first) or 0, record.source_runs.offset_of(found.last) or 0
    check = TakeoverChecked(lane.id, lane.grant, found.first, found.last, found.outcome, found.note)
    line = (
        lane.halt.line
        or f"{lane.source_topic}-{lane.partition}: target and source differ from ordinal {found.first} on"
    )
    fact = LaneHalted(lane.id, lane.grant, "unexplained", line, start, max(last, start) + 1)
    lane.stage = Stage.DIFFERENCE
    effect = append(lane, (check, fact))
    lane.facts_tag = effect.tag
    return [effect]


def woken(lane: Lane, now: float) -> Effects:
    """Ask for the end of the target log after a pause."""
    if lane.stage is not Stage.END:
        return []
    in_doubt.note_question(lane, now)
    return [AskEnd(ask(lane))]


def facts_bound(lane: Lane) -> Effects:
    """Continue after facts have taken effect in the ledger. If they are about the difference between target and source,
    begin the rebuild. If they contain the rebuilt offset map, resume, or stay halted if the same entry halts the lane
    because of a loss."""
    if lane.stage is Stage.DIFFERENCE:
        lane.go(RebuildMap())
        return []
    map_recorded(lane)
    return resume_or_halt(lane)


def resume_or_halt(lane: Lane) -> Effects:
    """Resume with the rebuilt map. If the entry with this map has halted the lane because of a loss, stay halted."""
    halted = lane.record.halted if lane.record is not None else None
    if halted is None:
        lane.go(Resume())
        return []
    lane.halt.line = halted.line
    return [*halt_unrecorded(lane), Halted(halted.line)]


def map_recorded(lane: Lane) -> None:
    """Adopt the rebuilt map, now that the ledger records it."""
    lane.comparison.differs, lane.comparison.rebuild_in_doubt, lane.log.went_back = None, False, None
    lane.halt.line = ""
    lane.takeover.opened_here = False
    lane.comparison.later_pending, lane.comparison.later_from = False, None
    lane.comparison.first_ack_pending, lane.comparison.first_ack_check = True, None
    lane.comparison.due_at, lane.comparison.due_below, lane.comparison.equal = NEVER, 0, ()
    lane.log.unread_from = None
    # The lane may have to look up the last ordinals again (see `_displaced_after`), regardless of which batches were
    # refused before.
    lane.log.out_of_order = NEVER_REFUSED
    lane.acked = lane.trusted = lane.resume_ordinal
    lane.expected = lane.log.end
    lane.resumed_at = ResumePosition(lane.acked, lane.log.end, lane.log.end_epoch)
    lane.resume_position = lane.recorded_position = msgspec.structs.replace(
        lane.resumed_at, target_offset=lane.comparison.rebuilt_until
    )
    lookup_after_rebuild.look_up_again(lane)


def locate(lane: Lane) -> Effects:
    """Find out what the target log holds, now that its end is known. If batches that were sent earlier could still be
    appended after this end was read, ask for the end again instead."""
    if lane.late_writes.end_read_at < lane.late_writes.until:
        lane.go(RebuildMap())
        return []
    first = lane.comparison.differs.first if lane.comparison.differs is not None else 0
    if (
        lane.log.end < lane.resume_position.target_offset
        or lane.resume_position.ordinal < first
        or is_another_leader(lane)
    ):
        return look_back.begin(lane)
    return search(lane)


def verified(lane: Lane, found: target_scan.Reading) -> Effects:
    """Search both logs. If the target log has also lost records with ordinals below the difference, or if an election
    has brought back batches with such ordinals, begin at the lowest of these ordinals."""
    others = (first for first, _ in (*found.holes, *lane.log.earlier))
    lowest = min([found.next_ordinal, *others, *(each.first for each in found.missing)])
    if lane.comparison.differs is not None and lowest < lane.comparison.differs.first:
        lane.comparison.differs = msgspec.structs.replace(lane.comparison.differs, first=lowest)
    return search(lane, found.begins)


def search(lane: Lane, begins: int = NEVER) -> Effects:
    """Request that both logs be read, starting at the first ordinal of the difference. `begins` is the lowest target
    offset at which a scan of the target log has found a record to be compared. This offset may be below those in the
    ledger and in the resume position: the log may have lost its last records, which were then appended again."""
    found, record = lane.comparison.differs, lane.record
    if found is None or record is None:
        return []
    start = record.target_runs.offset_of(found.first)
    if lane.resume_position.ordinal <= found.first:
        start = target_scan.first_offset_of(lane, lane.resume_position)
    begin = 0 if start is None else min(start, begins)
    start = max(begin, lane.log.log_start)
    if lane.log.end < start:
        return _stay(lane, f"the target log ends at offset {lane.log.end}, before them")
    lane.stage = Stage.LOCATE
    unread = last_copied.unread_from(lane, found.last)
    where = (found.first, start, lane.log.end)
    earlier = tuple(intervals.joined(lane.log.earlier))
    holes = [(hole.first, hole.last + 1) for hole in record.holes]
    equal = lane.comparison.confirmed(lane.log.end_epoch)
    confirmed = tuple(part for each in equal for part in intervals.uncovered(each, holes))
    more = (-1 if unread is None else unread, earlier, confirmed)
    last = max(found.last, remembered_until(lane) - 1)
    return [AskRebuild(ask(lane), lane.producer_id, *where, *more, last, acknowledged(lane), begin < start)]


def _stay(lane: Lane, why: str) -> Effects:
    found, record = lane.comparison.differs, lane.record
    first = found.first if found is not None else 0
    start = record.source_runs.offset_of(first) if record is not None else None
    line = f"target and source differ from ordinal {first} on, and the map cannot be rebuilt: {why}"
    return halt(lane, "unexplained", line, start or 0, (start or 0) + 1)


def rebuild_answered(lane: Lane, answer: RebuildAnswer) -> Effects:
    """Handle the result of reading both logs. If it shows where the lane's records are, record the rebuilt offset map
    in the ledger. If it does not, the lane stays halted."""
    found = lane.comparison.differs
    if lane.stage is not Stage.LOCATE or found is None:
        return []
    if answer.error:
        return lane.retry()
    if answer.located is None or lane.record is None:
        return _stay(lane, answer.trouble)
    located = without_left_out(lane.record, answer.located)
    if unclear := _unclear(lane, lane.record, answer, located):
        start, end = unclear[0]
        return _stay(
            lane,
            f"the copy is compacted and lacks the records of source offsets [{start}, {end}), and another client has "
            "written their keys: it is not known which records are newer",
        )
    own = from_ordinal(answer.own, found.first)
    located = _decided(lane, lane.record, own, located)
    if located is None:
        return _stay(lane, "the target lacks records, and the ledger does not show whether a filter excludes them")
    if not (answer.compacts and lane.has_policies):
        own += target_scan.end_of_deleted(lane, own, found.first)
    read = target_scan.walk(lane, own, found.first)
    if read.doubled is not None:
        first, _, target_offset = read.doubled
        return _stay(lane, f"ordinal {first} is in the target a second time, at offset {target_offset}")
    had = max(found.last + 1, remembered_until(lane))
    if answer.compacts and read.next_ordinal < (had if lane.has_policies else remembered_until(lane)):
        gone = f"ordinals {read.next_ordinal} to {had - 1}"
        return _stay(
            lane,
            f"the copy is compacted, and {gone} have since been removed: it is not known whether they were superseded",
        )
    looked_up = _displaced_after(lane, read.next_ordinal) if answer.compacts else ()
    if looked_up and not _keep_offsets(lane, looked_up, read, located):
        which = f"ordinals {looked_up[0].first} to {looked_up[-1].last}"
        why = f"the copy is compacted and no longer has {which}, and the new map would give them other source offsets"
        return _stay(lane, why)
    lane.resume_ordinal = read.next_ordinal
    # If only a lookup indicates that the last ordinals were appended, they are looked up again. For this, the lane
    # reads the log after its last batch.
    lane.comparison.rebuilt_until = read.behind if looked_up else lane.log.end
    if answer.compacts:
        lookup_after_rebuild.note_missing(lane, found.first, located.missing)
    else:
        lane.log.lost_below = None  # all records that were lost are copied again
    if lane.log.earlier:
        missing_ordinals.remember_position(lane)
    facts = _facts(lane, found.first, own, read, located)
    lane.stage = Stage.FACTS
    effect = append(lane, facts)
    lane.facts_tag = effect.tag
    return [*_report(lane, facts), effect]


def _unclear(lane: Lane, record: LaneRecord, answer: RebuildAnswer, located: Located) -> Sequence[intervals.Interval]:
    """Return the source offsets of missing records that a compacted target may have had, if other clients have written
    their keys and it is not known which records are newer."""
    first = lane.comparison.differs.first if lane.comparison.differs is not None else 0
    located = without_filtered(record, first, known_until(lane), located) if lane.has_policies else located
    cleaned = may_be_cleaned(record, first, located) if answer.compacts else ()
    unclear = [part for whole in cleaned for part in intervals.within(whole, answer.unclear)]
    returned = ReturnedBatches(intervals.joined(lane.log.reassigned), answer.own, lane.log.end)
    return () if unclear and are_in_another_log(record, first, returned, located, unclear) else unclear


def _decided(lane: Lane, record: LaneRecord, own: Sequence[OwnBatch], located: Located) -> Located | None:
    """Return the result of a search without records that a filter excludes. Return None if it is not known which of the
    missing records these are (see `without_undecided`)."""
    found = lane.comparison.differs
    if not lane.has_policies or found is None:
        return located
    placed = list(rebuilt_verdicts.placed(found.first, own, located))
    return without_undecided(record, found.first, known_until(lane), placed, located)


def _report(lane: Lane, facts: Sequence[LaneFact]) -> list[Lost]:
    """Report a loss that the rebuilt map shows, unless the lane halts because of it: a halt is itself reported."""
    loss = rebuilt_verdicts.loss(each for fact in facts if isinstance(fact, VerdictGiven) for each in fact.verdicts)
    if loss is None or lane.on_loss == "halt":
        return []
    return [Lost(f"{lane.source_topic}-{lane.partition}: {loss.line}")]


def _displaced_after(lane: Lane, ordinal: int) -> Sequence[Displaced]:
    """Return the displaced ordinals (`Displaced`) at or above `ordinal`, which is the ordinal after the last one in the
    target log."""
    return within(lane.record.displaced, ordinal, sys.maxsize) if lane.record is not None else ()


def _keep_offsets(lane: Lane, looked_up: Sequence[Displaced], read: target_scan.Reading, located: Located) -> bool:
    """Return whether two conditions hold. First, the rebuilt map must assign all of these ordinals to the same source
    offsets as the ledger does, and no missing records are copied under them. Otherwise, a lookup that uses the rebuilt
    map would look for other records. Second, the target log must have a batch before these ordinals, because the log is
    read again from the end of that batch."""
    record, distance = lane.record, located.next_offset - read.next_ordinal
    if record is None or read.behind == 0 or located.missing:
        return False
    pieces = (piece for each in looked_up for piece in record.source_runs.between(each.first, each.last))
    return all(offset - ordinal == distance for ordinal, offset, _ in pieces)


def from_ordinal(own: tuple[OwnBatch, ...], first: int) -> list[OwnBatch]:
    """Return the batches from the ordinal `first` onward. A batch that contains this ordinal is cut so that it begins
    with the ordinal."""
    kept: list[OwnBatch] = []
    for batch in own:
        ordinal = nearest(batch.base_sequence, first)
        cut = max(first - ordinal, 0)
        if cut < batch.count:
            sequence = (batch.base_sequence + cut) % SEQUENCES
            base, count = batch.base_offset + cut, batch.count - cut
            kept.append(OwnBatch(base, count, sequence, batch.records_crc, batch.leader_epoch))
    return kept


def leaps(own: Sequence[OwnBatch], expected: int) -> list[tuple[int, int]]:
    """Return the ordinals that are missing from the target between the given batches, as ranges (first, last)."""
    found: list[tuple[int, int]] = []
    for batch in own:
        ordinal = nearest(batch.base_sequence, expected)
        if ordinal > expected:
            found.append((expected, ordinal - 1))
        expected = ordinal + batch.count
    return found


def _facts(
    lane: Lane, first: int, own: Sequence[OwnBatch], read: target_scan.Reading, located: Located
) -> list[LaneFact]:
    ordinal = read.next_ordinal
    runs = _runs_again(lane, first, ordinal, own, located)
    follow: list[Run] = []
    for start, end in located.missing:
        follow.append(Run(ordinal, start))
        ordinal += end - start
    behind = Run(ordinal, located.next_offset)
    follow.append(behind)
    map_runs = Runs([*runs, *follow])
    twice = [Verdict(start, end, "doubled") for start, end in located.doubled]
    absent = rebuilt_verdicts.verdicts(lane.record, first, own, located) if lane.record is not None else []
    verdicts = sorted([*twice, *absent], key=lambda each: each.start)
    many = sum(end - start for start, end in located.doubled)
    if first < read.next_ordinal:
        note = (
            f"ordinals {first} to {read.next_ordinal - 1} were written from a different view of the source: {many} "
            f"records are stored twice, {ordinal - read.next_ordinal} follow"
        )
    else:
        note = f"the target has no records from ordinal {first} on: {ordinal - read.next_ordinal} follow"
    if left := sum(end - start for start, end in located.open):
        note += f"; the source no longer has {left}, and nothing shows which these are"
    stands = ResumePosition(read.next_ordinal, lane.comparison.rebuilt_until, lane.log.end_epoch)
    rewound = position_rewind.rewound_by(lane, follow, stands)
    lane.resume_position = min(
        lane.resume_position, stands, key=lambda each: each.ordinal
    )  # this resume position becomes valid when these facts take effect
    lacking = leaps(own, first)
    epochs = rebuilt_epochs(lane.record, map_runs, behind, lacking, located) if lane.record is not None else ()
    return [
        SourceRun(lane.id, lane.grant, tuple(map_runs), (), epochs, rewound=rewound),
        # The rebuilt map revokes all holes after its beginning; those that still exist are recorded again.
        *(HoleFound(lane.id, lane.grant, *hole, read.next_ordinal, ordinal) for hole in lacking),
        # The content of these ordinals is unknown, so they are empty in the map.
        *(HoleFound(lane.id, lane.grant, start, end - 1, end, end) for start, end in located.open),
        # The ledger's state keeps the ranges of only the newest verdicts, and cannot withdraw a verdict whose range it
        # has forgotten. `MapRebuilt` therefore precedes the new verdicts. Otherwise, the new verdicts could cause
        # ranges to be forgotten, and verdicts that are to be withdrawn would still be counted.
        MapRebuilt(
            lane.id,
            lane.grant,
            first,
            read.next_ordinal - 1,
            ordinal,
            withdraws_verdicts=True,
            leader_epoch=lane.log.end_epoch,
            found_epochs=_found_epochs(lane, own, first, read.next_ordinal),
        ),
        *_in_doubt(lane, follow, epochs),
        *read.facts,
        VerdictGiven(lane.id, lane.grant, tuple(verdicts), note, epochs_of_superseded(located)),
        _ending(lane, verdicts),
    ]


def _runs_again(lane: Lane, first: int, end: int, own: Sequence[OwnBatch], located: Located) -> list[Run]:
    """Return the runs of the ordinals [first, end). Ordinals that the target lacks, and those whose records could not
    be determined, keep the offsets that the ledger has for them.

    A new run supersedes only the holes and runs that begin at its ordinal or later. The runs of these ordinals are
    therefore recorded again. If those before the first record that was found were not, the ledger's old holes and runs
    would remain in effect. If the others were not, the run of the record before them would include their ordinals, and
    the source offsets that follow this record would lose the verdicts that they have in the ledger.
    """
    if lane.record is None:
        return list(located.runs)
    found: list[intervals.Interval] = []
    for batch in own:
        ordinal = nearest(batch.base_sequence, first)
        if ordinal + batch.count > first:
            found += intervals.uncovered((max(ordinal, first), ordinal + batch.count), located.open)
    placed = Runs([*located.runs])
    pieces = [(start, behind, placed) for start, behind in found]
    pieces += [(start, behind, lane.record.source_runs) for start, behind in intervals.uncovered((first, end), found)]
    runs = Runs()
    for start, behind, known in sorted(pieces, key=lambda each: each[0]):
        for ordinal, offset, _ in known.between(start, behind - 1):
            runs.add(ordinal, offset)
    return list(runs)


def _found_epochs(lane: Lane, own: Sequence[OwnBatch], first: int, end: int) -> tuple[tuple[int, int], ...]:
    """Return the target's leader epochs of the rebuilt ordinals (`MapRebuilt.found_epochs`). The target had no records
    from the ordinal `end` onward, so batches of those ordinals can only have the present epoch or a later one."""
    found: list[tuple[int, int]] = []
    behind = first
    for batch in (*own, OwnBatch(lane.log.end, 0, end % SEQUENCES, 0, lane.log.end_epoch)):
        ordinal = nearest(batch.base_sequence, first)
        gap = [(behind, -1)] if behind < ordinal else []
        found += [each for each in (*gap, (ordinal, batch.leader_epoch)) if not found or found[-1][1] != each[1]]
        behind = ordinal + batch.count
    return tuple(found)


def _in_doubt(lane: Lane, follow: Sequence[Run], epochs: Epochs) -> list[SourceRun]:
    """If the ordinals after the rebuilt ones are in doubt, return a fact that records their runs again and marks them
    as in doubt (`SourceRun.regiven`). The fact is needed because `MapRebuilt` removes this mark, although further
    batches that were sent before the map was rebuilt may be appended after those that were found. Return an empty list
    if there can be no such batches."""
    record, first = lane.record, follow[0].ordinal
    is_marked = record is not None and record.regiven >= 0 and not 0 <= record.regiven_until <= first
    if not is_marked and not in_doubt.was_given(lane, first):
        return []
    later = tuple(each for each in epochs if each[0] >= first)
    return [SourceRun(lane.id, lane.grant, tuple(follow), (), later, regiven=True)]


def _ending(lane: Lane, verdicts: Sequence[Verdict]) -> LaneFact:
    """Return the last fact of the entry: the lane resumes, or is halted because of a loss."""
    loss = rebuilt_verdicts.loss(verdicts)
    if loss is None or lane.on_loss == "continue":
        return LaneResumed(lane.id, lane.grant)
    line = f"{lane.source_topic}-{lane.partition}: {loss.line}"
    return LaneHalted(lane.id, lane.grant, loss.reason, line, loss.start, loss.end)
