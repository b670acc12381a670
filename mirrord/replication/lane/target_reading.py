"""Interprets the target log during a resume: determines, from the scanned batches, the position at which the lane
continues.

The log is read from the resume position onward. If the lane's records before that position are no longer at their
recorded target offsets, earlier parts of the log are read (see `mirrord.replication.lane.target.look_back`). If
ordinals are missing in a compacted log, they are looked up by the keys of their records (see
`mirrord.replication.lane.target.missing_ordinals`).
"""

from collections.abc import Sequence

from msgspec.structs import replace

from mirrord.kafka.protocol.sequence import nearest
from mirrord.kafka.rules.error_policy import NONE
from mirrord.ledger.facts.core import LaneFact, Verdict, VerdictGiven
from mirrord.replication.lane import difference, rebuilding, resume_point
from mirrord.replication.lane.correlation import ask
from mirrord.replication.lane.halt import halt
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.notes import note
from mirrord.replication.lane.phases import Stage
from mirrord.replication.lane.signals import (
    AskScan,
    Effects,
    OwnBatch,
    ScanAnswer,
)
from mirrord.replication.lane.source import left_out_epochs
from mirrord.replication.lane.state import Lane, ResumePosition
from mirrord.replication.lane.target import (
    deleted_records,
    displaced_ordinals,
    epoch_ends,
    hole_repair,
    look_back,
    lookup_after_rebuild,
    missing_ordinals,
    out_of_order,
    refused_retry,
    target_scan,
)
from mirrord.replication.lane.target.evidence import (
    copied_until,
    has_lost_records,
    known_until,
    next_by_entry,
    went_back,
)
from mirrord.replication.lane.target.scan_result import Log, Reading
from mirrord.replication.lane.target.superseded_records import AskShared, SharedAnswer, SupersededAnswer


def scan_answered(lane: Lane, now: float, answer: ScanAnswer) -> Effects:
    """Handle the result of scanning the target log after the resume position."""
    if answer.error != NONE or answer.leader_epoch > lane.log.end_epoch:
        # If a later leader has appended a batch below the end, an unclean election has removed records since the lane
        # asked for the end, and what the former leader remembers about the producer does not apply to this log.
        return lane.retry()
    log = missing_ordinals.read(lane, answer)
    if displaced_ordinals.must_ask(lane):
        return _ask_unchanged(lane, answer)
    target_scan.begins_at(lane, answer.own)
    if lane.stage is Stage.VERIFY:
        return _verified(lane, now, answer, log)
    expected, own = lane.resume_position.ordinal, answer.own
    if answer.start < lane.resume_position.target_offset and lane.resume_position.ordinal > 0:
        if not _is_unchanged_below(lane, own):
            return _read_below(lane, own)
        own, expected = target_scan.after_position(lane, own)
        log = log._replace(start=own[0].base_offset if own is answer.own else lane.resume_position.target_offset)
    elif deleted_records.must_ask(lane, answer):
        return missing_ordinals.ask_shared(lane)
    elif deleted_records.seem_lost(lane, answer):
        if lane.log.shared == missing_ordinals.NOT_ASKED:
            return missing_ordinals.ask_shared(lane)
        lane.log.shared = missing_ordinals.NOT_KNOWN
        return look_back.begin(lane)
    elif not own and lane.log.cleaned and target_scan.never_appended(lane, next_by_entry(lane), answer.start):
        pass  # Retention cannot have deleted all of the records, but the cleaner may have removed some of them.
    elif not own and 0 < answer.start == lane.log.log_start and next_by_entry(lane) > expected:
        # The log has none of the lane's records. The records that the broker remembers were appended to this log, so
        # retention on the target has deleted them.
        return _read(lane, now, target_scan.all_deleted(lane, next_by_entry(lane), answer), log)
    elif deleted_records.are_below(lane, answer) and own:
        # Retention on the target has already deleted the records right after the resume position.
        first = nearest(own[0].base_sequence, expected)
        again = target_scan.never_appended(lane, first, min(answer.start, own[0].base_offset))
        expected = again[0][0] if again else max(expected, first)
    return _read(lane, now, target_scan.walk(lane, own, expected, log), log)


