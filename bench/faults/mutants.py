"""`make mutants`: switches off each rule of the lane in turn, and counts the stories of the simulator that notice it.

All mutations of one part of mirrord are played on the same stories, which are drawn as in `bench.stories`: none is
chosen for a mutation. A mutation is detected if enough of these stories fail. Without a mutation, none of them may
fail. The exit code is 1 if a mutation is detected too rarely, or if a story fails without one.
"""

import argparse
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import repeat
from typing import NamedTuple

import pytest

from bench.faults.stories import Drawn, begun, collect_rarely, draw, play
from bench.report import pages
from tests.sim.mutations import MUTATIONS, Mutation

STORIES = 500
WANTED = 10
"""Least number of these stories that must notice each mutation."""
_AT_ONCE = 50

PrintLine = Callable[[str], None]


class Detection(NamedTuple):
    """How many stories notice a mutation."""

    rule: str
    """The rule that is switched off. If empty, none is."""
    themes: tuple[str, ...]
    """The themes of the stories."""
    caught: int
    first: Drawn | None
    """The first story that fails."""
    why: str
    """The first line of its message."""


def run(
    seed: int, stories: int, mutations: Sequence[Mutation], print_line: PrintLine, processes: int | None = None
) -> list[Detection]:
    """Play the first `stories` stories of a seed without a mutation, and then with each of the mutations. Mutations
    that concern only some themes are played on stories of these themes."""
    found: list[Detection] = []
    stretches = [range(at, min(at + _AT_ONCE, stories)) for at in range(0, stories, _AT_ONCE)]
    with ProcessPoolExecutor(processes or os.cpu_count()) as pool:
        drawn_from = dict.fromkeys(each.drawn_from for each in mutations)
        played = [*(("", themes) for themes in drawn_from), *((each.rule, each.drawn_from) for each in mutations)]
        for rule, themes in played:
            parts = pool.map(_play, repeat(seed), repeat(rule), repeat(themes), stretches)
            failed = [each for part in parts for each in part]
            first, why = failed[0] if failed else (None, "")
            found.append(Detection(rule, themes, len(failed), first, why))
            print_line(f"{len(failed):5d} of {stories}  {rule or f'nothing is switched off, {len(themes)} themes'}")
    return found


def failures(
    seed: int, mutation: Mutation | None, themes: tuple[str, ...], numbers: Sequence[int]
) -> Iterator[tuple[Drawn, str]]:
    """Play these stories of a seed with a rule switched off. Yield those that fail, with the first line of why."""
    with pytest.MonkeyPatch.context() as patch:
        if mutation is not None:
            mutation.switch_off(patch)
        for number in numbers:
            drawn = draw(seed, number, themes)
            try:
                play(drawn, begun(drawn))
            except Exception as error:  # noqa: BLE001 -- without the rule, the lane may fail in any way
                yield drawn, next(iter(str(error).splitlines()), repr(error))


def too_rare(found: Sequence[Detection], wanted: int) -> list[Detection]:
    """Return the mutations that too few stories notice, and the stories that fail without a mutation."""
    return [each for each in found if (each.caught < wanted if each.rule else each.caught > 0)]


def _play(seed: int, rule: str, themes: tuple[str, ...], numbers: range) -> list[tuple[Drawn, str]]:
    collect_rarely()
    mutation = next((each for each in MUTATIONS if each.rule == rule), None)
    return list(failures(seed, mutation, themes, numbers))


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.mutants", description=__doc__)
    parser.add_argument("--stories", type=int, default=STORIES, help="for each mutation (default: %(default)s)")
    parser.add_argument("--wanted", type=int, default=WANTED, help="that must fail (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32), help="default: random")
    parser.add_argument("--processes", type=int, help="default: one per core")
    parser.add_argument("--rule", default="", help="only rules whose names contain this text")
    parser.add_argument("--try", dest="keep", action="store_false", help="do not keep the results")
    arguments = parser.parse_args()
    began = time.monotonic()
    mutations = [each for each in MUTATIONS if arguments.rule in each.rule]
    print(f"seed {arguments.seed}, {len(mutations)} mutations", flush=True)
    found = run(arguments.seed, arguments.stories, mutations, _print_line, arguments.processes)
    rare = too_rare(found, arguments.wanted)
    for each in rare:
        print(f"{each.caught} of {arguments.stories}: {each.rule or 'without a mutation'}: {each.first}: {each.why}")
    seconds = time.monotonic() - began
    print(f"{len(mutations)} mutations, {len(rare)} detected too rarely, {seconds:.0f} s")
    if arguments.keep and not arguments.rule:
        pages.keep("mutants", _result(arguments, found, seconds))
    return 1 if rare else 0


def _print_line(line: str) -> None:
    print(line, flush=True)


def _result(arguments: argparse.Namespace, found: Sequence[Detection], seconds: float) -> pages.Result:
    return {
        "seed": arguments.seed,
        "stories": arguments.stories,
        "wanted": arguments.wanted,
        "detected": {each.rule: each.caught for each in found if each.rule},
        "failed_without": sum(each.caught for each in found if not each.rule),
        "seconds": round(seconds, 1),
        "passed": not too_rare(found, arguments.wanted),
    }
