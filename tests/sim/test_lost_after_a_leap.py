"""Stories of a source that loses copied records just before a lane leaps over a record that the target refuses."""

from mirrord.replication.lane.phases import Phase
from tests.sim.host import LANE, Host, Shape
from tests.sim.scheduler import Story
from tests.sim.traps.moments import LONG, Script, running, until

STEPS = 400
QUIET = Shape(
    poison=True,
    on_reject="skip",
    truncation=True,
    elections=False,
    kills=False,
    pauses=False,
    ledger_faults=False,
    refusals=False,
)


class Lost(Story):
    """When the ledger says that a refused record is skipped, the source loses it and the copied records before it. Its
    log ends below the position of the lane. Time passes only if nothing else can happen."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, QUIET)
        self.fault_rate, self.writing, self.is_reached = 0.0, False, False
        self.script = self.play()

    def step(self) -> None:
        next(self.script, None)
        choices = self.world.choices()
        if choices:
            self.world.do(self.rng.choice(choices))
        else:
            self._pass_time()

    def play(self) -> Script:
        world, source = self.world, self.world.source
        world.target.poison = {number for offset, number in source.log[-1].records[:1] if offset > 1}

        def skips() -> Host | None:
            resuming = (host for host in running(world) if host.lane.phase is Phase.RESUMING and host.lane.acked > 1)
            record = world.truth.lanes.get(LANE)
            is_skipped = record is not None and any(each.skipped for each in record.quarantine)
            return next(resuming, None) if is_skipped else None

        if (yield from until(skips, LONG)):
            source.truncate(len(source.log) - 1)
            self.is_reached = True


def test_a_lane_goes_back_after_a_leap() -> None:
    stories = [Lost(seed) for seed in range(10)]
    for story in stories:
        story.run(STEPS)
    assert any(story.is_reached for story in stories)
