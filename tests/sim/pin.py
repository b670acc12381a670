"""Find the first failing seeds of every mutation: `python -m tests.sim.pin [seeds] [part of a rule's name]`.

After a change of the lane or of the scheduler the same seeds produce other stories; then pin new ones.
"""

import sys

import pytest

from tests.sim.mutations import MUTATIONS
from tests.sim.scheduler import STEPS, Story


def failing(limit: int, wanted: str, count: int = 3) -> dict[str, dict[int, str]]:
    """For each mutation, up to `count` seeds below `limit` that notice it, and their messages."""
    found: dict[str, dict[int, str]] = {}
    for mutation in MUTATIONS:
        if wanted not in mutation.rule:
            continue
        seeds = found[mutation.rule] = {}
        with pytest.MonkeyPatch.context() as patch:
            mutation.switch_off(patch)
            for seed in range(limit):
                try:
                    Story(seed, mutation.shape).run(STEPS)
                except AssertionError as violation:
                    seeds[seed] = str(violation)[:90]
                    if len(seeds) == count:
                        break
    return found


if __name__ == "__main__":
    seeds_to_try = int(sys.argv[1]) if len(sys.argv) > 1 else 3000
    for rule, seeds in failing(seeds_to_try, sys.argv[2] if len(sys.argv) > 2 else "").items():
        print(f"{rule!r}: {seeds}", flush=True)
