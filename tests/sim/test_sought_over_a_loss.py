"""Stories in which a lane halts whenever the source has lost copied records (`on_loss = "halt"`), and an operator lets
it continue further ahead. What the source has at the lost offsets then is copied, or the ledger names it."""

from dataclasses import replace
from typing import Any

import pytest

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.seeks import LaneSought
from mirrord.ledger.seeks import accepts_loss
from mirrord.replication.lane.phases import Phase
from tests.sim.host import LANE, Host
from tests.sim.scheduler import STEPS, Story
from tests.sim.themes import shape_named

ADA = Origin("ada@host", "investigated", 0)


class Sought(Story):
    def __init__(self, seed: int, theme: str) -> None:
        shape = shape_named(theme)
        super().__init__(seed, replace(shape, seeks=True, faults=shape.faults + ("source-truncate",) * 3))
        self.accepted, self.fault_rate = 0, 0.12
        start = self.world.start_host

        def start_host(**known: Any) -> Host:
            host = start(**known)
            host.lane.on_loss = "halt"
            return host

        self.world.start_host = start_host  # type: ignore[method-assign]

    def step(self) -> None:
        if self.rng.random() < 0.1:
            self._command()
        super().step()

    def _done(self) -> bool:
        return not self._command() and super()._done()

    def _command(self) -> bool:
        """If the lane is halted by a loss, let it continue a bit above the lowest lost offset. Return whether there was
        something to do."""
        world, rng = self.world, self.rng
        record = world.truth.lanes.get(LANE)
        halt = record.halted if record is not None else None
        waits = any(host.alive and host.lane.phase is Phase.HALTED for host in world.hosts)
        if record is None or halt is None or halt.reason != "truncated" or not waits:
            return False
        if accepts_loss(record.seeks, halt.start):
            return False  # the lane has not read it yet
        while world.source.end <= halt.start:
            world.source.append(1, world.record_ms())
        end = min(rng.randint(halt.start + 1, halt.start + 8), world.source.end)
        fact = LaneSought(LANE, halt.start, end, world.source.start, ADA, halt.start)
        self.accepted += 1
        world.note(f"operator {fact}")
        world.write((fact,), world.truth.lease_epoch)
        return True


@pytest.mark.parametrize("theme", ["source truncated", "source truncated, old records", "source truncated twice"])
def test_what_the_source_has_at_lost_offsets_is_copied_or_named(seed: int, theme: str) -> None:
    stories = [Sought(each, theme) for each in range(seed, seed + 20)]
    for story in stories:
        try:
            story.run(STEPS)
        except Exception as fault:
            trail = "\n".join(story.world.trail[-30:])
            raise AssertionError(f"seed {seed} {theme}: {fault!r}\n{trail}") from fault
    assert sum(story.accepted for story in stories) > 0
