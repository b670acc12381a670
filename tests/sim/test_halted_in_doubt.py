"""A lane halts (`on_loss = "halt"`) while batches are in flight. Their connection is lost during the halt. An operator
lets the lane continue. It waits before it sends the batches again."""

from collections import Counter
from dataclasses import replace

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.seeks import LaneSought
from mirrord.replication.lane.phases import Phase
from tests.sim import truth
from tests.sim.host import LANE, REQUEST_S
from tests.sim.scheduler import Story
from tests.sim.test_suspended_leader import MANY, QUIET
from tests.sim.traps.moments import LONG, Script, copying, forget, keep, on_the_wire, until

SEEDS = range(20)


class Halts(Story):
    def __init__(self, seed: int) -> None:
        super().__init__(seed, replace(QUIET, mode="sequence", truncation=True, seeks=True))
        self.fault_rate, self.outcome = 0.0, "not reached"
        self.script = self.play()

    def step(self) -> None:
        next(self.script, None)
        choices = self.world.choices()
        if choices:
            self.world.do(self.rng.choice(choices))
        else:
            self._pass_time()

    def play(self) -> Script:
        world = self.world
        host = yield from until(lambda: copying(world, acked=1), LONG)
        if not host:
            return
        lane = host.lane
        lane.on_loss = "halt"
        world.source.append(1, world.record_ms())
        world.source.append(1, world.record_ms())
        requests = yield from until(
            lambda: on_the_wire(world) if lane.in_flight and lane.position == world.source.end else None, LONG
        )
        if not requests or len(requests) < 2 or requests[0].batch.first != lane.acked:
            return
        keep(requests)
        for each in requests:
            each.read_until = float(MANY)
        end = world.slow.suspended[world.target.leader] = world.now + REQUEST_S + 1.5
        world.source.truncate(1)
        world.source.append(2, world.record_ms())
        if not (yield from until(lambda: lane.phase is Phase.HALTED, LONG)):
            return
        yield from until(lambda: not host.sent, LONG)  # the connection is lost after the request timeout
        forget(world)
        halt = yield from until(lambda: world.truth.lanes[LANE].halted, LONG)
        if not halt:
            return
        # What the source has at the lost offsets now is skipped as well.
        ada = Origin("ada@host", "", 0)
        world.write((LaneSought(LANE, halt.start, world.source.end, world.source.start, ada, halt.start),), 1)
        first = requests[0].batch.first
        yield from until(lambda: lane.acked > first or lane.late_writes.until > world.now + 1, MANY)
        self.outcome = "sends at once" if lane.acked > first else "waits"
        self.outcome += f" ({world.now - end:.0f} s after the leader continues)"
        forget(world)
        for each in requests:
            each.kept = False
            if each in world.wire:
                world.do(("arrive", each))
                truth.check(world)


def test_batches_in_flight_are_in_doubt_after_a_halt() -> None:
    outcomes: Counter[str] = Counter()
    for seed in SEEDS:
        story = Halts(seed)
        story.run(600)
        outcomes[story.outcome] += 1
    assert outcomes["waits (0 s after the leader continues)"] > 0
    assert not [each for each in outcomes if each.startswith("sends at once")]