def _is_unchanged_below(lane: Lane, own: Sequence[OwnBatch]) -> bool:
    """Return whether the target log has the record before the resume position, from the log in which this position was
    recorded. If the lane has already asked up to which offset that log is unchanged, the answer counts."""
    is_asked = lane.log.shared != missing_ordinals.NOT_ASKED
    return target_scan.holds_position(lane, own) and (is_asked or not any(epoch_ends.of_another_log(lane, own[:1])))


def _read_below(lane: Lane, own: Sequence[OwnBatch]) -> Effects:
    """Read the target log below the resume position. If it has the record before this position, the leader is first
    asked up to which offset its log is the one in which the position was recorded."""
    return missing_ordinals.ask_shared(lane) if target_scan.holds_position(lane, own) else look_back.begin(lane)


def _ask_unchanged(lane: Lane, answer: ScanAnswer) -> Effects:
    """Ask up to which offset the target log has remained unchanged since ordinals were last assigned to other records.
    The result of the scan is kept until then."""
    record = lane.record
    lane.log.held_scan = answer
    return [AskShared(ask(lane), record.rewinds[-1][1].leader_epoch)] if record is not None else []


def _read(lane: Lane, now: float, found: Reading, log: Log) -> Effects:
    if found.doubled is not None:
        return target_scan.halt_on_repeat(lane, found.doubled)
    if lane.log.entry is not None and found.next_ordinal > next_by_entry(lane) and not went_back(lane):
        return lane.retry()  # a former holder's batch was appended after the broker was asked
    may_be_cleaned = lane.log.cleaned and not log.is_policy_unknown
    if lane.protected and found.next_ordinal < next_by_entry(lane) and not may_be_cleaned:
        line = (
            f"the target broker remembers ordinal {next_by_entry(lane) - 1} as the lane's last one, but its log ends "
            f"with {found.next_ordinal - 1}"
        )
        return halt(lane, "unexplained", line, lane.position, lane.position)
    if found.void < NEVER:
        return missing_ordinals.look_up_between(lane, found, log) or difference.filled(lane, now, found)
    stood = found.next_ordinal if lane.log.entry is None else max(found.next_ordinal, next_by_entry(lane))
    lost = missing_ordinals.lost_ordinals(lane, stood) if lane.log.cleaned else ()
    return missing_ordinals.look_up(lane, found, log, lost) or judged(lane, found)


def judged(lane: Lane, found: Reading) -> Effects:
    """Resume, now that it is known what the target log holds and what became of its missing ordinals. If the next step
    must wait until no batch that was sent earlier can still be appended, wait first, and then read the log again."""
    if resume_point.must_wait_to_mend(lane, found) or resume_point.must_wait_to_void(lane, found.next_ordinal):
        return resume_point.wait_to_mend(lane)
    return _keep(lane, found, ()) + resume_point.resume_at(lane, found.next_ordinal, found.begins)


def _keep(lane: Lane, found: Reading, more: tuple[LaneFact, ...]) -> Effects:
    """Record the facts that follow from the scan. If records must be copied again under new ordinals, the facts are not
    recorded yet. A later entry will contain them together with the plan for the new ordinals."""
    lane.log.holes = list(found.holes)
    waits = bool(lane.log.holes) or lane.log.copied_again is not None
    lane.log.facts_with_holes = (*more, *found.facts) if waits else ()
    return [] if waits else note(lane, (*more, *found.facts))


