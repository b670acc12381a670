"""The form and the keys of the records about what was last seen of the source."""

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar
from zlib import crc32

from msgspec.structs import replace

from mirrord.ledger.facts.core import Progress
from mirrord.ledger.facts.last_seen import LastSeen
from mirrord.ledger.facts.source_ends import SourceEnds
from mirrord.ledger.state import FlowState
from mirrord.model.names import LaneId, LaneKey, TopicId

_INTERNAL = "__consumer_offsets"
BUCKETS = 64
"""Number of records among which things with names are divided, such as consumer groups."""
CHECKED_MS = 60_000
"""Summaries that are not written once a second are written at least this often, so that they show how old the other
records of their kind are at most."""

Named = TypeVar("Named", bound=Hashable)


def summary_key(kind: str) -> LaneId:
    """Return the key of the summary of one kind of records."""
    return LaneKey(TopicId("summary"), 0, TopicId(kind)).id


def bucket_key(kind: str, number: int) -> LaneId:
    """Return the key of one of the `BUCKETS` records of a kind."""
    return LaneKey(TopicId("bucket"), number, TopicId(kind)).id


def bucket_of(name: str) -> int:
    """Return the number of the record to which a name belongs."""
    return crc32(name.encode("utf-8", "surrogatepass")) % BUCKETS


def contents(state: FlowState, key: LaneId) -> LastSeen | None:
    """Return the contents of the record with this key, or None if there is none."""
    record = state.source_ends.get(key)
    return None if record is None or record.source is None else record.source.seen


def buckets(state: FlowState, kind: str) -> Iterable[LastSeen]:
    """Yield the records of a kind, without the summary."""
    found = (contents(state, bucket_key(kind, number)) for number in range(BUCKETS))
    return (each for each in found if each is not None)


def state_record(key: LaneId, topic: str, what: LastSeen, lease_epoch: int, at_ms: int) -> Progress:
    """Return a record of the state topic. `topic` is the source topic that it is about, if any."""
    # Older versions see a record without ends, which states nothing. They remove it if they cannot find its topic, and
    # they never report a loss of an internal topic.
    source = SourceEnds(topic or _INTERNAL, (), seen=what)
    return Progress(key, lease_epoch, 0, 0, 0, -1, 0, -1, -1, at_ms, protected=False, state="", source=source)


def changed_contents(
    state: FlowState, kind: str, records_now: Sequence[LastSeen], summary: LastSeen, lease_epoch: int
) -> list[Progress]:
    """Return the records of a kind whose contents differ from `records_now`, which holds one record for each bucket. If
    there are any, or if the recorded summary is old, the summary is the last record."""
    now_ms = summary.at_ms
    records: list[Progress] = []
    for number, each in enumerate(records_now):
        key = bucket_key(kind, number)
        before = contents(state, key) or LastSeen(0)
        if replace(before, at_ms=now_ms) != each:
            records.append(state_record(key, "", each, lease_epoch, now_ms))
    key = summary_key(kind)
    known = contents(state, key)
    if records or known is None or known.refused or now_ms - known.at_ms >= CHECKED_MS or now_ms < known.at_ms:
        records.append(state_record(key, "", summary, lease_epoch, now_ms))
    return records


def refusal_record(state: FlowState, kind: str, refused: str, lease_epoch: int, now_ms: int) -> list[Progress]:
    """Return the summary to write if records of a kind cannot be updated for this reason, unless the recorded summary
    already says so."""
    key = summary_key(kind)
    known = contents(state, key)
    summary = LastSeen(-1, refused=refused) if known is None else replace(known, refused=refused)
    return [] if summary == known else [state_record(key, "", summary, lease_epoch, now_ms)]
