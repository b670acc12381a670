"""A lane waits for its own batch in doubt, and the leader is suspended over the end of the wait. While the lane's
request for the end of the log is unanswered, an append to the ledger fails. The lane takes a new grant, gives up the
request, and asks again when the leader is about to continue. The time counts from the first request."""

from collections import Counter
from dataclasses import replace

import pytest

from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import AppendFailed
from tests.sim import truth
from tests.sim.scheduler import Story
from tests.sim.test_suspended_leader import MANY, QUIET, waits
from tests.sim.traps.moments import LONG, Script, forget, keep, on_the_wire, until
from tests.sim.truth import Violation

SEEDS = range(20)


class Reopened(Story):
    def __init__(self, seed: int, *, fails: bool) -> None:
        super().__init__(seed, replace(QUIET, mode="sequence"))
        self.fault_rate, self.outcome, self.fails = 0.0, "not reached", fails
        self.holds_ledger = False
        self.script = self.play()

    def step(self) -> None:
        next(self.script, None)
        choices = [each for each in self.world.choices() if each[0] != "append" or not self.holds_ledger]
        if choices:
            self.world.do(self.rng.choice(choices))
        else:
            self._pass_time()

    def play(self) -> Script:
        world = self.world
        host = yield from until(lambda: next(iter(world.hosts), None))
        if host is None or not (yield from until(lambda: host.lane.in_flight, LONG)):
            return
        # Something that the lane has appended to the ledger is still open when its connection is lost (the note about
        # the first acknowledgement).
        yield from until(lambda: host.lane.notes and host.appends, LONG)
        self.holds_ledger = True
        requests = yield from until(lambda: on_the_wire(world), LONG)
        if not requests or not host.appends or requests[0].batch.first != host.lane.acked:
            return
        keep(requests)
        for each in requests:
            each.read_until = float(MANY)
        host.disconnect()
        forget(world)
        lane = host.lane
        if not (yield from until(lambda: waits(host), LONG)):
            return
        expected_end = lane.late_writes.until
        if not (yield from until(lambda: world.now > expected_end - 2.5 and waits(host), LONG)):
            return
        end = world.slow.suspended[world.target.leader] = expected_end + 0.5
        if not (yield from until(lambda: lane.phase is Phase.RESUMING, LONG)):  # it asks
            return
        asked = world.now
        if self.fails:
            tag, _ = host.appends.popleft()
            host.take(AppendFailed(tag, host.record()))
            yield from until(lambda: bool(host.appends) or world.now > end - 0.05, LONG)
            world.advance(end - 0.05)  # the ledger is slow
        self.holds_ledger = False
        yield from until(lambda: world.now >= end, MANY)
        first = requests[0].batch.first
        yield from until(lambda: lane.late_writes.until > end + 1 or lane.acked > first, MANY)
        again = lane.late_writes.until > end + 1
        self.outcome = f"asked at until - {expected_end - asked:.1f}: " + ("waits again" if again else "sends at once")
        forget(world)
        for each in requests:
            each.kept = False
            if each in world.wire:
                world.do(("arrive", each))
                truth.check(world)


@pytest.mark.parametrize("fails", [False, True])
def test_a_new_grant_does_not_hide_a_suspension(*, fails: bool) -> None:
    outcomes: Counter[str] = Counter()
    for seed in SEEDS:
        story = Reopened(seed, fails=fails)
        try:
            story.run(600)
        except Violation as violation:
            story.outcome += f" -> VIOLATION {violation}"[:70]
        outcomes[story.outcome] += 1
    assert not [each for each in outcomes if "VIOLATION" in each]
