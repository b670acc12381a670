"""What happens in a story with a failover: what the operator, consumers and processes do, and what goes wrong."""

from typing import TYPE_CHECKING

from mirrord.ledger.facts.recovery import Recovery
from mirrord.ledger.folding.failovers import in_progress
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import Drain
from tests.sim import truth
from tests.sim.failover import moments
from tests.sim.failover.process import Process
from tests.sim.failover.receipt import check_failover
from tests.sim.failover.setting import Failover
from tests.sim.host import LANE

if TYPE_CHECKING:
    from tests.sim.scheduler import Story
    from tests.sim.world import World

FAULTS = ("process-crash", "process-pause", "process-wake", "take-lease", "take-lease", "mislead")
MOST_STEPS = 300
"""Steps after which a failover comes to its end without faults."""
_LAST = ("peace", "forgotten producer", "cut off", "fire", "fire after a move", "change of mind")
"""What the last failover of a story is like."""
STEPS_AFTER = 40
"""Steps of a story after its failover."""
_MOST = 3
"""Maximum number of processes that live at the same time."""


def act(world: "World", failover: Failover) -> None:
    """Let processes, consumers and the operator do what they do on their own account."""
    rng = world.rng
    for each in failover.living:
        if not each.paused:
            _work(world, failover, each)
    if failover.holder is None and rng.random() < 0.1:
        take_lease(world, failover)
    starter = failover.starter()
    if starter is not None and not starter.hosts and rng.random() < 0.2:
        world.start_host(former_dead=not world.hosts.living)
    if len(failover.living) < _MOST and any(each.writes for each in failover.living) and rng.random() < 0.03:
        # The most revealing moment is between the check of the lease and the write.
        rng.choice([each for each in failover.living if each.writes]).paused = rng.random() < 0.5
        take_lease(world, failover)
    if world.shape.misled and len(world.hosts.living) < 2 and rng.random() < 0.1:
        failover.mislead()
    if rng.random() < (0.03 if is_stopped(failover) else 0.2) and not failover.is_source_dead:
        failover.groups.act(world.source.last_stable)
    _operate(world, failover)


def _work(world: "World", failover: Failover, process: Process) -> None:
    """A process does what it does at intervals."""
    rng = world.rng
    if rng.random() < 0.3:
        process.take_reports()
    if process.kind != "daemon":
        return
    if rng.random() < 0.1 and not failover.is_source_dead:
        process.record_ends()
    if rng.random() < 0.07:
        process.follower.look()
    if rng.random() < 0.1:
        process.follower.record()


def _operate(world: "World", failover: Failover) -> None:
    current = in_progress(world.truth.recoveries)
    if current is None:
        _begin(world, failover)
        return
    _attend(world, failover, current)
    if world.rng.random() < 0.2:
        world.advance(world.now + world.rng.random() * 2.0)  # most steps wait for some time


def _begin(world: "World", failover: Failover) -> None:
    """The operator begins a failover, often because the site of the source and of the daemon burns."""
    rng = world.rng
    is_revealing = not failover.has_ended and moments.is_revealing(world)
    is_early = len(world.target.brokers[world.target.leader].log) < 3
    chance = 0.2 if is_revealing else 0.004 if is_early else 0.05 if world.wire else 0.015
    if failover.has_ended or rng.random() >= chance:
        return
    if not is_revealing and rng.random() < 0.5 and not failover.is_source_dead:
        failover.begin("planned")
        failover.producers_stopped = rng.random() < 0.6
        return
    failover.is_source_dead |= rng.random() < 0.5
    if is_revealing or rng.random() < 0.4:
        _burn(world, failover)
    elif rng.random() < 0.5:
        for each in failover.living:
            each.cut_off.update({host.name: True for host in each.hosts})
    failover.begin("source-lost")