def _verified(lane: Lane, now: float, answer: ScanAnswer, log: Log) -> Effects:
    own = answer.own
    if (repeat := target_scan.repeat_behind_position(lane, own)) is not None:
        return target_scan.halt_on_repeat(lane, repeat)
    is_late = not own or target_scan.is_later(lane, own[0]) or target_scan.begins_late(lane, own, answer.start)
    is_whole = log.is_policy_unknown and not is_late and _holds_all(lane, log, own)
    must_ask = missing_ordinals.must_ask(lane) and not is_whole
    if must_ask or (answer.start > lane.log.log_start and is_late and lane.log.shared < 0):
        return look_back.begin(lane)
    asks = is_late and deleted_records.must_ask(lane, answer)
    if asks or (deleted_records.seem_lost(lane, answer) and lane.log.shared == missing_ordinals.NOT_ASKED):
        return missing_ordinals.ask_shared(lane)
    is_refused = out_of_order.is_position_refused(lane)
    if is_refused and not own and not out_of_order.is_all_deleted(lane):
        return out_of_order.halt_without_batches(lane)
    found = _from_below(lane, answer, log)
    if is_refused:
        # The log has not changed since the lane resumed under this leader. A lookup of other ordinals could bring back
        # keys that other clients have deleted since.
        first = max(found.next_ordinal if own else next_by_entry(lane), out_of_order.first_in_doubt(lane))
        found = replace(found, missing=(), next_ordinal=first)
    if lane.comparison.differs is not None:
        return missing_ordinals.look_up_between(lane, found, log) or rebuilding.verified(lane, found)
    if found.doubled is not None or found.next_ordinal >= lane.resume_position.ordinal:
        return _read(lane, now, found, log)
    if found.void < NEVER:
        return missing_ordinals.look_up_between(lane, found, log) or difference.filled(lane, now, found)
    lost = missing_ordinals.lost_ordinals(lane, found.next_ordinal) if lane.log.cleaned else ()
    return missing_ordinals.look_up(lane, found, log, lost) or went_back_to(lane, found)


def _is_noted_after_others(lane: Lane, answer: ScanAnswer) -> bool:
    """Return whether the records that the broker remembers are deleted, and the resume position was noted after other
    clients' records before the lane requested what the broker remembers."""
    is_all_deleted = not answer.own and answer.start == lane.log.log_start
    return is_all_deleted and lane.mode == "at-least-once" and next_by_entry(lane) > lane.resume_position.ordinal


def _from_below(lane: Lane, answer: ScanAnswer, log: Log) -> Reading:
    """Return the result of a scan that began below the resume position. The ledger shows which ordinal the log should
    have first."""
    own, is_lost = answer.own, has_lost_records(lane)
    if lane.log.shared >= 0 or (lane.log.cleaned and not own):
        first, is_lost = target_scan.ordinal_before(lane, max(answer.start, lane.log.shared)), True
        own, log = target_scan.from_ordinal(lane, own, log, first)
        found = target_scan.walk(lane, own, first, log)
    elif _is_noted_after_others(lane, answer):
        first = next_by_entry(lane)
        found = target_scan.all_deleted(lane, first, answer)
    elif not own:
        # If there is no record of the lane left to read, the runs show which ordinal was at the end of the log or at
        # the offset of another writer's first record.
        displaced = target_scan.displaced_at(lane, answer.others)
        first = target_scan.ordinal_at(lane, lane.log.end if displaced is None else displaced)
        if lane.log.entry is not None and answer.start == lane.log.log_start:
            # The runs may be those of a log that the leader does not have. It accepts no other ordinal than this one.
            first = min(first, next_by_entry(lane))
        found = Reading(first, (), (), None)
    else:
        late = target_scan.begins_late(lane, own, answer.start)
        first = nearest(own[0].base_sequence, lane.resume_position.ordinal)
        first = target_scan.ordinal_at(lane, answer.start) if late else first
        if is_lost and lane.log.cleaned:
            first = min(first, target_scan.first_possible_from(lane, answer.start))
        found = target_scan.walk(lane, own, first, log)
    if deleted_records.are_below(lane, answer) and not lane.log.cleaned:
        found = deleted_records.read(lane, answer, log, first) or found
    if is_lost:
        found = replace(found, missing=(*displaced_ordinals.below(lane, first), *found.missing))
    return found


def _holds_all(lane: Lane, log: Log, own: Sequence[OwnBatch]) -> bool:
    """Return whether the target log still has everything that it had when the resume position was recorded. If so, it
    makes no difference whether the topic is compacted. The caller must have checked that no ordinal is missing before
    the first of the lane's own batches."""
    if has_lost_records(lane):
        return False
    found = target_scan.walk(lane, own, nearest(own[0].base_sequence, lane.resume_position.ordinal), log)
    lacks = found.missing or found.holes or found.doubled is not None
    return not lacks and found.next_ordinal >= lane.resume_position.ordinal


