"""Handles a truncation of the source: in an unclean election, the source loses records that have already been copied.
It then assigns the offsets of these records to other records in a higher leader epoch.

A fetch request carries the epoch of the last batch before its position. The source broker can therefore detect that its
log diverges from the copied records (KIP-595, `diverging_epoch`). The copied records stay in the target. The ledger
records the verdict "truncated" on the range of source offsets. The lane goes back to the point of divergence, and
copies the new records under new ordinals.

Like the repair of a hole, this reassigns the next ordinals. The lane therefore goes back only under three conditions:
all batches in flight have been answered, the target has been asked for the end of its log, and no previous holder can
still write.
"""

from itertools import pairwise

from mirrord.kafka.rules.error_policy import NONE
from mirrord.ledger.facts.core import SourceRun, Verdict
from mirrord.ledger.seeks import accepts_loss, passed
from mirrord.model.runs import Run
from mirrord.replication.lane import difference, intake
from mirrord.replication.lane.correlation import append, ask, new_round
from mirrord.replication.lane.halt import halt
from mirrord.replication.lane.lane_report import resume_position
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.phases import Phase, Stage
from mirrord.replication.lane.second_path import NOT_YET
from mirrord.replication.lane.signals import AskDivergence, Chunk, DivergenceAnswer, Effects, Lost, StopFetch, Wake
from mirrord.replication.lane.source import last_copied, recorded_epochs, source_epochs
from mirrord.replication.lane.source.copied_pieces import highest_copied
from mirrord.replication.lane.source.epoch_search import EpochSearch
from mirrord.replication.lane.source.left_out_ranges import left_out
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target import in_doubt, position_rewind
from mirrord.replication.lane.transitions import Quiesce

OUT_OF_RANGE = 1


def fetch_diverged(lane: Lane, now: float, chunk: Chunk) -> Effects:
    """Handle a fetch response that reports that the source log diverges from the batches that the lane has fetched."""
    log = chunk.diverging_epoch, chunk.diverging_end
    start = last_copied.divergence(lane, *log)
    if start >= lane.position:
        # The only records that are gone were fetched but not copied, so the position stays the same.
        lane.seen.diverge(chunk.diverging_end, lane.epoch)
        lane.epoch = lane.seen.before(lane.position)
        lane.history.source_confirmed = False
        return intake.want_more(lane)
    if lane.plan:
        return _lose_promised(lane, start, log)
    return _lose(lane, now, start, log, lane.position)


def _lose(lane: Lane, now: float, start: int, log: tuple[int, int], until: int) -> Effects:
    """Handle the loss of the source offsets [start, until), which the lane has read. `log` is from the broker's answer:
    the highest epoch in its log that is not above the requested one, and the offset at which this epoch ends. Once
    the lane has recorded the loss, it carries out the commands to seek ahead that end below the lost records, and the
    command with which an operator has accepted the loss."""
    gone = Verdict(_gone_from(lane, start, log, until), until, "truncated")
    if must_halt(lane, start):
        return _halt(lane, start, gone)
    if not is_settled(lane):
        lane.go(Quiesce())
        return []
    effects = [*_compare_again(lane, now), *_go_back(lane, start, gone, _passed_as(lane, gone))]
    if lane.seeks or accepts(lane, start):
        lane.go(Quiesce())
    return effects


def must_halt(lane: Lane, start: int) -> bool:
    """Return whether the flow halts when the source loses records that were copied or skipped, and no operator has
    accepted that it has lost those from the offset `start` on."""
    return lane.on_loss == "halt" and not accepts(lane, start)


def accepts(lane: Lane, start: int) -> bool:
    """Return whether an operator has accepted that the source has lost copied records from the offset `start` on."""
    return lane.record is not None and accepts_loss(lane.record.seeks, start)


