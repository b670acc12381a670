"""One seed, one story: a random but repeatable order of everything, faults included."""

import random
from dataclasses import replace

from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import AppendFailed, Drain, TargetFar
from tests.sim import late_bytes, leases, slow_brokers, target_retention, toy, transactions, truth
from tests.sim.failover import acts
from tests.sim.host import LANE, Host, Shape
from tests.sim.operator import decide_on_parked, seek
from tests.sim.past import acked_in_story
from tests.sim.themes import BY_CHANCE, OLD_MS, THEMES
from tests.sim.traps.moments import Script
from tests.sim.traps.setting import Traps
from tests.sim.world import World

STEPS = 150
"""Steps of a story before the quiet period."""
_STEPS_OF_A_TRAP = 400
"""Steps that a trap has in the quiet period."""
_FAR_BEHIND = 6
"""Source offsets by which the lane is far behind."""


def shape_of(rng: random.Random) -> Shape:
    """The world of a seed: half of them have a theme, the others a bit of everything."""
    if rng.random() < 0.5:
        return THEMES[rng.choice(BY_CHANCE)]
    old = rng.random() < 0.4
    return Shape(
        record_age_ms=OLD_MS if old else 0,
        forgetting=old and rng.random() < 0.8,
        transactions=rng.random() < 0.4,
        compaction=rng.random() < 0.25,
        elections=rng.random() < 0.6,
        unclean=rng.random() < 0.15,
        foreign=rng.random() < 0.15,
        pauses=rng.random() < 0.6,
        kills=rng.random() < 0.7,
        ledger_faults=rng.random() < 0.5,
        refusals=rng.random() < 0.5,
        creating=rng.random() < 0.2,
        twice=rng.random() < 0.25,
        window=rng.choice((2, 4, 8)),
    )


