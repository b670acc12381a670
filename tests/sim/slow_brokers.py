"""Brokers that are slow: answers that were computed long before they arrive, connections that a broker does not read
from for a while, and brokers that are suspended.

What a suspended broker, or one that throttles a connection, has received stays in its receive buffers, even if the
client closes the connection in the meantime.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    AskCheck,
    AskEnd,
    AskProducers,
    AskRebuild,
    AskScan,
    AskVisible,
    Chunk,
    EndAnswer,
    Input,
    ProducersAnswer,
    VisibleAnswer,
)
from mirrord.replication.lane.target.superseded_records import AskShared, AskSuperseded, SharedAnswer
from tests.sim.host import NETWORK, REQUEST_S, TTL_S, Host, Request

if TYPE_CHECKING:
    from tests.sim.world import World

READS = (AskScan, AskCheck, AskRebuild, AskSuperseded)
ASKED_OF_LEADER = (AskEnd, AskProducers, AskVisible, AskShared, *READS)
AT_ONCE = frozenset({"ask", "tell"})
"""Kinds of questions and answers in flight that are not delayed."""
APART_S = TTL_S + 2 * REQUEST_S
"""Time between two suspensions of brokers. A lane waits again only once because of a slow answer (`in_doubt.answered`),
so it relies on a broker that is not suspended all the time."""


@dataclass
class Slowness:
    """Which brokers are slow now."""

    answers: bool
    """Answers may be delayed."""
    suspended: dict[int, float] = field(default_factory=dict)
    """Until when a broker is suspended."""
    muted: dict[tuple[str, int], float] = field(default_factory=dict)
    """Until when a broker reads nothing from a connection (host, number)."""

    def suspended_until(self) -> float:
        """When all brokers run again."""
        return max(self.suspended.values()) if self.suspended else 0.0


def lost_answer(question: Any) -> Input | None:
    """What the lane is told if the broker does not answer in time; None if a read is repeated."""
    match question:
        case AskEnd():
            return EndAnswer(question.question, NETWORK, -1, -1)
        case AskProducers():
            return ProducersAnswer(question.question, NETWORK, None)
        case AskVisible():
            return VisibleAnswer(question.question, NETWORK, -1, -1)
        case AskShared():
            return SharedAnswer(question.question, NETWORK, -1, -1)
        case _:
            return None


def reply(world: "World", host: Host, question: Any, answer: Input) -> tuple[str, Any]:
    """Return what the inbox of the host holds now: the answer, or an answer that arrives later."""
    if not world.slow.answers or world.rng.random() < 0.6:
        return "tell", answer
    delay_s = world.rng.choice((0.5, 3.0, 6.0, 1.2 * REQUEST_S)) * world.rng.random()
    if delay_s > REQUEST_S:
        lost = lost_answer(question)
        is_repeated = host.lane.phase is Phase.COPYING and not host.lane.confirming
        if lost is not None:
            return "slow", (lost, world.now + REQUEST_S)
        if isinstance(question, READS) and not is_repeated:
            return "slow", (replace(answer, error=NETWORK), world.now + REQUEST_S)  # type: ignore[type-var]
        delay_s = REQUEST_S
    return "slow", (answer, world.now + delay_s)


def fetched(world: "World", chunk: Chunk) -> tuple[str, Any]:
    """The same for records of the source."""
    if not world.slow.answers or world.rng.random() < 0.8:
        return "tell", chunk
    return "slow", (chunk, world.now + world.rng.random() * 3.0)


def hold(world: "World", kind: str, content: Any) -> tuple[str, Any] | None:
    """Return what the inbox holds instead of a question that a suspended broker does not read, or None."""
    if not world.slow.suspended or kind != "ask":
        return None
    question, broker = content
    until = world.slow.suspended.get(broker, 0.0)
    if until <= world.now or not isinstance(question, ASKED_OF_LEADER):
        return None
    lost = lost_answer(question)
    if lost is not None and until - world.now > REQUEST_S:
        return "slow", (lost, world.now + REQUEST_S)
    return "held", ((question, broker), until)


def is_due(world: "World", item: tuple[str, Any]) -> bool:
    """Whether a delayed answer arrives now, or a question is read now."""
    return item[0] in AT_ONCE or item[1][1] <= world.now


def times(world: "World", host: Host) -> list[float]:
    """When something arrives that is delayed."""
    found = [item[1][1] for item in host.inbox if item[0] in {"slow", "held"}]
    found += [host.answers[0][0].answer_at] if host.answers else ()
    return [at for at in found if at > world.now]


def is_read(world: "World", request: Request) -> bool:
    """Whether the broker reads from the connection of a request now."""
    muted = world.slow.muted.get((request.host.name, request.connection), 0.0)
    if request.kept or max(muted, world.slow.suspended.get(request.broker, 0.0)) > world.now:
        return False
    if not is_left(request) or request.read_until == 0 or not world.slow.answers:
        return True
    # The most revealing moment is after the next holder has sent the same records.
    is_behind = any(host.lane.acked > request.batch.first for host in world.hosts if host is not request.host)
    return world.rng.random() < (0.5 if is_behind else 0.02)


def is_left(request: Request) -> bool:
    """Whether nobody waits for the answer to a request."""
    return request.connection != request.host.connection or not request.host.alive


def answer_later(world: "World", request: Request) -> None:
    """The broker takes its time for an answer."""
    if world.slow.answers and world.rng.random() < 0.25:
        request.answer_at = world.now + world.rng.random() * 1.5 * REQUEST_S


def strike(world: "World") -> None:
    """Suspend a broker, or throttle a connection, at a moment when requests are on their way."""
    left = [request for request in world.wire if is_left(request) and request.read_until > 0]
    if left and world.shape.forgetting and world.rng.random() < 0.2:
        world.target.forget(left[0].broker, world.wall_ms)
    if not world.wire or world.rng.random() < 0.9:
        return
    if world.shape.suspends:
        suspend(world)
    else:
        throttle(world, world.wire[0].host)


def suspend(world: "World") -> None:
    """Suspend a broker, the leader more often. What it has received it reads at most `REQUEST_S` after it continues."""
    if max(world.slow.suspended.values(), default=-APART_S) + APART_S > world.now:
        return
    broker = world.target.leader if world.rng.random() < 0.8 else 1 - world.target.leader
    until = world.slow.suspended[broker] = world.now + world.rng.choice(
        (REQUEST_S - 1, 2 * REQUEST_S, 2 * REQUEST_S, APART_S)
    )
    world.note(f"broker {broker} is suspended until {until:.2f}")
    for request in world.wire:
        if request.broker == broker:
            request.read_until = until + REQUEST_S
    if world.shape.forgetting and world.rng.random() < 0.7:
        world.target.forget(broker, world.wall_ms)
    if world.rng.random() < 0.3:
        for host in world.hosts:
            host.alive = False
    if world.rng.random() < 0.7 and len([host for host in world.hosts if host.alive]) < 3:
        world.start_host(former_dead=not any(host.alive for host in world.hosts))


def throttle(world: "World", host: Host | None) -> None:
    """A broker reads nothing from a host's connection for a while, and the host knows it (KIP-219). The next holder
    does not."""
    if host is None or not host.alive or (host.name, host.connection) in world.slow.muted:
        return
    if not any(request.host is host and request.connection == host.connection for request in world.wire):
        return
    until = world.now + world.rng.choice((2.0, REQUEST_S, TTL_S + REQUEST_S + 1, TTL_S + 2 * REQUEST_S))
    world.slow.muted[host.name, host.connection] = until
    world.note(f"{host.name} is throttled until {until:.2f}")
    for request in host.sent:
        request.late_after, request.deadline = request.deadline, until + REQUEST_S
        request.read_until = request.deadline
    if world.shape.forgetting and world.rng.random() < 0.5:
        world.target.forget(world.target.leader, world.wall_ms)
    if world.rng.random() < 0.4:
        host.alive = False
    if world.rng.random() < 0.6 and len([each for each in world.hosts if each.alive]) < 3:
        world.start_host(former_dead=not any(each.alive for each in world.hosts))


def is_overdue(world: "World", request: Request) -> bool:
    """Whether the bytes of a request come later than another holder waits for them."""
    is_taken = any(each.lane.grant > request.host.lane.grant for each in world.hosts)
    return request.overdue or (0 < request.late_after < world.now and is_taken)