def ends_below(lane: Lane, end: int) -> Effects:
    """Handle a source log that ends at the offset `end`, below the lane's position.

    The fetch did not contain the epoch of the record before the position, because the lane has leapt over this record.
    Otherwise, the broker would have reported the divergence. The lane asks where the log diverges from the last copied
    record whose epoch it knows, and goes back to this offset. If the source still has that record, the lane goes back
    to the offset after it, and copies what the source has there now.

    The lane halts if this would not be safe. The reason may be that the lane does not know the epochs of later records
    that it has copied. The source may still have them, and they would be copied again. Or the broker does not report
    divergences, so the log may have lost copied records and may have grown again since.
    """
    if lane.plan:
        # The fetch did not show whether the source has lost the records that follow. The lane asks for this.
        is_again = lane.history.suspected_position == lane.position
        if not is_again and not must_halt(lane, end):
            lane.history.suspected_position, lane.history.source_confirmed = lane.position, False
            if last_copied.besides_plan(lane) is not None:
                return intake.want_more(lane)
        return _halt_at_end(lane, end)
    lane.history.short_end = end
    return ask_short(lane)


def _halt_at_end(lane: Lane, end: int) -> Effects:
    line = f"the source log ends at offset {end}, below the position {lane.position}"
    lane.history.short_end = -1
    return halt(lane, "truncated", line, max(end, 0), lane.position)


def ask_short(lane: Lane) -> Effects:
    """Ask where the source log diverges from the copied records, because it ended below the lane's position.

    The request contains this position. If the log still ends below it, the broker must report a divergence.
    """
    if lane.epoch >= 0 or must_halt(lane, lane.history.short_end):
        return _halt_at_end(lane, lane.history.short_end)
    if not is_settled(lane):
        lane.go(Quiesce())
        return []
    left = last_copied.left_at(lane, last_copied.read_until(lane), lane.next_ordinal, lane.position)
    if left is None:
        return _halt_at_end(lane, lane.history.short_end)
    if left[1] < 0:
        return _return(lane, left[0])
    lane.fetching, lane.history.divergence_question = True, ask(lane)
    return [AskDivergence(lane.history.divergence_question, lane.position, left[1])]


def _halt(lane: Lane, start: int, gone: Verdict) -> Effects:
    """Halt because the source has lost the records that `gone` names. The lane would go back to `start`, so an operator
    has to accept the loss from this offset on."""
    what = _passed_as(lane, gone)
    line = f"the source log was truncated: offsets [{gone.start}, {gone.end}) that were {what} are gone"
    return halt(lane, "truncated", line, start, gone.end)


def divergence_answered(lane: Lane, now: float, answer: DivergenceAnswer) -> Effects:
    """Handle the answer to `AskDivergence`, which shows whether the source still has the copied records."""
    if lane.phase is not Phase.COPYING:
        return []
    if lane.history.asked_before_seek is not None:
        return _seek_answered(lane, now, answer) if answer.question == lane.history.divergence_question else []
    if lane.history.asked_before_reading is not None:
        return _reading_answered(lane, now, answer) if answer.question == lane.history.divergence_question else []
    if lane.history.unconfirmed_chunk is not None or lane.history.short_end >= 0:
        return _confirmation_answered(lane, now, answer) if answer.question == lane.history.divergence_question else []
    if not lane.plan:
        return []
    start = last_copied.divergence(lane, answer.epoch, answer.end) if answer.end >= 0 else NEVER
    if start < _promised_until(lane):
        return _lose_promised(lane, start, (answer.epoch, answer.end))
    # A broker that is too old to report a divergence shows only whether the position is within its log.
    lane.history.source_confirmed = start < NEVER or answer.error in {NONE, OUT_OF_RANGE}
    lane.history.divergence_question = ask(lane)
    wake = Wake(lane.history.divergence_question, now + lane.limits.retry_s, refresh=answer.error != NONE)
    return [*(intake.want_more(lane) if lane.history.source_confirmed else ()), wake]


