"""Stories in which each batch that is rebuilt is rebuilt later, as large ones are.

Between the request and the rest of the chunk, anything can happen. The rest is delivered even if the lane no longer
needs it.
"""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from mirrord.replication.lane.second_path import Postponed, RebuildRequest, RebuiltBatch
from mirrord.replication.lane.signals import Effect, RebuildLater
from tests.sim.host import Host
from tests.sim.scheduler import STEPS, Story
from tests.sim.themes import THEMES, shape_named
from tests.sim.world import World

STORIES = 6
"""Number of stories of each theme."""


class LaterHost(Host):
    """A replicator whose lane rebuilds no batch at once."""

    postponed = 0

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._asked: list[RebuildRequest] = []
        self._at_once = self.lane.rebuild
        self.lane.rebuild = self._rebuild

    def _rebuild(self, request: RebuildRequest) -> RebuiltBatch | None:
        if not any(each.buffer is request.buffer and each == request for each in self._asked):
            self._asked.append(request)
            raise Postponed(None)
        return self._at_once(request)

    def perform(self, effect: Effect) -> None:
        if isinstance(effect, RebuildLater):
            LaterHost.postponed += 1
            self.inbox.append(("tell", replace(effect.chunk, question=effect.question)))
        else:
            super().perform(effect)


@pytest.mark.parametrize("theme", [*THEMES])
def test_batches_that_are_rebuilt_later(theme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "host_type", LaterHost)
    chance = random.Random(theme)
    for _ in range(STORIES):
        seed = chance.randrange(1 << 32)
        story = Story(seed, shape_named(theme))
        try:
            story.run(STEPS)
        except Exception as fault:
            trail = "\n".join(story.world.trail[-30:])
            raise AssertionError(f"seed {seed} {theme}: {fault!r}\n{trail}") from fault


def test_batches_are_postponed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(World, "host_type", LaterHost)
    before = LaterHost.postponed
    Story(1, shape_named("policies")).run(STEPS)
    assert LaterHost.postponed > before