def _attend(world: "World", failover: Failover, current: Recovery) -> None:
    """The operator watches a failover in progress, and stops producers and consumers before a planned one."""
    rng, is_planned = world.rng, current.mode == "planned"
    if is_planned and not failover.is_source_dead:
        if rng.random() < 0.003:
            failover.is_source_dead = True
            failover.seen.add("the source dies in a planned failover")
        if rng.random() < 0.1:
            failover.groups.reading.clear()
            failover.producers_stopped = True
    if not is_planned and not failover.is_source_dead and rng.random() < 0.2:
        world.source.append(1, world.record_ms())
    _let_arrive(world)
    needs_source = is_planned and failover.is_source_dead and not current.ended
    if rng.random() < (0.2 if needs_source else 0.002):
        failover.cancel()
        if not failover.is_in_progress and rng.random() < 0.7:
            failover.begin("source-lost" if is_planned else "planned")


def _let_arrive(world: "World") -> None:
    """Requests of processes that have died arrive some time later."""
    for request in world.wire:
        request.kept &= world.rng.random() < 0.985


def _end(process: Process, *, with_hosts: bool) -> None:
    """A process ends, perhaps with its replicators. What they have sent may still arrive."""
    for host in process.hosts if with_hosts else ():
        host.alive = False
        host.sent.clear()
        host.unsent.clear()
    process.end()


def strike(world: "World", failover: Failover, kind: str) -> None:
    """Let a fault strike a process."""
    rng, living = world.rng, failover.living
    running = [each for each in living if not each.paused]
    match kind:
        case "process-crash" if running:
            _end(rng.choice(running), with_hosts=rng.random() < 0.5)
        case "process-pause" if running:
            rng.choice(running).paused = True
        case "process-wake":
            for each in living:
                each.paused = False
        case "take-lease" if len(living) < _MOST:
            take_lease(world, failover)
        case "mislead":
            failover.mislead()
        case _:
            pass


def take_lease(world: "World", failover: Failover) -> None:
    """Another process takes the lease."""
    failover.take_lease("command" if failover.may_command and world.rng.random() < 0.5 else "daemon")


def keep_going(world: "World", failover: Failover) -> None:
    """Start a process if none holds the lease. A planned failover needs a daemon until its records are copied."""
    if failover.holder is None:
        failover.take_lease("command" if failover.may_command and world.rng.random() < 0.3 else "daemon")
    _let_arrive(world)
    for each in failover.living:
        each.take_reports()


def is_stopped(failover: Failover) -> bool:
    """Return whether producers no longer write."""
    return failover.is_source_dead or (failover.producers_stopped and (failover.is_in_progress or failover.has_ended))


def go_on(story: "Story", failover: Failover) -> None:
    """Play on for a while if a failover is in progress."""
    for _ in range(MOST_STEPS):
        if not failover.is_in_progress:
            return
        story.step()
        truth.check(story.world)


def settle(story: "Story", failover: Failover) -> None:
    """All faults are over, and everything must come to its end. What must be true then is checked, and once more after
    some time with faults."""
    _come_to_the_end(story, failover)
    check_failover(story.world, failover)
    if failover.has_ended:
        _live_on(story, failover)
        check_failover(story.world, failover)


def _come_to_the_end(story: "Story", failover: Failover) -> None:
    """A failover in progress must come to its end. If none has ended the copying, the lane must reach the end of the
    source, and a last failover may follow."""
    world = story.world
    _calm_down(story, failover)
    if failover.is_source_dead and not failover.has_ended:
        current = in_progress(world.truth.recoveries)
        if current is not None and current.mode == "planned":
            failover.cancel()
        failover.begin("source-lost")
    _until_over(story, failover)
    if failover.has_ended:
        return
    story._settle_lane()
    if world.rng.random() < 0.8:
        _last(story, failover)


