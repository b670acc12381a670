"""Each rule of DESIGN §3 switched off: the simulator finds a violation, at a pinned seed, and none with the rule on."""

import pytest

from tests.sim.mutations import MUTATIONS, Mutation
from tests.sim.scheduler import STEPS, THEMES, Story

SEEDS = {
    "1 two witnesses: the base offset": 3,
    "2 window 1 until a first acknowledgement": 5,
    "2 a success after a failure is a hole": 4,
    "3 the sandwich: one leader epoch around it": 527,
    "3 no entry means unknown": 0,
    "3 the end once more before the first produce": 75,
    "4 the lease barrier": 106,
    "5 went back is not lost": 24,
    "6 first fact wins": 162,
    "intent before gap": 1,
    "each answer counts once": 1,
    "the mark does not pass a gap that is not read": 647,
    "resync on doubt": 3,
    "trust, then check": 261,
    "3 the sandwich: wait for the high watermark": 93,
}
"""`python -m tests.sim.pin` finds them anew after a change of the lane or of the scheduler."""


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.rule)
def test_the_simulator_notices(mutation: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    seed = SEEDS[mutation.rule]
    Story(seed, THEMES[mutation.theme]).run(STEPS)
    mutation.switch_off(monkeypatch)
    with pytest.raises(AssertionError):
        Story(seed, THEMES[mutation.theme]).run(STEPS)
