"""Describes a ledger's facts in words, one line for each fact."""

from collections.abc import Callable, Iterable, Sequence

from mirrord.ledger.facts.archive import CompactionBegan, MapCompacted
from mirrord.ledger.facts.audit import AuditFact, RangeRepaired
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.commands import CommandGiven, LedgerSigned, RecordSkipped, StateRecordSkipped
from mirrord.ledger.facts.core import (
    AclsPlanned,
    AclsSynced,
    AnyFact,
    ConfigChanged,
    ConfigsSynced,
    CopyForgotten,
    CopyInherited,
    CopyNamed,
    FlowOpened,
    Holder,
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
    PartitionsGrown,
    PolicyChanged,
    SourceRun,
    TakeoverChecked,
    TargetProbed,
    TargetRun,
    TopicCreated,
    TopicDeleted,
    TopicDeletionPlanned,
    TopicDeletionWithdrawn,
    TopicFact,
    Verdict,
    VerdictGiven,
)
from mirrord.ledger.facts.jobs import JobBegan, JobEnded, JobFact, JobRenewed
from mirrord.ledger.facts.orders import (
    CopyingPaused,
    CopyingResumed,
    HostDrained,
    HostRestored,
    LanePinned,
    LaneUnpinned,
    OrderFact,
)
from mirrord.ledger.facts.quarantine import Quarantined, QuarantineOrder, QuarantineSkipped
from mirrord.ledger.facts.recovery import (
    CopyingEnded,
    RecoveryBegan,
    RecoveryFact,
    RecoveryFinished,
    RecoveryStepDone,
)
from mirrord.ledger.facts.seeks import LaneSought, SeekDone
from mirrord.ledger.facts.start_offsets import TopicStarts
from mirrord.ledger.standing_orders import author_of, moment, pausable
from mirrord.model.acls import AclRule
from mirrord.model.names import LaneId
from mirrord.replication.dead_letters.records import letters_words

SHOWN_RUNS = 3

LaneName = Callable[[LaneId], str]
_Named = TopicFact | OrderFact | QuarantineOrder | LaneSought | CompactionBegan | MapCompacted | JobFact | RecoveryFact


def _holder(holder: Holder) -> str:
    where = f", {holder.http}" if holder.http else ""
    return f"{holder.instance} on {holder.host} (pid {holder.pid}{where})"


def describe(fact: AnyFact, name: LaneName) -> str:
    """Return one line that says what the fact records. `name` returns the display name of a lane."""
    if isinstance(fact, _Named):
        return _describe_named(fact, name)
    match fact:
        case FlowOpened():
            return f"flow {fact.flow} from cluster {fact.source_cluster} to {fact.target_cluster}"
        case LeaseTaken():
            return f"lease {fact.epoch} taken by {_holder(fact.holder)} for {fact.ttl_ms / 1000:g} s"
        case LeaseContinued():
            return f"lease {fact.epoch} continued by {_holder(fact.holder)}, turn {fact.turn}"
        case LeaseReleased():
            return f"lease {fact.epoch} released"
        case TargetProbed():
            return _describe_probe(fact)
        case ConfigChanged() | CommandGiven() | RecordSkipped() | StateRecordSkipped() | LedgerSigned():
            return _describe_config(fact)
        case AclsPlanned():
            return f"ACLs about to be added: {_listed(fact.rules)}"
        case AclsSynced():
            changes = [("added", fact.added), ("removed", fact.removed)]
            return f"ACLs {'; '.join(f'{done}: {_listed(rules)}' for done, rules in changes if rules) or 'unchanged'}"
        case _:
            line = _describe_audit(fact) if isinstance(fact, AuditFact) else _describe_lane(fact)
            return f"{name(fact.lane)}: {line}"


def _describe_recovery(fact: RecoveryFact) -> str:
    what = f"failover {fact.number}"
    match fact:
        case RecoveryBegan():
            topics = f"of {', '.join(fact.topics[:SHOWN_RUNS])}" if fact.topics else "of the flow"
            more = f" and {len(fact.topics) - SHOWN_RUNS} more topics" if len(fact.topics) > SHOWN_RUNS else ""
            return f"{what} {topics}{more} began ({fact.mode}), {_by(fact.origin)}"
        case RecoveryStepDone():
            return f"{what}: {fact.step} is done{_note(fact.outcome)}"
        case CopyingEnded():
            lost = sum(max(0, each.end - each.start) for each in fact.lost)
            return f"{what}: nothing is copied any longer; {lost} offsets of {len(fact.lost)} partitions did not arrive"
        case RecoveryFinished():
            return f"{what} was cancelled{_note(fact.why)}" if fact.cancelled else f"{what} is complete"