def went_back_to(lane: Lane, found: Reading, kept: tuple[tuple[int, int], ...] | None = None) -> Effects:
    """Copy again the records that were lost at the end of the target log. If `kept` is given, only the lost records
    with these ordinals (first, last) are copied again. In this case, the target log is compacted and holds newer
    records with the same keys as the remaining lost records."""
    must_wait = kept is not None and lane.late_writes.end_read_at < lane.late_writes.until
    if (
        must_wait
        or resume_point.must_wait_to_mend(lane, found)
        or resume_point.must_wait_to_void(lane, found.next_ordinal)
    ):
        return resume_point.wait_to_mend(lane)
    ordinal = found.next_ordinal
    until = known_until(lane)
    went = f"the target log went back from ordinal {until} to {ordinal}: these records are copied again"
    if ordinal >= max(lane.resume_position.ordinal, lane.acked):
        until = max(until, lane.log.lost_ordinals[-1][1] + 1) if lane.log.lost_ordinals else until
        went = f"ordinals {ordinal} to {until - 1}, which the target log lost earlier, are copied again"
    verdicts: list[Verdict] = []
    epochs: left_out_epochs.EpochRanges = ()
    if kept is not None and lane.record is not None:
        missing_ordinals.go_back(lane, kept)
        verdicts = missing_ordinals.leave_out(lane, lane.record, kept)
        copied = missing_ordinals.epochs_when_copied(lane) or lane.record.epochs
        epochs = left_out_epochs.of_left_out(lane.record, copied, lane.log.lost_ordinals, kept)
        if verdicts:
            went += ", except those for which the target has a newer record with the same key"
    elif found.holes or lane.log.earlier:
        # A position of the present leader epoch would no longer show that an election has brought these batches back.
        missing_ordinals.remember_position(lane)
    if out_of_order.is_position_refused(lane):
        # No leader epoch has ended, so nothing but the ledger shows the next holder that the saved position is wrong.
        missing_ordinals.note_unproven(lane, lane.resume_position.ordinal)
    missing_ordinals.note_lost(lane, ordinal)
    lane.resume_position = ResumePosition(ordinal, lane.log.end, lane.log.end_epoch)
    lane.recorded_position = min(lane.recorded_position, lane.resume_position, key=lambda each: each.ordinal)
    lane.acked = lane.trusted = min(lane.trusted, ordinal)
    verdict = VerdictGiven(lane.id, lane.grant, tuple(verdicts), went, epochs)
    return _keep(lane, found, (verdict,)) + resume_point.resume_at(lane, ordinal, found.begins)


def shared_answered(lane: Lane, now: float, answer: SharedAnswer) -> Effects:
    """Handle the answer to `AskShared`. The answer shows up to which offset the target log has remained unchanged since
    the resume position was recorded, or since ordinals were assigned to other records."""
    held, lane.log.held_scan = lane.log.held_scan, None
    if lane.stage is not Stage.SHARED and held is None:
        return []
    if answer.error != NONE:
        return lane.retry()
    if held is not None:
        lane.log.unchanged = (answer.epoch, answer.end)
        return scan_answered(lane, now, held)
    lane.log.epoch_end = max(lane.log.epoch_end, answer.end)
    known = epoch_ends.known(lane)
    if answer.epoch not in known or answer.end < 0:
        lower = max((each for each in known if 0 <= each < answer.epoch), default=-1)
        if lower >= 0:
            return [AskShared(ask(lane), lower)]
        lane.log.shared = missing_ordinals.NOT_KNOWN
        return look_back.begin(lane)
    lane.log.shared = min(answer.end, known[answer.epoch], lane.resume_position.target_offset)
    if answer.end > lane.log.log_start:  # otherwise the log may not have this epoch (see `SharedAnswer`)
        epoch_ends.note_shared(lane, answer.epoch)
        lane.log.is_shared_proven = True
    is_whole = lane.log.shared == lane.resume_position.target_offset
    if is_whole and lane.comparison.differs is not None:
        return rebuilding.search(lane)
    lane.stage = Stage.SCAN if is_whole else Stage.VERIFY
    purpose = "resume" if is_whole else "verify"
    begin = lane.log.shared if is_whole else target_scan.begin_above(lane, lane.log.shared)
    start, expected = max(begin, lane.log.log_start), lane.resume_position.ordinal
    return [AskScan(ask(lane), purpose, lane.producer_id, start, lane.log.end, expected, copied_until(lane))]


