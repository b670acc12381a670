"""Encodes and decodes ledger entries and records of the state topic as one version byte, followed by a msgpack array.

No text in UTF-8 and no record in Avro's or Protobuf's usual framing begins like this, so `is_framed` can determine
whether mirrord wrote a record. This must stay true for all future versions.

The version identifies the layout as a whole. Within a version, fields with a default may be added at the end of a
record: an older program ignores them, and a newer one fills in the default. A new kind of fact requires a new version,
because an older program must not fold past a fact that it does not understand.
"""

from itertools import pairwise
from typing import TypeVar, get_args

import msgspec

from mirrord.ledger.errors import LedgerCorrupt, NotOurs, TooNew
from mirrord.ledger.facts.archive import CompactionBegan, MapCompacted
from mirrord.ledger.facts.audit import AuditFact, RangeAudited
from mirrord.ledger.facts.commands import CommandGiven, LedgerSigned, RecordSkipped, StateRecordSkipped
from mirrord.ledger.facts.core import (
    AnyFact,
    ConfigChanged,
    Entry,
    LeaseRenewed,
    Progress,
    SourceRun,
    TargetRun,
    TopicDeletionPlanned,
    Verdict,
    VerdictGiven,
)
from mirrord.ledger.facts.jobs import JobBegan, JobEnded, JobFact, JobRenewed
from mirrord.ledger.facts.orders import LanePinned, OrderFact
from mirrord.ledger.facts.quarantine import Quarantined, QuarantineOrder, QuarantineSkipped
from mirrord.ledger.facts.recovery import CopyingEnded, LostRange, RecoveryBegan, RecoveryFact, RecoveryFinished
from mirrord.ledger.facts.seeks import LaneSought, SeekDone
from mirrord.ledger.facts.start_offsets import BEGUN
from mirrord.ledger.state_topic_records import (
    LEASE_KEY,
    LEDGER_END_KEY,
    FlowSnapshot,
    LaneSnapshot,
    LedgerEnd,
    RunsPiece,
    StateRecord,
    kind_of,
)
from mirrord.model.archived_runs import ArchivedRuns

T = TypeVar("T")

VERSION = 15
"""The newest layout version that can be read. An entry is written with the lowest version that it needs. The versions
introduced the following:

- 1: the first layout
- 2: `TargetProbed`
- 3: configs, ACLs and topic deletions (`ConfigsSynced` and related facts), `ConfigChanged`
- 4: `CopyInherited`
- 5: packed runs in snapshots
- 6: `LeaseContinued`, and operator commands (`CopyingPaused` and related facts)
- 7: the quarantine (`Quarantined` and related facts), `RangeAudited`
- 8: `CopyForgotten`, compacted offset maps (`MapCompacted`), seeks (`LaneSought`, `SeekDone`, and the verdict
  "skipped")
- 9: `CopyNamed`, jobs (`JobBegan` and related facts), repairs (`RangeRepaired`), and the location of parked records
  (`letters_at`), including records that are skipped without a decision by an operator
- 10: `CommandGiven`. Only entries with this fact have this version. A daemon that replaces an older one can therefore
  wait with such entries until the older one no longer reads the ledger.
- 11: `RecordSkipped`. As with 10, only entries with this fact have this version.
- 12: `LedgerSigned`. As with 10, only entries with this fact have this version.
- 13: `StateRecordSkipped`. As with 10, only entries with this fact have this version.
- 14: `RecoveryBegan` and related facts. As with 10, only entries with these facts have this version, and snapshots of a
  flow with failovers. An older daemon must not copy after a failover, so it must not read past them.
- 15: `JobBegan` and related facts about drills. As with 10, only entries with these facts have this version, and
  snapshots of a flow with drills.
"""
SIGNED = 64
"""Takes the place of the version in a record with a signature (`mirrord.ledger.store.seal`). The record within the
signature has its own version."""
LAYOUT_WITHOUT_MARK = 14
"""The newest version that programs read whose leases do not say which one they read (`Holder.layout`)."""
_COMMON = 9
"""The version of all entries without a newer fact, and of the records of the state topic."""
_OF_RECOVERY, _OF_DRILLS = 14, 15
_NEWEST_FACTS: dict[type, int] = {
    CommandGiven: 10,
    RecordSkipped: 11,
    LedgerSigned: 12,
    StateRecordSkipped: 13,
    **dict.fromkeys(get_args(RecoveryFact), _OF_RECOVERY),
}
"""The version of entries with these facts."""
_LAST_VERSION = 127
"""The highest version byte that a record of mirrord will ever have."""
_ARRAY, _LONG_ARRAY = 0x90, 0xDC
"""The first bytes of a msgpack array with up to 15 elements, and of one with up to 65,535."""
_INT64 = 1 << 63
LATEST_MS = 253_402_300_799_000
"""The end of the year 9999 in milliseconds since 1970. Calendar functions accept no later time."""