def ask_again(lane: Lane, now: float) -> Effects:
    """After a pause, ask again whether the source still has the records that are to be copied again. The source had
    them when it was last asked. If it has lost them in the meantime, a fetch returns nothing, and only this request
    reveals the loss."""
    if lane.phase is not Phase.COPYING:
        return []
    if lane.history.asked_before_seek is not None:
        return _ask_before_seek(lane, lane.history.asked_before_seek)
    if lane.history.asked_before_reading is not None:
        return _ask_before_reading(lane, lane.history.asked_before_reading)
    if lane.history.short_end >= 0:
        return ask_short(lane)
    if lane.history.unconfirmed_chunk is not None:
        return confirm_source(lane, lane.history.unconfirmed_chunk)
    if not lane.plan:
        return []
    if lane.history.source_confirmed and not lane.fetching:
        lane.history.divergence_question = ask(lane)
        return [Wake(lane.history.divergence_question, now + lane.limits.retry_s)]
    lane.history.source_confirmed = False
    return intake.assure(lane)


def begin_to_read(lane: Lane) -> Effects:
    """Request the first chunk of a round. If the fetch carries no epoch, first ask whether the source still has the
    copied records.

    The answer does not replace the question of `confirm_source`. However, if the source has lost copied records and
    its log now ends exactly at the lane's position, the fetch returns nothing until the next record is written.
    """
    known = None if lane.epoch >= 0 or lane.plan or lane.fetching else last_copied.read_until(lane)
    return intake.want_more(lane) if known is None else _ask_before_reading(lane, known)


def _ask_before_reading(lane: Lane, known: tuple[int, int]) -> Effects:
    lane.history.asked_before_reading, lane.fetching = known, True
    lane.history.divergence_question = ask(lane)
    return [AskDivergence(lane.history.divergence_question, *known)]


def _reading_answered(lane: Lane, now: float, answer: DivergenceAnswer) -> Effects:
    """Handle the answer to the question of `begin_to_read`."""
    known = lane.history.asked_before_reading
    if known is None or answer.error not in {NONE, OUT_OF_RANGE}:
        return _ask_later(lane, now)
    lane.history.asked_before_reading, lane.fetching = None, False
    lost = _handle_loss(lane, now, answer, known[0])
    return intake.want_more(lane) if lost is None else lost


def _ask_later(lane: Lane, now: float) -> Effects:
    """Ask the same question again after a pause, because the broker could not answer it."""
    lane.history.divergence_question = ask(lane)
    return [Wake(lane.history.divergence_question, now + lane.limits.retry_s, refresh=True)]


def _handle_loss(lane: Lane, now: float, answer: DivergenceAnswer, until: int) -> Effects | None:
    """If the answer shows that the source has lost copied records below the offset `until`, handle the loss. Otherwise,
    return None."""
    start = last_copied.divergence(lane, answer.epoch, answer.end) if answer.end >= 0 else NEVER
    return None if start >= until else _lose(lane, now, start, (answer.epoch, answer.end), until)


def is_unconfirmed(lane: Lane, chunk: Chunk) -> bool:
    """Return whether the lane must ask the source whether it still has the copied records.

    After a leap, no epoch is known that a fetch request could carry (KIP-595), so the broker cannot report a
    divergence. The source may have lost records after they were copied, and its log may since have grown beyond the
    lane's position again.
    """
    if lane.history.source_confirmed or lane.plan or chunk.end <= chunk.start:
        return False
    lane.history.source_confirmed = last_copied.read_until(lane) is None  # there is nothing to ask about
    return not lane.history.source_confirmed


def confirm_source(lane: Lane, chunk: Chunk) -> Effects:
    """Ask whether the source still has the copied records. The chunk has already been fetched and is kept until the
    answer arrives. If the source log is truncated later, the next fetch detects this because it carries the chunk's
    epoch."""
    known = last_copied.read_until(lane)
    if known is None:
        # The ledger already shows that the copied records are lost. The chunk is fetched again.
        lane.history.unconfirmed_chunk, lane.fetching, lane.history.source_confirmed = None, False, True
        return intake.want_more(lane)
    lane.history.unconfirmed_chunk, lane.fetching, lane.history.divergence_question = chunk, True, ask(lane)
    return [AskDivergence(lane.history.divergence_question, *known)]


