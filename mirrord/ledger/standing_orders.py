"""Operator commands for a running flow: the requests, the commands in force, and their description for people."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal, TypeVar

import msgspec

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.orders import (
    CopyingPaused,
    CopyingResumed,
    HostDrained,
    HostRestored,
    LanePinned,
    LaneUnpinned,
    OrderFact,
)
from mirrord.model.names import TopicPartition

OrderVerb = Literal["pause", "resume", "move", "unpin", "drain", "skip", "replay", "seek"]
ObjectKind = Literal["flow", "topic", "lane", "host"]
OrderT = TypeVar("OrderT", CopyingPaused, HostDrained)

POLICY = "policy"
"""Author of a command that mirrord issues itself, without a person."""


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A command from an operator to a daemon."""

    verb: OrderVerb
    name: str
    """Name of a flow, a topic of the source, a partition of it (`orders-3`) or a replicator. The prefix `flow:` is
    allowed.
    """
    to: str = ""
    """The replicator to which a lane should move."""
    flow: str = ""
    """Restricts the command to this flow."""
    kind: ObjectKind | None = None
    """The kind of object that the name refers to, if it is ambiguous."""
    by: str
    reason: str = ""
    offset: int = -1
    """A source offset, for commands about single records. For "seek" it is the log start of the source."""
    until: int = -1
    """End of the offset range, if it extends further. For "seek" it is the offset at which the lane should continue."""
    letters: int = -1
    """For "skip": the number of records that are in the flow's dead-letter topic, or -1 if they were not parked."""
    letters_at: int = -1
    """Offset of the first of them in that topic."""


class OrderAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a command, or the outcome it would have if it is a dry run."""

    flow: str
    done: tuple[str, ...] = ()
    """One line for each fact that was recorded. Empty if nothing changed."""
    lanes: tuple[str, ...] = ()
    """Partitions that stop, start or move."""
    notes: tuple[str, ...] = ()
    """Additional remarks, one line each."""


@dataclass(slots=True)
class Orders:
    """The commands of a flow that are in force. Only `take` changes it."""

    paused: dict[str, CopyingPaused] = field(default_factory=dict[str, CopyingPaused])
    """Pauses by `pause_key`."""
    pins: dict[str, LanePinned] = field(default_factory=dict[str, LanePinned])
    """Pins by partition, such as `orders-3`."""
    drained: dict[str, HostDrained] = field(default_factory=dict[str, HostDrained])
    """Drains by the replicator's name, even if the replicator no longer exists."""

    @staticmethod
    def of(facts: Iterable[OrderFact]) -> "Orders":
        """Return the commands in force after these facts."""
        orders = Orders()
        for fact in facts:
            orders.take(fact)
        return orders

    def facts(self) -> tuple[OrderFact, ...]:
        """Return facts that produce the same state."""
        return (*self.paused.values(), *self.pins.values(), *self.drained.values())

    def take(self, fact: OrderFact) -> bool:
        """Apply a fact. Return whether it takes effect; a fact that repeats the current state does not."""
        match fact:
            case CopyingPaused():
                return _put(self.paused, pause_key(fact.topic, fact.partition), fact)
            case CopyingResumed():
                return self.paused.pop(pause_key(fact.topic, fact.partition), None) is not None
            case LanePinned():
                lane, known = f"{fact.topic}-{fact.partition}", self.pins
                if lane in known and known[lane].slot == fact.slot:
                    return False
                known[lane] = fact
                return True
            case LaneUnpinned():
                return self.pins.pop(f"{fact.topic}-{fact.partition}", None) is not None
            case HostDrained():
                return _put(self.drained, fact.replicator, fact)
            case HostRestored():
                return self.drained.pop(fact.replicator, None) is not None

    def pause_of(self, topic: str, partition: int) -> CopyingPaused | None:
        """Return the pause that applies to a partition, or None. If several apply, the one with the widest scope is
        returned."""
        if not self.paused:
            return None
        keys = (pause_key("", -1), pause_key(topic, -1), pause_key(topic, partition))
        return next((self.paused[key] for key in keys if key in self.paused), None)

    def pin_of(self, lane: TopicPartition) -> LanePinned | None:
        """Return the pin of a partition, or None if it has none."""
        return self.pins.get(str(lane)) if self.pins else None


def pause_key(topic: str, partition: int) -> str:
    """Return a key that is unique among flows, topics and partitions.

    A topic's name contains no colon (Kafka's `Topic.validate`).
    """
    if not topic:
        return ""
    return topic if partition < 0 else f"{topic}:{partition}"


def pausable(topic: str, partition: int) -> str:
    """Describe the scope of a pause for people."""
    if not topic:
        return "the flow"
    return f"topic {topic}" if partition < 0 else f"{topic}-{partition}"


def describe_origin(origin: Origin) -> str:
    """Describe an origin, such as "by ada@host at 2026-01-31 12:00:00Z: maintenance"."""
    why = f": {origin.reason}" if origin.reason else ""
    return f"by {origin.by} at {moment(origin.at_ms)}{why}"


def moment(at_ms: int) -> str:
    """Format a wall-clock time in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _put(known: dict[str, OrderT], key: str, fact: OrderT) -> bool:
    if key in known:
        return False
    known[key] = fact
    return True