def _describe_of_ledger(fact: RecordSkipped | StateRecordSkipped | LedgerSigned) -> str:
    if isinstance(fact, LedgerSigned):
        return f"the ledger is signed from here on, {_by(fact.origin)}"
    if isinstance(fact, StateRecordSkipped):
        return f"the record {fact.key!r} at offset {fact.offset} of the state topic is skipped, {_by(fact.origin)}"
    return f"the record at ledger offset {fact.offset} is skipped, {_by(fact.origin)}"


def _describe_config(fact: ConfigChanged | CommandGiven | RecordSkipped | StateRecordSkipped | LedgerSigned) -> str:
    if isinstance(fact, RecordSkipped | StateRecordSkipped | LedgerSigned):
        return _describe_of_ledger(fact)
    if isinstance(fact, CommandGiven) and fact.refused:
        more = f"; {fact.omitted} more since the previous record" if fact.omitted else ""
        return f"{fact.command} refused, given {_by(fact.origin)}: {fact.refused}{more}"
    if isinstance(fact, CommandGiven):
        return f"{fact.command} {_by(fact.origin)}{f': {fact.detail}' if fact.detail else ''}"
    parts = [f"configuration changed: {'; '.join(fact.changes)}"] if fact.changes else []
    parts += [f"{each.topic} first seen, begins at {_offsets(each)}" for each in fact.starts]
    parts += ["all topics that the configuration selects have been seen"] if fact.selected is not None else []
    return "; ".join(parts)


def _offsets(starts: TopicStarts) -> str:
    shown = [str(offset) if offset >= 0 else str(starts.start) for offset in starts.offsets[:SHOWN_RUNS]]
    more = len(starts.offsets) - SHOWN_RUNS
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "")


def _describe_topic(fact: TopicFact) -> str:
    match fact:
        case TopicCreated():
            return f"created for {fact.source_topic} with {fact.partitions} partitions"
        case PartitionsGrown():
            return f"grown to {fact.partitions} partitions"
        case ConfigsSynced():
            changes = (f"{change.name} {_value(change.before)} → {_value(change.after)}" for change in fact.changes)
            return f"configs set like those of {fact.source_topic}: {', '.join(changes)}"
        case TopicDeletionPlanned():
            return f"will be deleted at {moment(fact.due_ms)}: {fact.source_topic} no longer exists"
        case TopicDeletionWithdrawn():
            return f"is kept: {fact.reason}"
        case TopicDeleted():
            return "deleted"
        case CopyForgotten():
            return f"no longer exists, and neither does {fact.source_topic}: their state is dropped"
        case CopyNamed():
            return (
                f"is the name of the target topic for the current {fact.source_topic} (topic id {fact.source_topic_id})"
            )


def _describe_order(fact: OrderFact) -> str:
    match fact:
        case CopyingPaused() | CopyingResumed():
            what = "paused" if isinstance(fact, CopyingPaused) else "no longer paused"
            change = f"{pausable(fact.topic, fact.partition)} {what}"
        case LanePinned():
            change = f"{fact.topic}-{fact.partition} is pinned to replicator {fact.slot}"
        case LaneUnpinned():
            change = f"{fact.topic}-{fact.partition} is no longer pinned"
        case HostDrained():
            change = f"{fact.replicator} is drained"
        case HostRestored():
            change = f"{fact.replicator} is no longer drained"
    return f"{change}, {_by(fact.origin)}"


def _value(value: str | None) -> str:
    return "(default)" if value is None else value or '""'


def _listed(rules: Sequence[AclRule]) -> str:
    shown = [str(rule) for rule in rules[:SHOWN_RUNS]]
    more = len(rules) - SHOWN_RUNS
    return ", ".join([*shown, f"and {more} more"] if more > 0 else shown)


def _describe_probe(fact: TargetProbed) -> str:
    outcome = "exactly once" if fact.passed else f"AT LEAST ONCE, {'; '.join(fact.failures)}"
    remarks = f" ({'; '.join(fact.remarks)})" if fact.remarks else ""
    return f"brokers of {fact.cluster} ({fact.version}) probed: {outcome}{remarks}"