def _last(story: "Story", failover: Failover) -> None:
    """A last failover, while everything works. Only the one thing goes wrong that matters most."""
    world, kind = story.world, story.world.rng.choice((*_LAST, "cut off"))
    failover.seen.add(f"last: {kind}")
    if kind == "forgotten producer":
        failover.forgets = True
        failover.begin("planned")
        _until_over(story, failover)
        failover.forgets = False
        if failover.has_ended:
            return
        story._settle_lane()
    if kind in {"peace", "forgotten producer"}:
        failover.begin("planned")
        _until_over(story, failover)
        record, (*_, last) = world.truth.lanes.get(LANE), world.truth.recoveries
        if not failover.has_ended and not (record is not None and record.halted is not None):
            raise truth.Violation(f"a planned failover is cancelled, although nothing goes wrong: {last.why}")
        return
    failover.is_drama = True
    if kind == "change of mind":
        failover.begin("planned")
        for _ in range(world.rng.randint(10, 60)):
            story._go_on()
        failover.cancel()
    elif kind == "cut off":
        for each in failover.living:
            each.cut_off.update({host.name: True for host in each.hosts})
        for host in world.hosts.living:
            host.paused = world.rng.random() < 0.4
    else:
        _catch_fire(story, failover, has_moved=kind == "fire after a move")
    failover.begin("source-lost")
    _until_over(story, failover)
    failover.is_drama = False


def _catch_fire(story: "Story", failover: Failover, *, has_moved: bool) -> None:
    """All processes end while records are on their way, perhaps just after the lane was moved to another replicator,
    which has not saved its position."""
    world = story.world
    if has_moved:
        for host in world.hosts.living:
            host.take(Drain())
        world.saves = 0.0
        for _ in range(200):
            if any(host.lane.phase is Phase.COPYING for host in world.hosts.living):
                break
            story._go_on()
    world.source.append(2, world.record_ms())
    end = world.target.end
    for _ in range(40):
        if world.target.end > end or (world.wire and not has_moved):
            break
        story._go_on()
    _burn(world, failover)


def _burn(world: "World", failover: Failover) -> None:
    """All processes end. What they have sent may arrive for as long as a request may take."""
    for request in world.wire:
        request.kept = world.rng.random() < 0.8
    for each in failover.living:
        _end(each, with_hosts=True)


def _live_on(story: "Story", failover: Failover) -> None:
    """Faults strike again after the end of a failover: nothing may be written any more."""
    failover.quiet = False
    for _ in range(STEPS_AFTER):
        story.step()
        truth.check(story.world)
    _calm_down(story, failover)
    _until_over(story, failover)
    for _ in range(STEPS_AFTER):
        story._go_on()


def _calm_down(story: "Story", failover: Failover) -> None:
    failover.quiet, story.world.saves = True, 1.0
    kept = [request for request in story.world.wire if request.kept and not request.host.alive]
    story._make_whole()
    for request in kept:
        request.kept = True
    for each in failover.living:
        each.paused = False
    failover.groups.reading.clear()
    failover.producers_stopped = True
    source = story.world.source
    if not failover.is_source_dead and (source.log[-1].last if source.log else -1) + 1 < source.end:
        # The cleaner has removed the last batch that an election has left. No reader gets to the end of such a log.
        source.append(1, story.world.record_ms())


def _until_over(story: "Story", failover: Failover) -> None:
    """Let the failover in progress come to its end. A lane that has halted is left to the operator."""
    world = story.world
    for _ in range(6000):
        current = in_progress(world.truth.recoveries)
        if current is None:
            return
        holder = failover.holder
        if holder is not None and holder.kind == "command" and not failover.may_command:
            holder.end()  # an operator interrupts it, because only a daemon can copy what is missing
        record = world.truth.lanes.get(LANE)
        if record is not None and record.halted is not None and not failover.may_command:
            failover.cancel()
        story._go_on()
        truth.check(world)
    waits = [each.executor.remarks for each in failover.living]
    raise AssertionError(f"the failover does not come to its end: {waits}")
