"""Decides which producers a failover fences off at the target, and what an operator has to know about the result.

A process that was suspended may hold batches that it sends when it wakes up, before it can check its lease. After a
marker with a higher epoch of the lane's producer, the target refuses these batches.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Literal, NamedTuple

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.transaction_markers import AbortMarker, MarkedPartition
from mirrord.ledger.facts.recovery import Recovery
from mirrord.ledger.folding.failovers import concerns, has_ended
from mirrord.ledger.source_ends import has_begun
from mirrord.ledger.state import FlowState
from mirrord.model.names import TopicId

LAST_EPOCH = 2**15 - 1
"""The highest producer epoch. A producer that has it cannot be fenced off."""
COORDINATOR_EPOCH = 2**31 - 1
"""The coordinator epoch of the markers. The target refuses a marker whose coordinator epoch is lower than that of an
earlier marker of this producer. Only an operator may have written one."""
NEEDED = "it needs CLUSTER_ACTION on the cluster (since Kafka 3.8, ALTER is sufficient)"
"""The permission to write markers (KIP-1037)."""
NOT_FENCED = "a process that was suspended may still deliver late batches"

MarkerResult = Literal["fenced", "again", "refused"]

_FENCED = frozenset({ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED})
"""If the epoch of a marker is too low, a marker with an even higher epoch is there already."""
_AGAIN = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)


class FormerProducer(NamedTuple):
    """A producer under which a former holder of a lane may still send batches."""

    where: MarkedPartition
    topic_id: TopicId
    """The id of the target topic."""
    epoch: int
    """The producer epoch of the lane's batches."""

    @property
    def marker(self) -> AbortMarker:
        """The marker that fences the producer off."""
        return AbortMarker(self.where, self.epoch + 1, COORDINATOR_EPOCH)


def former_producers(state: FlowState, recovery: Recovery) -> list[FormerProducer]:
    """Return the producers of all lanes whose copying this failover ends, and of older lanes of the same topics.

    A lane has the same producer for its whole lifetime. No process has written to a lane that has not begun, because
    the ledger contains the beginning before the first record is sent.
    """
    earlier = tuple(each for each in state.recoveries if each.number != recovery.number)
    found: dict[MarkedPartition, FormerProducer] = {}
    for lane in state.lanes.values():
        if not lane.grant or not has_begun(state, lane):
            continue
        if not concerns(recovery, lane.source_topic) or has_ended(earlier, lane.source_topic):
            continue
        where = MarkedPartition(lane.producer_id, lane.target_topic, lane.partition)
        known = found.get(where)
        if known is None or known.epoch < lane.producer_epoch:
            found[where] = FormerProducer(where, lane.key.target_topic_id, lane.producer_epoch)
    return sorted(found.values())


def marker_result(error: int) -> MarkerResult:
    """Return what the answer to a marker means: the producer is fenced off, the request is to be repeated, or it is
    pointless to repeat it."""
    if error in _FENCED:
        return "fenced"
    return "again" if error in _AGAIN else "refused"


def reason(error: int) -> str:
    """Return why a marker was not written, for operators."""
    name = ErrorCode.name_of(error)
    return f"{name}: {NEEDED}" if error == ErrorCode.CLUSTER_AUTHORIZATION_FAILED else name


def fence_line(fenced: Collection[MarkedPartition], refused: Mapping[MarkedPartition, str]) -> str:
    """Return the outcome of the step as one line. `fenced` are the producers that are fenced off, and `refused` says
    why others are not."""
    refusing, open_ones = _partitions(fenced), _partitions(refused)
    parts: list[str] = []
    if fenced:
        parts.append(f"late batches to {len(refusing)} partitions are refused by the target")
    if refused:
        first = min(refused, key=lambda each: (each.topic, each.partition))
        more = f" and {len(open_ones) - 1} more partitions" if len(open_ones) > 1 else ""
        parts.append(f"{NOT_FENCED} to {first.topic}-{first.partition}{more}: {refused[first]}")
    return "; ".join(parts) or "no partition can receive late batches"


def _partitions(producers: Iterable[MarkedPartition]) -> set[tuple[str, int]]:
    return {(each.topic, each.partition) for each in producers}