class Story:
    """Plays a world from a seed."""

    def __init__(self, seed: int, shape: Shape | None = None, until_wrap: int = 0, others: int = 0) -> None:
        """Without a shape, the seed determines the kind of world, except for `Shape.until_wrap` and `Shape.others`."""
        self.rng = random.Random(seed)
        self.shape = shape or replace(shape_of(self.rng), until_wrap=until_wrap, others=others)
        self.world = World(seed, self.shape)
        self.fault_rate = self.rng.choice((0.03, 0.06, 0.12))
        self.diligence = 0.93
        """How often something happens rather than that time passes. Requests may not be answered in time then."""
        if self.shape.traps:
            # Traps strike as well, and the lane has to reach the moments for which they wait.
            self.fault_rate, self.diligence = self.fault_rate / 3, 0.98
        elif self.shape.failover:
            self.fault_rate, self.diligence = self.fault_rate / 2, 0.97
        if self.shape.poison:
            self.world.target.largest = toy.size(self.rng.choice((1, 2, 3, 9)), self.world.target.keys)
        self.writing = True
        self.traps = Traps(self) if self.shape.traps and not self.shape.failover else None

    def run(self, steps: int) -> None:
        """`steps` random steps with faults, then a quiet period in which everything must arrive."""
        try:
            self._run(steps)
        finally:
            if self.world.failover is not None:
                self.world.failover.close()

    def _run(self, steps: int) -> None:
        world = self.world
        for _ in range(4):
            self._write()
        if self.shape.starts_late and not self.shape.until_wrap:
            world.source.begin = world.source.log[1].base
        world.start_host(former_dead=False)
        for _ in range(steps):
            self.step()
            truth.check(world)
        if world.failover is not None:
            acts.go_on(self, world.failover)
        self.settle()

    def step(self) -> None:
        world, rng = self.world, self.rng
        if self.shape.handed:
            self._move()
        if self.shape.far:
            self._go_far()
        self._act()
        if self.traps is not None:
            self.traps.step()
        if rng.random() < self.fault_rate:
            self._fault()
        elif self.writing and rng.random() < 0.08:
            if not self._waits_for_lane():
                self._write()
        else:
            choices = world.choices()
            later = world.next_time()
            if choices and (later is None or rng.random() < self.diligence):
                world.do(rng.choice(choices))
            elif later is not None:
                world.advance(later)
        if rng.random() < 0.1:
            world.advance(world.now + rng.random() * 0.5)

    def _act(self) -> None:
        """Processes, brokers and other clients do what they do on their own account."""
        world, shape = self.world, self.shape
        if shape.frozen:
            late_bytes.suspend(world)
        if shape.suspends or shape.throttles:
            slow_brokers.strike(world)
        if shape.others:
            transactions.act(world)
        if world.failover is not None:
            acts.act(world, world.failover)

    def _waits_for_lane(self) -> bool:
        """In stories with traps, little is written while the lane is far behind: most traps wait until it has copied
        the newest records."""
        position = max((host.lane.position for host in self.world.hosts if host.alive), default=0)
        return self.traps is not None and self.world.source.end > position + _FAR_BEHIND

    def _move(self) -> None:
        """A copying lane leaves now and then, and another replicator gets it at once."""
        world, rng = self.world, self.rng
        copying = [host for host in world.hosts if host.alive and not host.paused and host.lane.phase is Phase.COPYING]
        if world.left_cleanly and rng.random() < 0.7:
            world.start_host(former_dead=False)
        elif copying and acked_in_story(copying[-1]) > 0 and rng.random() < 0.1:
            copying[-1].take(Drain())

    def _go_far(self) -> None:
        """Much is written, and now and then a broker becomes far away, or near again."""
        world, rng = self.world, self.rng
        if self.writing and rng.random() < 0.3:
            self._write()
        running = [host for host in world.hosts if host.alive and not host.paused]
        if running and rng.random() < 0.1:
            host = rng.choice(running)
            host.take(TargetFar(not host.lane.is_far))

    def settle(self) -> None:
        """All faults are over: the target becomes whole, a host is there, and the lane must reach the end. After that,
        each trap strikes once more while nothing else goes wrong, and the lane must reach the end again."""
        self.world.note("quiet from here on")
        if self.traps is not None:
            self.traps.end()
        if self.shape.others:
            transactions.come_to_rest(self.world)
        if self.world.failover is not None:
            acts.settle(self, self.world.failover)
        else:
            self._settle_lane()

    def _settle_lane(self) -> None:
        self._arrive()
        for script in self.traps.once_more() if self.traps is not None else ():
            self._spring(script)
            self._arrive()
        if self.shape.others:
            transactions.end_all(self.world)
            self._arrive()

    def _spring(self, script: Script) -> None:
        """Let a trap strike. Meanwhile, records are written so that its moment comes."""
        for number in range(_STEPS_OF_A_TRAP):
            if next(script, script) is script:
                return
            if number % 8 == 0:
                self._write()
            self._go_on()
            truth.check(self.world)
        script.close()

    def _arrive(self) -> None:
        """Everything becomes whole, and the lane must reach the end."""
        world = self.world
        self._make_whole()
        wrote_at: int | None = None
        for _ in range(20_000 if self.traps else 6000):
            self._retire()
            if self._done() and not decide_on_parked(world):
                # Late bytes that no one knows of are found with the next batch.
                if not (world.excused or world.late) or (wrote_at is not None and self._has_sent(wrote_at)):
                    break
                wrote_at = world.target.end if wrote_at is None else wrote_at
                world.source.append(1, world.record_ms())
            self._go_on()
        else:
            raise truth.Violation(f"the lane does not come to rest: {world.phase()}")
        truth.check(world, final=True)
        if self.shape.others:
            transactions.check_readers(world)

    def _make_whole(self) -> None:
        world = self.world
        world.target.exists, world.target.refusals_left, world.target.unreadable = True, 0, False
        world.slow_replication = world.slow_wire = world.holds_bytes = world.slow.answers = False
        for request in world.wire:
            request.kept = False
        is_dead = world.failover is not None and world.failover.is_source_dead
        for producer in () if is_dead else list(world.source.open):
            world.source.finish(producer, world.record_ms(), commit=True)
        world.target.learn(world.wall_ms)
        for host in world.hosts:
            late_bytes.wake(host)

    def _go_on(self) -> None:
        """Let something happen that is not a fault. If nothing can, time passes."""
        world = self.world
        if world.failover is not None:
            acts.keep_going(world, world.failover)
        # A replicator that lives and was not replaced is there already; otherwise a supervisor would start one.
        if not world.hosts.living:
            world.start_host(former_dead=False)
        choices = world.choices()
        if choices:
            world.do(self.rng.choice(choices))
            truth.check(world)
        else:
            self._pass_time()

    def _retire(self) -> None:
        """A replicator whose lane is halted does not notice that another one took it: its supervisor ends it."""
        record = self.world.truth.lanes.get(LANE)
        for host in self.world.hosts.recent:
            if record is not None and host.lane.phase is Phase.HALTED and host.lane.grant != record.grant:
                host.alive = False

    def _has_sent(self, end: int) -> bool:
        """The lane has sent something, or will not, since the target log ended there. A filter drops some records."""
        target, record = self.world.target, self.world.truth.lanes.get(LANE)
        may_send = record is not None and record.halted is None and self.shape.policies
        return not may_send or target.end > end

    def _pass_time(self) -> None:
        if (later := self.world.next_time()) is not None:
            self.world.advance(later)

    def _done(self) -> bool:
        world = self.world
        live = world.hosts.living
        if not live or world.wire or any(host.appends or host.landed or host.unsent for host in live):
            return False
        lane, record = live[-1].lane, world.truth.lanes.get(LANE)
        if record is not None and lane.grant != record.grant:
            return False  # it has not read yet that another one took the lane
        if self.shape.seeks and live[-1].state.next_offset < len(world.ledger):
            return False
        if lane.phase is Phase.HALTED:
            # It writes to the ledger once more if that failed.
            is_recorded = (record is not None and record.halted is not None) or not live[-1].timers
            return is_recorded and lane.refusal.parking is None and live[-1].state.next_offset == len(world.ledger)
        at_end = lane.phase is Phase.COPYING and not lane.ready and not lane.in_flight
        at_end = at_end and lane.log.end_epoch == world.target.epoch
        at_end = at_end and not any(world.answerable(item) for item in live[-1].inbox)
        at_end = at_end and not slow_brokers.times(world, live[-1])
        # A lane that still has records to copy again asks from time to time whether the source has them. A comparison
        # that failed is repeated after a pause.
        waits = lane.comparison.later_pending or lane.confirming or lane.plan
        waits = waits or lane.comparison.first_ack_check is not None
        return at_end and lane.position >= world.source.end and not waits

    # --- what goes wrong

    def _write(self) -> None:
        if self.world.failover is not None and acts.is_stopped(self.world.failover):
            return
        before = self.world.source.number
        self._write_some()
        written = range(before + 1, self.world.source.number + 1) if self.shape.poison else ()
        records = [number for number in written if number in self.world.source.offset_of]
        self.world.target.poison.update(number for number in records if self.rng.random() < 0.2)

    def _write_some(self) -> None:
        world, rng = self.world, self.rng
        if self.shape.transactions and rng.random() < 0.5:
            producer = rng.randrange(3)
            if producer in world.source.open and rng.random() < 0.5:
                world.source.finish(producer, world.record_ms(), commit=rng.random() < 0.5)
                return
            world.source.append(rng.randint(1, 3), world.record_ms(), producer)
            return
        world.source.append(rng.randint(1, 4), world.record_ms())

    def _fault(self) -> None:
        world, rng, shape = self.world, self.rng, self.shape
        live = [host for host in world.hosts if host.alive]
        running = [host for host in live if not host.paused]
        kinds = ["disconnect", "takeover"]
        kinds += ["elect", "learn", "follower-lag"] if shape.elections else []
        kinds += ["forget"] * 2 if shape.forgetting else []
        kinds += ["kill"] if shape.kills else []
        kinds += ["pause", "wake"] if shape.pauses else []
        kinds += ["ledger"] * 2 if shape.ledger_faults else []
        kinds += ["refuse", "restart"] if shape.refusals else []
        kinds += ["create"] if shape.creating else []
        kinds += ["compact"] * 2 if shape.compaction else []
        kinds += ["metadata"] if shape.elections else []
        kinds += ["late"] if shape.late or shape.twice else []
        kinds += ["stray"] if world.stray else []
        kinds += ["again"] * 3 if shape.twice else []
        kinds += ["foreign"] if shape.foreign else []
        kinds += ["drain", "source-elect"]
        kinds += ["source-truncate"] if shape.truncation else []
        kinds += ["expire"] if shape.retention else []
        kinds += ["decide"] if shape.poison else []
        kinds += ["clean"] * 3 if shape.cleans else []
        kinds += ["seek"] if shape.seeks else []
        kinds += ["freeze", "thaw"] if shape.frozen else []
        kinds += ["lease"] if shape.daemons else []
        kinds += ["expire-target", "outlive"] if shape.expires else []
        kinds += ["suspend"] * 2 if shape.suspends else []
        kinds += ["throttle"] * 2 if shape.throttles else []
        kinds += acts.FAULTS if shape.failover else ()
        kinds += shape.faults * 3
        kind = rng.choice(kinds)
        host = rng.choice(running) if running else None
        world.note(f"fault {kind} {host.name if host else ''}")
        self._strike(kind, host, live)

    def _strike(self, kind: str, host: Host | None, live: list[Host]) -> None:
        match kind:
            case "stray" | "again" | "decide" | "seek":
                self._deliver(kind, host)
            case "foreign" | "clean" | "overtake":
                self._strike_copy(kind)
            case "compact" | "race" | "source-elect" | "source-truncate" | "source-branch" | "expire":
                self._strike_source(kind)
            case (
                "disconnect" | "takeover" | "kill" | "pause" | "wake" | "freeze" | "thaw" | "ledger" | "drain" | "lease"
            ):
                self._strike_host(kind, host, live)
            case _ if self.world.failover is not None and kind in acts.FAULTS:
                acts.strike(self.world, self.world.failover, kind)
            case "metadata":
                for each in live:
                    each.leader = self.world.target.leader
            case _:
                self._strike_target(kind, host)

    def _strike_host(self, kind: str, host: Host | None, live: list[Host]) -> None:
        world = self.world
        match kind:
            case "disconnect" if host is not None:
                host.disconnect()
            case "takeover" if len(live) < 3:
                world.start_host(former_dead=not live)
            case "kill" if host is not None:
                self._kill(host)
            case "pause" if host is not None:
                host.paused = True
            case "wake":
                for each in live:
                    late_bytes.wake(each)
            case "freeze":
                late_bytes.freeze(world, host)
            case "thaw":
                late_bytes.thaw(world)
            case "ledger" if host is not None and host.appends:
                self._fail_append(host)
            case "lease":
                leases.take(world)
            case "drain" if host is not None:
                host.take(Drain())
            case _:
                pass

    def _strike_target(self, kind: str, host: Host | None) -> None:  # noqa: C901, PLR0912 -- one case a fault
        world, target, rng = self.world, self.world.target, self.rng
        match kind:
            case "elect":
                follower = target.brokers[1 - target.leader]
                if self.shape.unclean or follower.end >= target.high_watermark:
                    target.elect()
            case "learn":
                target.learn(world.wall_ms)
            case "follower-lag":
                target.in_sync = False
                target.advance()
            case "forget":
                target.forget(rng.randrange(2), world.wall_ms)
            case "restart":
                target.reload(rng.randrange(2), world.wall_ms)
            case "expire-target":
                target_retention.expire(world)
            case "outlive":
                target_retention.outlive(world, host)
            case "suspend":
                slow_brokers.suspend(world)
            case "throttle":
                slow_brokers.throttle(world, host)
            case "refuse":
                target.refusal = rng.choice((6, 19, 3, 5))
                target.refusals_left = rng.randint(1, 3)
            case "refuse-and-forget":
                target.refusal = rng.choice((19, 6, 3))
                target.refusals_left, target.forget_after = 1, True
            case "late":
                if rng.random() < 0.5:
                    target.forget(target.leader, world.wall_ms)
                late_bytes.arrive(world)
            case "bounce":
                target.bounce(world.wall_ms, rng.randint(0, 3))
            case "create":
                target.exists = True
            case _:
                pass

    def _strike_copy(self, kind: str) -> None:
        if kind == "foreign":
            self.world.target.foreign(self.rng.randint(1, 3), self.world.wall_ms)
            return
        if kind == "overtake":
            self._overtake()
            return
        below = self.world.target.high_watermark - self.rng.randint(0, 2)
        for each in self.rng.choice(((0,), (1,), (0, 1), (0, 1))):
            self.world.target.clean(each, below)

    def _overtake(self) -> None:
        """Another client writes all keys, the lane's producer is forgotten, and the cleaner removes what was there."""
        target, rng = self.world.target, self.rng
        if self.shape.unclean and rng.random() < 0.4:
            target.bounce(self.world.wall_ms, rng.randint(1, 3))
        if self.shape.foreign:
            target.foreign(rng.choice((1, target.keys, target.keys)), self.world.wall_ms)
        while rng.random() < 0.9 and target.replicate():
            pass
        for each in (0, 1):
            target.forget(each, self.world.wall_ms)
            target.clean(each, target.high_watermark)
        if self.shape.unclean and rng.random() < 0.3:
            target.elect()
        if len([host for host in self.world.hosts if host.alive]) < 3 and rng.random() < 0.6:
            self.world.start_host(former_dead=False)

    def _strike_source(self, kind: str) -> None:
        source, rng = self.world.source, self.rng
        if self.world.failover is not None and self.world.failover.is_source_dead:
            return
        if kind == "compact":
            # The cleaner leaves the active segment alone; what it touches may not be copied yet.
            source.compact(source.end - rng.randint(0, 3))
        elif kind == "race":
            # The source removes a record that is in flight, and the next holder will not see it.
            for request in self.world.wire[:1]:
                source.compact(source.end, request.batch.offset)
                for each in self.world.wire:
                    each.held = each.held or each.host is request.host
                if len([host for host in self.world.hosts if host.alive]) < 3:
                    self.world.start_host(former_dead=False)
        elif kind == "source-elect":
            source.elect()
        elif kind == "expire":
            source.expire(rng.randint(1, 3))
        elif kind == "source-branch":
            source.branch(rng.randint(1, 4), self.world.record_ms())
        else:
            source.truncate(rng.randint(1, 3))

    def _deliver(self, kind: str, host: Host | None) -> None:
        """Deliver what comes late or twice, and decide as operators do."""
        stray = self.world.stray
        if kind == "decide":
            decide_on_parked(self.world)
        if kind == "seek":
            seek(self.world)
        if kind == "stray" and stray:
            self.world.write_entry(stray.pop(self.rng.randrange(len(stray))))
        elif kind == "again" and host is not None and host.heard:
            host.hear_again()

    def _kill(self, host: Host) -> None:
        host.alive = False
        host.sent.clear()
        host.unsent.clear()
        mine = [request for request in self.world.wire if request.host is host]
        for request in mine[self.rng.randrange(len(mine) + 1) :]:
            self.world.forsake(request)

    def _fail_append(self, host: Host) -> None:
        tag, entry = host.appends.popleft()
        fate = self.rng.random()
        if fate < 0.5:
            self.world.write_entry(entry)
        elif fate < 0.7:
            self.world.stray.append(entry)
        host.take(AppendFailed(tag, host.record()))