def superseded_answered(lane: Lane, now: float, answer: SupersededAnswer) -> Effects:
    """Handle the result of looking up missing ordinals by the keys of their records."""
    found = lane.log.scan
    if lane.stage is not Stage.MISSING or found is None:
        return []
    if answer.error != NONE:
        return lane.retry()
    if answer.trouble:
        line = f"it is not known whether the target lost records or a cleaner removed them: {answer.trouble}"
        return halt(lane, "unexplained", line, lane.position, lane.position)
    if answer.depends_on_policy:
        return _halt_without_policy(lane, now)
    holes = sorted([*found.holes, *(each for each in answer.again if each[0] < found.next_ordinal)])
    again = tuple(each for each in answer.again if each[0] >= found.next_ordinal)
    found, until = _copied_again(lane, found, again, answer.until)
    ordinal = max(found.next_ordinal, until)
    lane.log.last_by_look_up = (found.next_ordinal, ordinal) if ordinal > found.next_ordinal else None
    lane.log.look_up_epoch = answer.until_epoch
    facts = displaced_ordinals.recorded(lane, found, answer.again, until)
    if holes or again != lane.log.lost_ordinals:
        lookup_after_rebuild.note_plan(lane, found.missing)
    found = replace(found, holes=tuple(holes), facts=facts, missing=(), next_ordinal=ordinal)
    lane.log.scan = None
    if lane.comparison.differs is not None:
        return rebuilding.verified(lane, found)
    if found.void < NEVER:
        return difference.filled(lane, now, found)
    if not lane.log.lost_ordinals:
        is_shorter = not lane.log.cleaned and found.next_ordinal < lane.resume_position.ordinal
        return went_back_to(lane, found) if is_shorter else judged(lane, found)
    # The records of the holes get the ordinals of lost records. Even so, the lost records must not be forgotten.
    selects = bool(holes) or again != lane.log.lost_ordinals or _has_unknown_from(lane, found.next_ordinal)
    selects = selects or (lane.record is not None and not hole_repair.are_in_order(lane, lane.record, again))
    return went_back_to(lane, found, again if selects else None)


def _copied_again(lane: Lane, found: Reading, again: Sequence[tuple[int, int]], until: int) -> tuple[Reading, int]:
    """Adjust the result of a lookup of lost records and of those that may have been appended after them. `again`
    contains the lost ordinals whose records are not superseded, and the later records below the ordinal `until` were
    appended, and then removed by the cleaner.

    If there are such later records, the lost ones had been copied again before them, so all of these ordinals count as
    appended. Otherwise, or if some of the lost records are not superseded, nothing was appended after the loss: the
    lane copies in the order of ordinals."""
    if not lane.log.lost_ordinals:
        return found, until
    if again or until <= lane.log.lost_ordinals[-1][1] + 1:
        return found, -1
    lane.log.lost_ordinals = ()
    missing = (replace(each, kind="last") if each.last >= found.next_ordinal else each for each in found.missing)
    return replace(found, missing=tuple(missing)), until


def _has_unknown_from(lane: Lane, ordinal: int) -> bool:
    """Return whether a rebuild could not determine the record of this ordinal or a later one (`HoleFound.is_open`). The
    source may have other records at the offsets that the ledger has for such ordinals. If these were copied under them,
    older records that have higher ordinals would follow."""
    holes = lane.record.holes if lane.record is not None else ()
    return any(hole.is_open and hole.last >= ordinal for hole in holes)


def _halt_without_policy(lane: Lane, now: float) -> Effects:
    """Halt until mirrord has permission to read the cleanup.policy of the target topic. If the topic is compacted, lost
    records must not be appended over newer values. If it is not compacted, they must be copied again."""
    line = (
        "the target log lacks records for which it has newer ones with the same keys, and it is not known whether the "
        f"topic {lane.target_topic} is compacted: grant DESCRIBE_CONFIGS on this topic on the target"
    )
    effects = halt(lane, "unexplained", line, lane.position, lane.position)
    return [*effects, refused_retry.read_configs_after_pause(lane, now)]