def _confirmation_answered(lane: Lane, now: float, answer: DivergenceAnswer) -> Effects:
    history = lane.history
    if answer.error not in {NONE, OUT_OF_RANGE}:
        return _ask_later(lane, now)
    known = last_copied.read_until(lane)
    start = last_copied.divergence(lane, answer.epoch, answer.end) if answer.end >= 0 else NEVER
    lane.fetching = False
    is_whole = known is None or start >= known[0]
    if is_whole and history.short_end < 0:
        history.source_confirmed = True  # `lane.step` processes the chunk next
        return []
    history.unconfirmed_chunk = None
    if known is None or (is_whole and answer.error == OUT_OF_RANGE):
        return _halt_at_end(lane, history.short_end)
    if not is_whole:
        return _lose(lane, now, start, (answer.epoch, answer.end), known[0])
    if not is_settled(lane):
        lane.go(Quiesce())
        return []
    return [*_compare_again(lane, now), *_return(lane, known[0])]


def confirm_before_seek(lane: Lane, lost_from: int) -> Effects:
    """Ask whether the source still has the copied records, before the lane seeks ahead. If it did not, the lane would
    not read the records that the source has at the lost offsets now, and would not notice the loss before the next
    record arrives. Return no effects once the lane may seek ahead.

    `lost_from` is the lowest offset of the loss that the operator has accepted, or -1. If no epoch is known, the source
    cannot be asked. The lane has then halted because the source log ended at this offset, and it goes back to it.
    """
    record = lane.record
    if not lane.history.source_confirmed and (known := _copied_before_seek(lane)) is not None:
        return _ask_before_seek(lane, known)
    if not 0 <= lost_from < lane.position or lane.epoch >= 0 or record is None:
        return []
    last = highest_copied(record, 0, lane.next_ordinal, lane.position)
    copied_until = 0 if last is None else last[0] + 1
    if lost_from < copied_until and not lane.history.source_confirmed:
        lane.go(Quiesce())
        return _go_back(lane, lost_from, Verdict(lost_from, copied_until, "truncated"), "copied")
    # The source has lost no copied records, but the lane had skipped offsets that the source uses again.
    lane.position = min(lane.position, max(lost_from, copied_until))
    lane.seen.truncate(lane.position)
    return []


def _copied_before_seek(lane: Lane) -> tuple[int, int] | None:
    return (lane.position, lane.epoch) if lane.epoch >= 0 else last_copied.read_until(lane)


def ask_leader_epoch(lane: Lane, end: int) -> Effects:
    """Ask for the source's leader epoch before the lane seeks ahead to the offset `end`, because there was no copied
    record to ask about, or the source has deleted it. Return no effects if the lane has asked in this round already:
    the epoch then stays unknown."""
    if lane.history.epoch_asked_in == lane.round:
        return []
    lane.history.epoch_asked_in = lane.round
    return _ask_before_seek(lane, (end, recorded_epochs.UNKNOWN))


def ask_skipped_epochs(lane: Lane, start: int, end: int) -> Effects:
    """Ask for the leader epochs of the records at the source offsets [start, end) before the lane skips them. Return no
    effects once the answers are known (`SourceHistory.epoch_search`)."""
    search = lane.history.epoch_search
    if search is None or (search.start, search.end) != (start, end):
        search = lane.history.epoch_search = EpochSearch(start, end, lane.source_epoch)
    return [] if search.is_done else _ask_before_seek(lane, search.question)


def _ask_before_seek(lane: Lane, known: tuple[int, int]) -> Effects:
    lane.history.asked_before_seek, lane.fetching = known, True
    lane.history.divergence_question = ask(lane)
    return [AskDivergence(lane.history.divergence_question, *known)]


def _seek_answered(lane: Lane, now: float, answer: DivergenceAnswer) -> Effects:
    """Handle the answer to the question of `confirm_before_seek`. If the source still has the copied records, the lane
    seeks ahead (see `lane.step`)."""
    known, search = lane.history.asked_before_seek, lane.history.epoch_search
    if known is None or answer.error not in {NONE, OUT_OF_RANGE}:
        return _ask_later(lane, now)
    lane.history.asked_before_seek, lane.fetching = None, False
    if search is not None and known == search.question:
        return _search_answered(lane, search, answer)
    lost = _handle_loss(lane, now, answer, known[0])
    if lost is not None:
        return lost
    lane.history.source_confirmed = True
    return []