def _describe_lane(fact: LaneFact) -> str:
    match fact:
        case LaneOpened():
            target = f"{fact.target_topic}-{fact.partition}"
            return f"opened into {target}, producer id {fact.producer_id}, policy {fact.policy}, mode {fact.mode}"
        case LaneTaken():
            return f"grant {fact.grant} taken by {fact.replicator}"
        case PolicyChanged():
            return f"policy {fact.policy} from here on"
        case SourceRun():
            return f"will write {_runs(fact)}{_verdicts(fact.verdicts)}{_epochs(fact)}{_regiven(fact)}{_rewound(fact)}"
        case TargetRun():
            place = f"ordinal {fact.ordinal} is at target offset {fact.offset} (leader epoch {fact.leader_epoch})"
            return place + _displaced(fact) + _in_doubt(fact)
        case VerdictGiven():
            return f"nothing to write{_verdicts(fact.verdicts)}{_note(fact.note)}"
        case HoleFound():
            return _describe_hole(fact)
        case LaneHalted():
            return f"halted at source offsets [{fact.start}, {fact.end}): {fact.reason}: {fact.line}"
        case LaneResumed():
            return "continues"
        case TakeoverChecked() | CopyInherited() | MapRebuilt() | Quarantined() | SeekDone():
            return _describe_found(fact)


def _describe_hole(fact: HoleFound) -> str:
    ordinals = f"ordinals {fact.first} to {fact.last}"
    if fact.is_open:
        return f"it is not known which records are at {ordinals}"
    if fact.first > fact.last:
        return f"the records that follow are recorded again from ordinal {fact.again} on"
    return f"the target refused {ordinals}; they follow from ordinal {fact.again} on"


def _regiven(fact: SourceRun) -> str:
    return "; other records may have been sent under these ordinals" if fact.regiven else ""


def _rewound(fact: SourceRun) -> str:
    if fact.rewound is None:
        return ""
    first, limit = fact.rewound.first, fact.rewound.ordinal
    return f"; ordinals from {first} on may be reassigned, and older resume positions count up to {limit}"


def _displaced(fact: TargetRun) -> str:
    lacking = ", ".join(f"{each.first} to {each.last}" for each in fact.displaced)
    return f"; the target log lacks ordinals {lacking}" if lacking else ""


def _in_doubt(fact: TargetRun) -> str:
    limit = fact.in_doubt_below
    return f"; of the ordinals that were assigned again, only those below {limit} are in doubt" if limit >= 0 else ""


def _describe_named(fact: _Named, name: LaneName) -> str:
    if isinstance(fact, OrderFact):
        return _describe_order(fact)
    if isinstance(fact, JobFact | RecoveryFact):
        return _describe_job(fact) if isinstance(fact, JobFact) else _describe_recovery(fact)
    if isinstance(fact, CompactionBegan):
        return f"compaction {fact.number} of the map began"
    if isinstance(fact, MapCompacted):
        runs = sum(part.count for part in (*fact.source, *fact.target))
        return f"{name(fact.lane)}: {runs} runs up to ordinal {fact.last_ordinal} moved by compaction {fact.number}"
    if isinstance(fact, TopicFact):
        return f"{fact.target_topic} {_describe_topic(fact)}"
    if isinstance(fact, LaneSought):
        lost = f" after the loss of offsets from {fact.lost_from} on" if fact.lost_from >= 0 else ""
        return f"{name(fact.lane)}: will continue at source offset {fact.end}{lost}, {_by(fact.origin)}"
    what, kept = "will be tried again", ""
    if isinstance(fact, QuarantineSkipped):
        what, kept = "are skipped", f" ({letters_words(fact.letters)})" if fact.letters >= 0 else ""
    return f"{name(fact.lane)}: source offsets [{fact.start}, {fact.end}) {what}{kept}, {_by(fact.origin)}"


def _describe_job(fact: JobFact) -> str:
    what = f"{fact.job} {fact.number}"
    match fact:
        case JobBegan():
            return f"{what} began on {fact.worker.host} (pid {fact.worker.pid})"
        case JobRenewed():
            return f"{what} is at {fact.done} of {fact.every}"
        case JobEnded():
            return f"{what} ended: {fact.outcome}{_note(fact.line)}"


