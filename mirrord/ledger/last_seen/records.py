"""The form and the keys of the records about what was last seen of the source."""

from collections.abc import Hashable, Iterable
from typing import TypeVar
from zlib import crc32

from mirrord.ledger.facts.core import Progress
from mirrord.ledger.facts.last_seen import LastSeen
from mirrord.ledger.facts.source_ends import SourceEnds
from mirrord.ledger.state import FlowState
from mirrord.model.names import LaneId, LaneKey, TopicId

_INTERNAL = "__consumer_offsets"
BUCKETS = 64
"""Number of records among which things with names are divided, such as consumer groups."""

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