def _search_answered(lane: Lane, search: EpochSearch, answer: DivergenceAnswer) -> Effects:
    """Handle the answer to a request of `ask_skipped_epochs`. If another leader has answered, its log may be a
    different one. The lane then begins again, and first asks whether the source still has the copied records."""
    if answer.error == NONE and answer.leader_epoch != search.leader_epoch:
        lane.history.epoch_search, lane.history.epoch_asked_in = None, -1
        known = _copied_before_seek(lane)
        lane.history.source_confirmed = known is None
        return [] if known is None else _ask_before_seek(lane, known)
    lane.source_epoch = search.leader_epoch
    lane.history.epoch_search = search = search.after(answer)
    if 0 <= search.log_end < search.end:
        lane.source_end = search.log_end  # the records that were to be skipped do not exist yet
    return []


def another_record(lane: Lane, now: float) -> Effects:
    """Handle a source record that is not the record to be copied again. Either the source has lost the record to be
    copied again, or the offset map is wrong."""
    if lane.history.suspected_position == lane.position:
        return difference.vanished(lane, now)
    lane.history.suspected_position, lane.history.source_confirmed = lane.position, False
    lane.questions.discard(lane.history.divergence_question)
    return intake.want_more(lane)


def _promised_until(lane: Lane) -> int:
    """Return the source offset at which the lane will continue after the records that are being copied again."""
    return max(lane.position, lane.plan[-1].offset)


def _lose_promised(lane: Lane, start: int, log: tuple[int, int]) -> Effects:
    """Handle a divergence of the source log that was found while records were being copied again. The lane first copies
    those of these records that the source still has. It then copies the records that have replaced the lost ones."""
    record = lane.record
    end = _promised_until(lane)
    gone = Verdict(_gone_from(lane, start, log, end), end, "truncated")
    if record is None or must_halt(lane, start):
        return _halt(lane, start, gone)
    if not is_settled(lane):
        lane.go(Quiesce())
        return []
    runs, pieces = left_before(lane, start)
    epochs = (*recorded_epochs.carried(record.epochs, pieces), (runs[-1].ordinal, last_copied.before(lane, start)))
    new_round(lane)
    lane.seen.truncate(start)
    lane.skipped.clear()
    lane.fetching = False
    lane.phase, lane.stage = Phase.RESUMING, Stage.FACTS
    lane.resume_ordinal, lane.log.end = lane.next_ordinal, lane.expected
    lane.unbound = (lane.next_ordinal, (gone,))
    rewound = position_rewind.rewound_by(lane, runs, resume_position(lane))
    effect = append(lane, (SourceRun(lane.id, lane.grant, tuple(runs), (gone,), epochs, rewound=rewound),))
    lane.intents.append((effect.tag, lane.next_ordinal))
    lane.history.loss_tag = effect.tag
    return [StopFetch(), *_lost(lane, gone, "copied"), effect]


def _lost(lane: Lane, gone: Verdict, what: str) -> Effects:
    """Report that the source has lost these records, which were copied or skipped (`what`). Report nothing if there are
    no such records, because only fetched records were lost."""
    line = f"source offsets [{gone.start}, {gone.end}) were {what}, and the source has lost them: an unclean election"
    return [Lost(f"{lane.source_topic}-{lane.partition}: {line}")] if gone.start < gone.end else []


def _passed_as(lane: Lane, gone: Verdict) -> str:
    """Return what the lane has done with lost records: copied them, skipped them on operator commands, or both."""
    seeks = passed(lane.record.seeks) if lane.record is not None else ()
    if any(each.start <= gone.start and gone.end <= each.end for each in seeks):
        return "skipped"
    is_part = any(each.start < gone.end and gone.start < each.end for each in seeks)
    return "copied or skipped" if is_part else "copied"


