"""Failovers in the simulator: its event loop, and that the stories contain what they are meant to contain."""

import asyncio
from collections import Counter

from tests.sim.failover.virtual_loop import VirtualLoop
from tests.sim.scheduler import STEPS, Story
from tests.sim.themes import FAILOVERS, THEMES

SEEDS = 25
"""Stories of each theme."""
RARE = {
    "planned",
    "source-lost",
    "complete",
    "cancelled",
    "cancelled by mirrord",
    "something is lost",
    "nothing is lost",
    "missing",
    "remark",
    "daemon takes the lease",
    "command takes the lease",
    "a step without effect",
    "cut off",
    "misled",
    "misled after the end",
    "a producer was forgotten",
    "the source dies in a planned failover",
    "an exact position",
    "a last position",
}
"""What must happen in some of the stories."""


def test_rare_things_happen() -> None:
    seen = Counter[str]()
    for theme in FAILOVERS:
        for seed in range(SEEDS):
            story = Story(seed, THEMES[theme])
            story.run(STEPS)
            assert story.world.failover is not None
            seen.update(story.world.failover.seen)
    assert set(seen) >= RARE, RARE - set(seen)


def test_nothing_runs_before_its_time() -> None:
    now, done = 0.0, list[str]()
    loop = VirtualLoop(lambda: now)

    async def work(name: str, pause_s: float) -> None:
        await asyncio.sleep(pause_s)
        done.append(name)

    tasks = [loop.create_task(work(name, pause_s)) for name, pause_s in (("late", 2.0), ("soon", 1.0), ("now", 0.0))]
    loop.run()
    assert (done, loop.next_at) == (["now"], 1.0)
    now = 2.5
    loop.run()
    assert (done, loop.next_at) == (["now", "soon", "late"], None)
    assert all(task.done() for task in tasks)


def test_a_cancelled_timer_does_not_count() -> None:
    loop = VirtualLoop(lambda: 0.0)
    task = loop.create_task(asyncio.sleep(5.0))
    loop.run()
    task.cancel()
    loop.run()
    assert task.cancelled()
    assert (loop.next_at, loop.faults) == (None, [])