_encode = msgspec.msgpack.Encoder().encode
_entries = msgspec.msgpack.Decoder(Entry)
_STATE: dict[str, msgspec.msgpack.Decoder[StateRecord]] = {
    "progress": msgspec.msgpack.Decoder(Progress),
    LEASE_KEY: msgspec.msgpack.Decoder(LeaseRenewed),
    LEDGER_END_KEY: msgspec.msgpack.Decoder(LedgerEnd),
    "flow": msgspec.msgpack.Decoder(FlowSnapshot),
    "lane": msgspec.msgpack.Decoder(LaneSnapshot),
    "runs": msgspec.msgpack.Decoder(RunsPiece),
}


def encode_entry(entry: Entry) -> bytes:
    """Return the bytes of the ledger record that holds this entry."""
    version = max(map(layout_of, entry.facts), default=_COMMON)
    return bytes([version]) + _encode(entry)


def layout_of(fact: AnyFact) -> int:
    """Return the lowest layout version of an entry that holds this fact."""
    if isinstance(fact, JobFact) and fact.job == "drill":
        return _OF_DRILLS
    return _NEWEST_FACTS.get(type(fact), _COMMON)


def is_framed(data: bytes | None) -> bool:
    """Return whether a record has the form that the records of all versions of mirrord have: a version byte, followed
    by an array."""
    if not data or len(data) < 2 or not 1 <= data[0] <= _LAST_VERSION:
        return False
    # Arrays in the ledger have less than 256 elements. The high byte of a longer form is 0, which no text contains.
    return data[1] & 0xF0 == _ARRAY or (data[1] == _LONG_ARRAY and data[2:3] == b"\x00")


def decode_entry(data: bytes | None) -> Entry:
    """Return the entry that a ledger record holds. Raises NotOurs if mirrord did not write the record, TooNew if a
    newer version wrote it, and LedgerCorrupt if it cannot be read."""
    entry = _decode(_entries, data, "ledger record")
    for fact in entry.facts:
        if not _is_sound(fact):
            raise LedgerCorrupt(f"a ledger record holds an impossible fact: {fact}")
    return entry


def encode_state(record: StateRecord) -> bytes:
    """Return the bytes of a record of the state topic. `state_topic_records.state_key` returns the record's key."""
    version = _COMMON
    if isinstance(record, FlowSnapshot):
        version = _OF_RECOVERY if record.recoveries else version
        version = _OF_DRILLS if any(each.job == "drill" for each in record.jobs) else version
    return bytes([version]) + _encode(record)


def decode_state(key: str, data: bytes) -> StateRecord:
    """Return the record that the state topic holds under a key. Raises the same errors as `decode_entry`. If the kind
    of key is unknown, a newer version of mirrord or another client wrote the record."""
    what = f"state record {key!r}"
    if (why := foreign(key, data)) is not None:
        raise why
    _check_frame(data, what)
    return _decode(_STATE[kind_of(key)], data, what)


def foreign(key: str, data: bytes) -> NotOurs | None:
    """Return why a record of the state topic cannot be mirrord's, or None if mirrord may have written it."""
    if not is_framed(data):
        return NotOurs(f"a state record {key!r} was not written by mirrord")
    if kind_of(key) not in _STATE and data[0] <= VERSION:
        return NotOurs(f"the state topic holds an unknown key: {key!r}")
    return None


def _decode(decoder: msgspec.msgpack.Decoder[T], data: bytes | None, what: str) -> T:
    try:
        return decoder.decode(memoryview(_check_frame(data, what))[1:])
    # ValueError means that a string is not valid UTF-8. RecursionError means that arrays are nested too deeply.
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise LedgerCorrupt(f"a {what} cannot be read: {error}") from None


def _check_frame(data: bytes | None, what: str) -> bytes:
    if not data or not is_framed(data):
        raise NotOurs(f"a {what} was not written by mirrord")
    if data[0] > VERSION:
        raise TooNew(f"a {what} has version {data[0]}, but this program knows only versions 1 to {VERSION}")
    return data


def _is_sound(fact: AnyFact) -> bool:
    """Return whether the numbers in a fact are within the ranges that `fold` can store."""
    if isinstance(fact, OrderFact | CommandGiven | RecordSkipped | StateRecordSkipped | LedgerSigned):
        fits = not isinstance(fact, RecordSkipped | StateRecordSkipped) or 0 <= fact.offset < _INT64
        fits = fits and 0 <= fact.origin.at_ms <= LATEST_MS
        fits = fits and (not isinstance(fact, CommandGiven) or 0 <= fact.omitted < _INT64)
        return fits and (not isinstance(fact, LanePinned) or 0 <= fact.slot < _INT64)
    if isinstance(fact, Quarantined | QuarantineOrder | LaneSought | SeekDone):
        return _is_sound_range(fact)
    if isinstance(fact, AuditFact | RecoveryFact):
        return _is_sound_audit(fact) if isinstance(fact, AuditFact) else _is_sound_recovery(fact)
    match fact:
        case SourceRun():
            runs = all(0 <= run.ordinal < _INT64 and 0 <= run.offset < _INT64 for run in fact.runs)
            return runs and _are_ranges(fact.verdicts)
        case TargetRun():
            lacks = all(0 <= each.first <= each.last < fact.ordinal for each in fact.displaced)
            limit = fact.in_doubt_below
            lacks = lacks and (limit == -1 or fact.ordinal < limit < _INT64)
            return 0 <= fact.ordinal < _INT64 and 0 <= fact.offset < _INT64 and lacks
        case VerdictGiven():
            epochs = all(0 <= start <= end < _INT64 and 0 <= epoch < _INT64 for start, end, epoch in fact.epochs)
            return epochs and _are_ranges(fact.verdicts)
        case CompactionBegan() | JobBegan() | JobRenewed() | JobEnded():
            return _is_sound_job(fact)
        case MapCompacted():
            return all(_are_archived(side, fact.number) for side in (fact.source, fact.target))
        case TopicDeletionPlanned() | ConfigChanged():
            return _is_sound_for_topics(fact)
        case _:
            return True


