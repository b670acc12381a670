"""The simulator in its long form: many seeds, on all cores. A seed that fails is printed and replays by itself."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass

from tests.sim.scheduler import STEPS, Story

_AT_ONCE = 250
_PROGRESS_S = 10.0


@dataclass(frozen=True)
class Outcome:
    """What came of it. `steps` are those with faults, of each seed."""

    first_seed: int
    seeds: int
    steps: int
    seconds: float
    failed: list[int]


def run(first_seed: int, seeds: int, tell: Callable[[str], None]) -> Outcome:
    """Plays the seeds from `first_seed` on."""
    began = time.monotonic()
    failed: list[int] = []
    done = 0
    next_word = 0.0
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        end = first_seed + seeds
        stretches = [range(at, min(at + _AT_ONCE, end)) for at in range(first_seed, end, _AT_ONCE)]
        running = {pool.submit(_play, stretch): stretch for stretch in stretches}
        for finished in as_completed(running):
            done += len(running[finished])
            for seed, what in finished.result():
                failed.append(seed)
                tell(f"seed {seed}: {what}")
            if time.monotonic() > next_word:
                next_word = time.monotonic() + _PROGRESS_S
                tell(f"{done:,} of {seeds:,} seeds, {len(failed)} failed")
    return Outcome(first_seed, seeds, STEPS, time.monotonic() - began, sorted(failed))


def _play(seeds: range) -> list[tuple[int, str]]:
    """The seeds that failed, and the first line of why."""
    failed: list[tuple[int, str]] = []
    for seed in seeds:
        try:
            Story(seed).run(STEPS)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            lines = str(error).splitlines()
            failed.append((seed, lines[0] if lines else type(error).__name__))
    return failed
