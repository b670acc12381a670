"""Orders that people give a running flow: how they are asked for, what stands of them, and how they are told."""

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

Verb = Literal["pause", "resume", "move", "unpin", "drain", "skip", "replay", "seek"]
Kind = Literal["flow", "topic", "lane", "host"]
Standing = TypeVar("Standing", CopyingPaused, HostDrained)

POLICY = "policy"
"""Who gives an order when nobody does."""


class Order(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """What somebody asks a daemon for."""

    verb: Verb
    name: str
    """Of a flow, a topic of the source, a partition of it (`orders-3`) or a replicator; `flow:` may stand in front."""
    to: str = ""
    """The replicator that a lane is to move to."""
    flow: str = ""
    """Only this flow."""
    kind: Kind | None = None
    """What the name is of, where it could be of several."""
    by: str
    reason: str = ""
    offset: int = -1
    """A source offset, of orders about single records; of "seek" where the source's log begins."""
    until: int = -1
    """Up to this one, if that is more; of "seek" where the lane is to go on."""
    letters: int = -1
    """Of "skip": so many of the records are in the flow's dead-letter topic; -1: nobody put them there."""
    letters_at: int = -1
    """The first of them at this offset of that topic."""


class OrderAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an order, or with a dry run would."""

    flow: str
    done: tuple[str, ...] = ()
    """A line for each fact that was recorded; empty: it stood so already."""
    lanes: tuple[str, ...] = ()
    """Partitions that stop, begin or move."""
    notes: tuple[str, ...] = ()
    """What is good to know, one line each."""


@dataclass(slots=True)
class Orders:
    """The orders of a flow that stand. Only `take` changes it."""

    paused: dict[str, CopyingPaused] = field(default_factory=dict[str, CopyingPaused])
    """By `pause_key`."""
    pins: dict[str, LanePinned] = field(default_factory=dict[str, LanePinned])
    """By `orders-3`."""
    drained: dict[str, HostDrained] = field(default_factory=dict[str, HostDrained])
    """By the replicator's name, also when it is no more."""

    @staticmethod
    def of(facts: Iterable[OrderFact]) -> "Orders":
        """After these facts."""
        orders = Orders()
        for fact in facts:
            orders.take(fact)
        return orders

    def facts(self) -> tuple[OrderFact, ...]:
        """Those that give the same again."""
        return (*self.paused.values(), *self.pins.values(), *self.drained.values())

    def take(self, fact: OrderFact) -> bool:
        """Whether the fact binds; one that says what stands already does not."""
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
        """Why a partition is not copied, the widest order first; None: it is not paused."""
        if not self.paused:
            return None
        keys = (pause_key("", -1), pause_key(topic, -1), pause_key(topic, partition))
        return next((self.paused[key] for key in keys if key in self.paused), None)

    def pin_of(self, lane: TopicPartition) -> LanePinned | None:
        """Where a partition is to be."""
        return self.pins.get(str(lane)) if self.pins else None


def pause_key(topic: str, partition: int) -> str:
    """A name that no other flow, topic or partition has: a topic's name holds no colon (Kafka's
    `Topic.validate`)."""
    if not topic:
        return ""
    return topic if partition < 0 else f"{topic}:{partition}"


def pausable(topic: str, partition: int) -> str:
    """What a pause is about, for people."""
    if not topic:
        return "the flow"
    return f"topic {topic}" if partition < 0 else f"{topic}-{partition}"


def origin_words(origin: Origin) -> str:
    """by ada@host at 2026-01-31 12:00:00Z: maintenance"""
    why = f": {origin.reason}" if origin.reason else ""
    return f"by {origin.by} at {moment(origin.at_ms)}{why}"


def moment(at_ms: int) -> str:
    """A moment of the wall clock, in UTC."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def _put(known: dict[str, Standing], key: str, fact: Standing) -> bool:
    if key in known:
        return False
    known[key] = fact
    return True
