"""Stories of a leader of the target partition that is suspended over the end of the time for which a lane waits. A
former holder's batch is in its receive buffer. The leader appends it right after it continues and has forgotten the
producer, but not before the lane's own first batch."""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import pytest

from mirrord.ledger.facts.core import Mode
from mirrord.replication.lane.phases import Phase, Stage
from tests.sim import truth
from tests.sim.host import REQUEST_S, Host, Shape
from tests.sim.scheduler import Story
from tests.sim.themes import OLD_MS
from tests.sim.traps.moments import LONG, Script, forget, keep, kill, on_the_wire, until

SEEDS = range(20)
STEPS = 400
MANY = 10_000
QUIET = Shape(
    record_age_ms=OLD_MS,
    forgetting=True,
    elections=False,
    kills=False,
    pauses=False,
    ledger_faults=False,
    refusals=False,
)
Moment = Callable[[Host], bool]


def waits(host: Host) -> bool:
    """The leader has answered, and the lane waits."""
    return host.lane.phase is Phase.WAITING and not host.lane.late_writes.unanswered


def asks(stage: Stage) -> Moment:
    """The lane has made this request, and the leader has not read it yet."""

    def is_asking(host: Host) -> bool:
        lane = host.lane
        return lane.stage is stage and lane.phase is Phase.RESUMING and not lane.late_writes.unanswered

    return is_asking


class Suspended(Story):
    """The leader is suspended from a moment until `past` seconds after the end of the wait. All hosts are prompt: time
    passes only if nothing else can happen."""

    def __init__(self, seed: int, mode: Mode, moment: Moment, past: float) -> None:
        super().__init__(seed, replace(QUIET, mode=mode))
        self.fault_rate, self.moment, self.past = 0.0, moment, past
        self.outcome = "not reached"
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
        requests = yield from until(lambda: on_the_wire(world))
        if not requests:
            return
        kill(keep(requests))
        for each in requests:
            each.read_until = float(MANY)
        sent = world.now
        later = world.start_host(former_dead=True)
        forget(world)
        if not (yield from until(lambda: self.moment(later), LONG)) or world.now >= sent + REQUEST_S - 0.1:
            return
        end = world.slow.suspended[world.target.leader] = later.lane.late_writes.until + self.past
        yield from until(lambda: world.now >= end, MANY)
        lane, first = later.lane, requests[0].batch.first
        yield from until(lambda: lane.late_writes.until > end + 1 or lane.acked > first, MANY)
        self.outcome = "waits again" if lane.late_writes.until > end + 1 else "sends at once"
        forget(world)
        for each in requests:
            each.kept = False
            if each in world.wire:
                world.do(("arrive", each))
                truth.check(world)


@pytest.mark.parametrize("mode", ["sequence", "at-least-once"])
@pytest.mark.parametrize(
    ("moment", "past"),
    [
        pytest.param(waits, 3.0, id="continues long after the end"),
        pytest.param(waits, 1.9, id="continues after the end"),
        pytest.param(waits, -0.01, id="continues before the end"),
        pytest.param(asks(Stage.END_AGAIN), -0.01, id="request 3 is slow"),
        pytest.param(asks(Stage.VISIBLE), -0.01, id="request 4 is slow"),
        pytest.param(asks(Stage.VISIBLE), 0.15, id="request 4 is not answered"),
    ],
)
def test_the_wait_begins_again(mode: Mode, moment: Moment, past: float) -> None:
    outcomes: Counter[str] = Counter()
    for seed in SEEDS:
        story = Suspended(seed, mode, moment, past)
        story.run(STEPS)
        outcomes[story.outcome] += 1
    assert outcomes == {"waits again": len(SEEDS)}