def left_before(lane: Lane, start: int) -> tuple[list[Run], list[tuple[int, int, int]]]:
    """Return the runs of the records below the source offset `start` that are still to be copied again, followed by a
    last run that begins at `start`. Also return these records as triples (ordinal, former ordinal, length)."""
    runs: list[Run] = []
    pieces: list[tuple[int, int, int]] = []
    ordinal = lane.next_ordinal
    for run, following in pairwise((Run(lane.next_ordinal, lane.position), *lane.plan)):
        kept = min(following.ordinal - run.ordinal, start - run.offset)
        if kept > 0:
            runs.append(Run(ordinal, run.offset))
            pieces.append((ordinal, run.ordinal, kept))
            ordinal += kept
    return [*runs, Run(ordinal, start)], pieces


def is_settled(lane: Lane) -> bool:
    """Return whether the lane has no batch in memory or in flight and no former holder can have a batch in flight."""
    held = lane.in_flight or lane.ready or lane.intents or lane.confirming or lane.acked != lane.next_ordinal
    return not held and not in_doubt.holds(lane, lane.next_ordinal)


def _compare_again(lane: Lane, now: float) -> Effects:
    """Start a pending comparison again after a truncation, because its result could be about records that the source
    has just lost."""
    if lane.comparison.later_question not in lane.questions:
        return []
    lane.questions.discard(lane.comparison.later_question)
    return [Wake(ask(lane), now)]


def _gone_from(lane: Lane, start: int, log: tuple[int, int], until: int) -> int:
    """Return the source offset of the first lost record that was copied, that the target has refused, that is skipped
    now, or that was skipped on an operator command. It may be above `start`, the offset to which the lane goes back.

    The `truncated` verdict ends the decisions to skip refused records from this offset onward, so that the new records
    in their places are copied. A decision on a record that the source still has stays in effect.
    """
    parked = lane.record.quarantine if lane.record is not None else ()
    refused = (max(each.start, start) for each in parked if each.end > start and each.epoch > log[0])
    passed = (max(at, start) for at, end, epoch in last_copied.passed(lane) if end > start and epoch > log[0])
    return min([last_copied.first_lost(lane, start, log[1]), until, *refused, *passed])


def _return(lane: Lane, start: int) -> Effects:
    """Go back to `start`, the offset after the last copied record, because the source log has ended below the lane's
    position. The source still has all copied records. It has lost some of the later ones, over which the lane leapt. It
    is not known which of them the log still has, because it may have grown again since."""
    gone = Verdict(max(lane.history.short_end, start), lane.position, "truncated")
    return _go_back(lane, start, gone, "skipped")


def _go_back(lane: Lane, start: int, gone: Verdict, what: str) -> Effects:
    """Go back to `start`, and record the verdict `gone`. Its records were copied or skipped before (`what`)."""
    kept = tuple(Verdict(each.start, min(each.end, start), each.reason) for each in lane.skipped if each.start < start)
    lane.skipped.clear()
    before = source_epochs.unrecorded(lane)
    source_epochs.go_back(lane, start)
    lane.open_run = Run(lane.next_ordinal, start)
    lane.declared = -1
    lane.decided = NOT_YET  # different records have these offsets now
    lane.left_out = [each for each in left_out(lane.record, start) if each.end <= gone.start] if lane.record else []
    lane.log.lost_below = None
    lane.history.source_confirmed, lane.history.left_position, lane.history.short_end = False, None, -1
    lane.history.skipped_epochs = ()
    epochs = (*before, (lane.next_ordinal, lane.epoch))
    lane.unbound = (lane.next_ordinal, (*kept, gone))
    rewound = position_rewind.rewound_by(lane, (lane.open_run,), resume_position(lane))
    effect = append(lane, (SourceRun(lane.id, lane.grant, (lane.open_run,), lane.unbound[1], epochs, rewound=rewound),))
    lane.intents.append((effect.tag, lane.next_ordinal))
    lane.history.loss_tag = effect.tag
    lane.history.new_epochs.clear()
    return [*_lost(lane, gone, what), effect, *intake.want_more(lane)]
