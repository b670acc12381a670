"""Encodes and decodes ledger entries and records of the state topic as one version byte, followed by msgpack.

The version identifies the layout as a whole. Within a version, fields with a default may be added at the end of a
record: an older program ignores them, and a newer one fills in the default. A new kind of fact requires a new version,
because an older program must not fold past a fact that it does not understand.
"""

from typing import TypeVar

import msgspec

from mirrord.ledger.errors import LedgerCorrupt
from mirrord.ledger.facts.archive import CompactionBegan, MapCompacted
from mirrord.ledger.facts.audit import AuditFact, RangeAudited
from mirrord.ledger.facts.commands import CommandGiven
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
)
from mirrord.model.archived_runs import ArchivedRuns

T = TypeVar("T")

VERSION = 10
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
"""
_COMMON = 9
"""The version of all entries without a newer fact, and of the records of the state topic."""
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
    version = VERSION if any(isinstance(fact, CommandGiven) for fact in entry.facts) else _COMMON
    return bytes([version]) + _encode(entry)


def decode_entry(data: bytes | None) -> Entry:
    """Return the entry that a ledger record holds. Raises LedgerCorrupt if the data is not a valid entry."""
    entry = _decode(_entries, data, "ledger record")
    for fact in entry.facts:
        if not _is_sound(fact):
            raise LedgerCorrupt(f"a ledger record holds an impossible fact: {fact}")
    return entry


def encode_state(record: StateRecord) -> bytes:
    """Return the bytes of a record of the state topic. `state_topic_records.state_key` returns the record's key."""
    return bytes([_COMMON]) + _encode(record)


def decode_state(key: str, data: bytes) -> StateRecord:
    """Return the record that the state topic holds under a key. Raises LedgerCorrupt if the data is invalid or the kind
    of key is unknown."""
    decoder = _STATE.get(key.partition("/")[0])
    if decoder is None:
        raise LedgerCorrupt(f"the state topic holds an unknown key: {key!r}")
    return _decode(decoder, data, f"state record {key!r}")


def _decode(decoder: msgspec.msgpack.Decoder[T], data: bytes | None, what: str) -> T:
    if not data:
        raise LedgerCorrupt(f"a {what} is empty")
    if not 1 <= data[0] <= VERSION:
        raise LedgerCorrupt(f"a {what} has version {data[0]}, but this program knows only versions 1 to {VERSION}")
    try:
        return decoder.decode(memoryview(data)[1:])
    # ValueError means that a string is not valid UTF-8. RecursionError means that arrays are nested too deeply.
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise LedgerCorrupt(f"a {what} cannot be read: {error}") from None


def _is_sound(fact: AnyFact) -> bool:
    """Return whether the numbers in a fact are within the ranges that `fold` can store."""
    if isinstance(fact, OrderFact | CommandGiven):
        fits = 0 <= fact.origin.at_ms <= LATEST_MS
        fits = fits and (not isinstance(fact, CommandGiven) or 0 <= fact.omitted < _INT64)
        return fits and (not isinstance(fact, LanePinned) or 0 <= fact.slot < _INT64)
    if isinstance(fact, Quarantined | QuarantineOrder | LaneSought | SeekDone):
        return _is_sound_range(fact)
    if isinstance(fact, AuditFact):
        return _is_sound_audit(fact)
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


def _is_sound_job(fact: CompactionBegan | JobFact) -> bool:
    if not 0 <= fact.number < _INT64:
        return False
    if isinstance(fact, JobRenewed):
        return 0 <= fact.done < _INT64 and 0 <= fact.every < _INT64
    lasts = not isinstance(fact, JobBegan) or 0 < fact.ttl_ms <= LATEST_MS
    return lasts and 0 <= fact.at_ms <= LATEST_MS


def _is_sound_range(fact: Quarantined | QuarantineOrder | LaneSought | SeekDone) -> bool:
    if isinstance(fact, SeekDone):
        return 0 <= fact.start <= fact.end < _INT64
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