def _by(origin: Origin) -> str:
    return f"by {author_of(origin)}{f': {origin.reason}' if origin.reason else ''}"


def _describe_audit(fact: AuditFact) -> str:
    if isinstance(fact, RangeRepaired):
        what = f"{fact.difference} source offsets [{fact.start}, {fact.end}) repaired"
        return f"{what}: in {fact.topic} from offset {fact.at} on, {_by(fact.origin)}"
    return f"proven up to source offset {fact.source_offset} by {fact.level}: ordinals {fact.first} to {fact.end - 1}"


def _describe_found(fact: TakeoverChecked | CopyInherited | MapRebuilt | Quarantined | SeekDone) -> str:
    """Return the text for a fact that records what a lane found in the target log or the source log."""
    match fact:
        case Quarantined():
            policy = ", skipped by policy" if fact.skip else ""
            policy += f" ({letters_words(fact.letters)})" if fact.letters >= 0 else ""
            return f"source offsets [{fact.start}, {fact.end}) are in quarantine{policy}: {fact.line}"
        case TakeoverChecked():
            ordinals = f" of ordinals {fact.first} to {fact.last}" if fact.first <= fact.last else ""
            return f"takeover{ordinals} checked: {fact.outcome}{_note(fact.note)}"
        case SeekDone() if fact.start == fact.end:
            return f"had already copied everything before source offset {fact.end}"
        case SeekDone():
            return f"continues at source offset {fact.end} by command; [{fact.start}, {fact.end}) is skipped"
        case CopyInherited():
            return describe_inherited(fact)
        case MapRebuilt():
            what = f"{fact.until - fact.last - 1} missing records follow"
            until = f"to {fact.last}" if fact.first <= fact.last else "on"
            return f"the map was rebuilt from ordinal {fact.first} {until}, {what}"


def describe_inherited(fact: CopyInherited) -> str:
    """Return a text that states which position a lane inherited from MirrorMaker 2, and what a check of this position
    found."""
    words = {
        "verified": f"the target's last {fact.looked_at:,} records agree",
        "behind": f"but the target ends before that, according to its last {fact.looked_at:,} records",
        "unverifiable": "there is nothing left to compare",
        "trusted": "nothing was compared",
        "strange": f"but the target's last {fact.looked_at:,} records are different",
    }
    beside = [
        f"{what} {_ranges(found)}" for what, found in (("doubled", fact.doubled), ("missing", fact.missing)) if found
    ]
    copied = f"MirrorMaker 2 had copied up to source offset {fact.said}, {words[fact.found]}"
    goes_on = f"continues at {fact.position}" if fact.position >= 0 else "does not begin"
    return "; ".join([copied, goes_on, *beside])


def _ranges(found: Sequence[tuple[int, int]]) -> str:
    shown = [f"[{start}, {end})" for start, end in found[:SHOWN_RUNS]]
    more = len(found) - SHOWN_RUNS
    return f"{' '.join(shown)}{f' and {more} more' if more > 0 else ''}"


def _runs(fact: SourceRun) -> str:
    shown = [f"ordinal {run.ordinal} from source offset {run.offset}" for run in fact.runs[:SHOWN_RUNS]]
    more = len(fact.runs) - SHOWN_RUNS
    return ", ".join([*shown, f"and {more} more runs"] if more > 0 else shown) or "nothing"


def _epochs(fact: SourceRun) -> str:
    """Describe the ordinals at which the leader epoch of the source changes."""
    epochs = [f"{epoch} from ordinal {ordinal}" for ordinal, epoch in fact.epochs if epoch >= 0]
    return f"; source epoch {', '.join(epochs)}" if epochs else ""


def _verdicts(verdicts: Iterable[Verdict]) -> str:
    """Describe the ranges of source offsets that were not copied, with the reasons."""
    ranges: dict[str, list[str]] = {}
    for verdict in verdicts:
        ranges.setdefault(verdict.reason, []).append(f"[{verdict.start}, {verdict.end})")
    parts: list[str] = []
    for reason, found in ranges.items():
        more = len(found) - SHOWN_RUNS
        parts.append(f"{reason} {' '.join(found[:SHOWN_RUNS])}{f' and {more} more' if more > 0 else ''}")
    return f"; not copied: {', '.join(parts)}" if parts else ""


def _note(note: str) -> str:
    return f" ({note})" if note else ""