def _is_sound_for_topics(fact: TopicDeletionPlanned | ConfigChanged) -> bool:
    if isinstance(fact, TopicDeletionPlanned):
        return 0 <= fact.due_ms <= LATEST_MS
    return all(BEGUN <= offset < _INT64 for each in fact.starts for offset in each.offsets)


def _is_sound_audit(fact: AuditFact) -> bool:
    if isinstance(fact, RangeAudited):
        times = -1 <= fact.newest_ms <= LATEST_MS and 0 <= fact.at_ms <= LATEST_MS
        return times and 0 <= fact.first < fact.end < _INT64 and 0 <= fact.source_offset < _INT64
    return 0 <= fact.start < fact.end < _INT64 and 0 <= fact.at < _INT64 and 0 <= fact.origin.at_ms <= LATEST_MS


def _is_sound_recovery(fact: RecoveryFact) -> bool:
    if not 0 < fact.number < _INT64:
        return False
    match fact:
        case RecoveryBegan():
            return 0 <= fact.origin.at_ms <= LATEST_MS
        case RecoveryFinished():
            return 0 <= fact.at_ms <= LATEST_MS
        case CopyingEnded():
            numbers = 0 <= fact.partitions < _INT64 and -1 <= fact.seen_ms <= LATEST_MS
            return numbers and all(map(_is_sound_loss, fact.lost))
        case _:
            return True


def _is_sound_loss(lost: LostRange) -> bool:
    offsets = 0 <= lost.partition < 1 << 31 and 0 <= lost.start < _INT64 and -1 <= lost.target_end < _INT64
    end = lost.end == -1 or lost.start <= lost.end < _INT64
    missing = all(0 <= start <= end <= lost.start for start, end in lost.missing)
    return offsets and end and missing and -1 <= lost.seen_ms <= LATEST_MS


def _is_sound_job(fact: CompactionBegan | JobFact) -> bool:
    if not 0 <= fact.number < _INT64:
        return False
    if isinstance(fact, JobRenewed):
        return 0 <= fact.done < _INT64 and 0 <= fact.every < _INT64
    lasts = not isinstance(fact, JobBegan) or 0 < fact.ttl_ms <= LATEST_MS
    if isinstance(fact, JobEnded) and fact.drill is not None and not 0 <= fact.drill.at_ms <= LATEST_MS:
        return False
    return lasts and 0 <= fact.at_ms <= LATEST_MS


def _is_sound_range(fact: Quarantined | QuarantineOrder | LaneSought | SeekDone) -> bool:
    if isinstance(fact, SeekDone):
        ascend = all(at < later and epoch < following for (at, epoch), (later, following) in pairwise(fact.epochs))
        within = all(fact.start <= at < fact.end and 0 <= epoch < _INT64 for at, epoch in fact.epochs)
        return 0 <= fact.start <= fact.end < _INT64 and ascend and within
    if isinstance(fact, Quarantined | QuarantineSkipped):
        letters = -1 <= fact.letters <= fact.end - fact.start and -1 <= fact.letters_at < _INT64
        if not letters:
            return False
    at_ms = 0 if isinstance(fact, Quarantined) else fact.origin.at_ms
    log_start = fact.log_start if isinstance(fact, LaneSought) else 0
    if isinstance(fact, LaneSought) and not -1 <= fact.lost_from < fact.end:
        return False
    return 0 <= fact.start < fact.end < _INT64 and 0 <= log_start < _INT64 and 0 <= at_ms <= LATEST_MS


def _are_archived(parts: tuple[ArchivedRuns, ...], number: int) -> bool:
    """Return whether these descriptions of archived runs are plausible: their offsets, ordinals and counts are in the
    valid ranges, and their ordinals ascend. `parts` belong to the same side of one lane, and to generation `number`."""
    behind = -1
    for part in parts:
        offsets = 0 <= part.first_offset < _INT64 and 0 <= part.last_offset < _INT64
        fits = part.generation == number and 0 < part.count <= part.last_ordinal - part.first_ordinal + 1
        if not offsets or not fits or not behind < part.first_ordinal <= part.last_ordinal < _INT64:
            return False
        behind = part.last_ordinal
    return True


def _are_ranges(verdicts: tuple[Verdict, ...]) -> bool:
    return all(0 <= verdict.start <= verdict.end < _INT64 for verdict in verdicts)
