"""A lane that the broker protects resumes while a batch of its own is in doubt. The leader is then suspended, and the
lane is drained after the time for which the batch is in doubt. The drain counts as clean, and the next holder does not
wait or compare, although the batch is still in the leader's receive buffer."""

from collections import Counter
from dataclasses import replace

import pytest

from mirrord.replication.lane.phases import Phase, Stage
from mirrord.replication.lane.signals import Drain
from tests.sim.scheduler import Story
from tests.sim.test_suspended_leader import MANY, QUIET
from tests.sim.traps.moments import LONG, Script, copying, deliver, keep, on_the_wire, sends, until
from tests.sim.truth import Violation

SEEDS = range(20)


class Drained(Story):
    def __init__(self, seed: int, *, as_unclean: bool) -> None:
        super().__init__(seed, replace(QUIET, record_age_ms=0, forgetting=False, truncation=True))
        self.fault_rate, self.as_unclean, self.outcome = 0.0, as_unclean, "not reached"
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
        if not (yield from until(lambda: copying(world, acked=1), LONG)):
            return
        world.source.append(2, world.record_ms())
        requests = yield from until(lambda: on_the_wire(world), LONG)
        if not requests:
            return
        host, first = keep(requests), requests[0].batch.offset
        for each in requests:
            each.read_until = float(MANY)
        # The connection is lost. The source loses the records in an unclean election (it ends before them).
        lost = [batch for batch in world.source.log if batch.last >= first]
        world.source.truncate(len(lost))
        host.disconnect()
        lane = host.lane
        if not (yield from until(lambda: lane.phase is Phase.COPYING and lane.stage is Stage.DONE, LONG)):
            return
        if not lane.protected or lane.acked != requests[0].batch.first:
            return
        end = world.slow.suspended[world.target.leader] = lane.late_writes.until + 3.0
        world.advance(lane.late_writes.until + 0.1)
        if world.now >= end or lane.in_flight:
            return
        in_doubt_below, next_ordinal = lane.late_writes.in_doubt_below, lane.next_ordinal
        host.take(Drain())
        assert not host.alive
        self.outcome = f"clean: {lane.clean}, in doubt: {next_ordinal < in_doubt_below}"
        if self.as_unclean:
            world.left_cleanly = False
        # The same number of records is written to the source.
        world.source.append(requests[0].batch.count, world.record_ms())
        yield from until(lambda: world.now >= end, MANY)
        later = world.start_host(former_dead=False)
        yield from until(lambda: later.lane.phase is Phase.COPYING or sends(later), LONG)
        yield from deliver(world, requests)


@pytest.mark.parametrize("as_unclean", [False, True])
def test_a_drain_with_a_batch_in_doubt_is_not_clean(*, as_unclean: bool) -> None:
    outcomes: Counter[str] = Counter()
    for seed in SEEDS:
        story = Drained(seed, as_unclean=as_unclean)
        try:
            story.run(600)
        except Violation as violation:
            story.outcome += f" -> VIOLATION {violation}"[:90]
        outcomes[story.outcome] += 1
    assert not [each for each in outcomes if "VIOLATION" in each]
