"""Operator commands for a running flow: the commands as requests, the commands that are in force, and their description
for operators."""

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

OrderVerb = Literal[
    "pause", "resume", "move", "unpin", "drain", "skip", "replay", "seek", "failover", "cancel-failover", "drill"
]
ObjectKind = Literal["flow", "topic", "lane", "host"]
OrderT = TypeVar("OrderT", CopyingPaused, HostDrained)

POLICY = "policy"
"""The author (`Origin.by`) that mirrord records for a change that no operator has requested."""


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A command from an operator to a daemon."""

    verb: OrderVerb
    name: str
    """The name of a flow, a source topic, a source partition (`orders-3`) or a replicator. It may be preceded by the
    name of a flow and a colon, as in `eu-us:orders-3`. The name then refers to an object of this flow."""
    to: str = ""
    """The replicator to which a lane should move."""
    flow: str = ""
    """The flow to which the command is restricted; empty if it is not restricted."""
    kind: ObjectKind | None = None
    """The kind of object to which the name refers, if the name is ambiguous."""
    by: str
    reason: str = ""
    offset: int = -1
    """For "skip" and "replay": a source offset in the quarantined range. For "seek": the log start offset of the source
    partition at the time of the command."""
    until: int = -1
    """The end of the range of offsets, if the command sets it; otherwise -1. For "seek", it is the offset at which the
    lane should continue."""
    letters: int = -1
    """For "skip": the number of skipped records that are in the flow's dead-letter topic, or -1 if they were not
    parked."""
    letters_at: int = -1
    """For "skip": the offset of the first parked record in the dead-letter topic, or -1."""
    mode: str = ""
    """For "failover": "planned" or "source-lost"."""
    topics: tuple[str, ...] = ()
    """For "failover": the source topics to which it is limited. Empty means the whole flow."""


class Giver(msgspec.Struct, frozen=True):
    """Who has sent a command to a daemon."""

    client: str = ""
    """Name of the token that the client has proved."""
    peer: str = ""
    """Address from which the client connected."""

    def origin(self, by: str, reason: str, at_ms: int) -> Origin:
        """Return the origin of a command. `by` is the author that the client names."""
        return Origin(by, reason, at_ms, self.client, self.peer)


NO_GIVER = Giver()
_LATEST_MS = 253_402_300_799_000
"""The end of the year 9999."""
LONGEST_NAME = 300
LONGEST_REASON = 500


def text_fault(order: Order) -> str:
    """Return why the texts of a command cannot be accepted, or an empty string. They are recorded and shown, so they
    must be short and contain no control characters."""
    for name in ("name", "to", "flow", "by", "reason"):
        text, longest = getattr(order, name), LONGEST_REASON if name == "reason" else LONGEST_NAME
        if len(text) > longest or not text.isprintable():
            return f"{name}: one line of at most {longest} characters"
    if any(len(topic) > LONGEST_NAME or not topic.isprintable() for topic in order.topics):
        return f"topics: names of at most {LONGEST_NAME} characters"
    return ""


class OrderAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a command. For a dry run, the result that the command would have."""

    flow: str
    done: tuple[str, ...] = ()
    """One line for each change that the command made. Empty if nothing changed."""
    lanes: tuple[str, ...] = ()
    """The partitions that stop, start or move because of the command."""
    notes: tuple[str, ...] = ()
    """Additional remarks, one line each."""


@dataclass(slots=True)
class Orders:
    """The operator commands of a flow that are in force. Only `take` changes this object."""

    paused: dict[str, CopyingPaused] = field(default_factory=dict[str, CopyingPaused])
    """The pauses, by `pause_key`."""
    pins: dict[str, LanePinned] = field(default_factory=dict[str, LanePinned])
    """The pins, by partition, such as `orders-3`."""
    drained: dict[str, HostDrained] = field(default_factory=dict[str, HostDrained])
    """The drains, by the name of the replicator. The replicator may no longer exist."""

    @staticmethod
    def of(facts: Iterable[OrderFact]) -> "Orders":
        """Return the commands that are in force after these facts, if none was in force before them."""
        orders = Orders()
        for fact in facts:
            orders.take(fact)
        return orders

    def facts(self) -> tuple[OrderFact, ...]:
        """Return the facts that produce these commands again if they are passed to `of`."""
        return (*self.paused.values(), *self.pins.values(), *self.drained.values())

    def take(self, fact: OrderFact) -> bool:
        """Apply a fact. Return whether it takes effect. A fact that repeats the current state does not."""
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
        """Return the pause that applies to a partition, or None. If several pauses apply, return the one with the
        widest scope."""
        if not self.paused:
            return None
        keys = (pause_key("", -1), pause_key(topic, -1), pause_key(topic, partition))
        return next((self.paused[key] for key in keys if key in self.paused), None)

    def pin_of(self, lane: TopicPartition) -> LanePinned | None:
        """Return the pin of a partition, or None if it has none."""
        return self.pins.get(str(lane)) if self.pins else None


def pause_key(topic: str, partition: int) -> str:
    """Return a key that identifies a flow, a topic or a partition.

    Keys are unique because a topic name contains no colon (Kafka's `Topic.validate`).
    """
    if not topic:
        return ""
    return topic if partition < 0 else f"{topic}:{partition}"


def pausable(topic: str, partition: int) -> str:
    """Describe in words what a pause applies to: the flow, a topic or a partition."""
    if not topic:
        return "the flow"
    return f"topic {topic}" if partition < 0 else f"{topic}-{partition}"


def describe_origin(origin: Origin) -> str:
    """Describe in words who gave a command, when and why: "by ada@host at 2026-01-31 12:00:00Z: maintenance"."""
    why = f": {origin.reason}" if origin.reason else ""
    return f"by {author_of(origin)} at {moment(origin.at_ms)}{why}"


def author_of(origin: Origin) -> str:
    """Return the author that a command names and, if a client has sent it, the token and the address of the client:
    "ada@host (token on-call, from 10.0.0.7)"."""
    proved = f" (token {origin.client}, from {origin.peer})" if origin.client else ""
    return f"{origin.by or 'unknown'}{proved}"


def moment(at_ms: int) -> str:
    """Format a wall-clock time as a date and a time of day in UTC. A time that no calendar has is shown as a number of
    milliseconds."""
    if not 0 <= at_ms <= _LATEST_MS:
        return f"{at_ms} ms"
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _put(known: dict[str, OrderT], key: str, fact: OrderT) -> bool:
    if key in known:
        return False
    known[key] = fact
    return True
