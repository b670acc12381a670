"""Stories of a source that loses copied records while the lane copies the records of a hole again."""

from mirrord.replication.lane.phases import Phase
from tests.sim.host import Request, Shape
from tests.sim.scheduler import Story
from tests.sim.themes import OLD_MS
from tests.sim.traps.moments import LONG, Script, keep, on_the_wire, until

STEPS = 300
QUIET = Shape(
    record_age_ms=OLD_MS,
    forgetting=True,
    truncation=True,
    elections=False,
    kills=False,
    pauses=False,
    ledger_faults=False,
    refusals=False,
)
NOT_LEADER = 6


class Lost(Story):
    """The target refuses a batch and accepts the next ones, so that there is a hole. While the lane is to copy the
    refused records again, the source loses them and those behind the hole, and uses their offsets again.

    If `elected`, the ledger has by then a new leader epoch of the source that begins with the next record, which the
    lane has read and not sent. If `last`, the target refuses two batches, and the source still has the first one. This
    is the last fault, and nothing is written after it. Time passes only if nothing else can happen.
    """

    def __init__(self, seed: int, *, elected: bool = False, last: bool = False) -> None:
        super().__init__(seed, QUIET)
        self.fault_rate, self.writing, self.elected, self.last = 0.0, False, elected, last
        self.is_reached = False
        self.script = self.play()

    def step(self) -> None:
        next(self.script, None)
        if self.last and self.is_reached:
            return
        choices = self.world.choices()
        if choices:
            self.world.do(self.rng.choice(choices))
        else:
            self._pass_time()

    def play(self) -> Script:
        world, source, target = self.world, self.world.source, self.world.target

        def behind_each_other() -> list[Request] | None:
            requests = on_the_wire(world)
            is_enough = len(requests) > 1 + self.last
            return requests if is_enough and requests[-1].batch.next_offset == source.end else None

        requests = yield from until(behind_each_other, LONG)
        if not requests:
            return
        host = keep(requests)
        lane, host.ledger_is_slow = host.lane, True
        if self.elected:
            source.elect()
            source.append(1, world.record_ms())
            yield from until(lambda: bool(lane.intents), LONG)
        target.refusal, target.refusals_left, target.forget_after = NOT_LEADER, 1 + self.last, True
        for each in requests:
            each.kept = False
            world.do(("arrive", each))
        yield from until(lambda: lane.phase is not Phase.COPYING, LONG)
        host.ledger_is_slow = False
        if not (yield from until(lambda: bool(lane.plan) and lane.history.source_confirmed >= self.last, LONG)):
            return
        lost, end = requests[self.last].batch, source.end
        source.truncate(len([batch for batch in source.log if batch.base >= lost.offset]))
        while source.end <= end and not self.last:
            source.append(1, world.record_ms())
        self.is_reached = True


def _play(*, elected: bool = False, last: bool = False) -> None:
    reached = 0
    for seed in range(20):
        story = Lost(seed, elected=elected, last=last)
        story.run(STEPS)
        reached += story.is_reached
    assert reached > 5


def test_a_loss_behind_a_hole_is_noticed() -> None:
    _play()


def test_a_loss_behind_a_hole_is_noticed_before_a_new_epoch() -> None:
    """LOSS. The epochs of the records behind the hole were revoked, because the ledger has a new one for the record
    after them. Nothing asked whether the source still had the records, and those that replaced them were never
    copied."""
    _play(elected=True)


def test_a_story_does_not_end_before_the_lane_has_noticed_a_loss_behind_a_hole() -> None:
    """The lane has copied all that the source still has. It asks from time to time whether the source has the rest."""
    _play(last=True)
