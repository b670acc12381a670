"""`python -m bench.stories`: random stories of the simulator over all its themes, on all cores.

Story number n of a seed is always the same one: a theme, two of them, or a random world, with a separate seed. Many
have traps: faults at the moments at which a rule of the lane matters. Some use a target whose producer state is
ignored, some have hardly any memory for runs. Each violation is printed with the command that replays it:
`python -m bench.stories --story SEED --theme THEME`. The exit code is 1 if there is one.
"""

import argparse
import gc
import os
import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import nullcontext
from dataclasses import dataclass, replace
from itertools import islice
from typing import NamedTuple

from mirrord.ledger.facts.core import Mode
from tests.fixtures.attic import scarce
from tests.sim.host import Shape
from tests.sim.scheduler import STEPS, Story
from tests.sim.themes import BESIDE, PLAIN, THEMES, shape_named
from tests.sim.traps.setting import AT_WRAP, TRAPS, draw_beside_transactions, draw_traps, shape_with

_AT_ONCE = 100
_GARBAGE = 200_000
"""Objects after which the process looks for garbage. A story leaves some ten thousand."""
_PROGRESS_S = 10.0
_ANY = "by chance"
_PLAIN_SHARE, _TRAPS_SHARE, _PAIR_SHARE = 0.1, 0.7, 0.25
"""Shares of stories in a random world and with traps (`tests.sim.traps`), and of two themes among the others."""
_WEAK_SHARE, _SCARCE_SHARE, _THEME_SHARE = 0.1, 0.15, 0.3
"""Shares of stories in the mode at-least-once, with hardly any memory for runs, and with a theme in addition to
traps. A world in which little else happens shows best what a trap leads to."""
_MOST_TRAPS = 4
_WRAP_SHARE, _AT_WRAP_SHARE, _MOST_UNTIL_WRAP = 0.15, 0.5, 40
"""Share of stories in which the lane's sequence numbers start again at 0, share of those among them whose traps include
one that waits for this, and the highest number of records before it."""
_OTHERS_SHARE, _BESIDE_SHARE, _MOST_OTHERS = 0.2, 0.6, 3
"""Share of stories in which other clients write to the target in transactions, share of those among them whose traps
need this, and the highest number of these clients. There are at least two."""
_UNTIL_WRAP = "records that the lane of that story copies before its sequence numbers start again at 0"
_OTHERS = "clients that write to the target of that story in transactions"
_STEPS_WITH_TRAPS = 300
"""A trap waits for its moment, and is set again after it has struck."""


class Drawn(NamedTuple):
    """The input of a story."""

    seed: int
    theme: str = ""
    """A theme, or two at once (`shape_named`). If empty, the seed also determines the world."""
    mode: Mode = "sequence"
    scarce: bool = False
    traps: tuple[str, ...] = ()
    steps: int = STEPS
    until_wrap: int = 0
    others: int = 0

    def __str__(self) -> str:
        """Return the options that replay it."""
        words = [f"--story {self.seed}", f'--theme "{self.theme or _ANY}"']
        words += [f"--mode {self.mode}"] if self.mode != "sequence" else []
        words += ["--scarce"] if self.scarce else []
        words += [f"--steps {self.steps}"] if self.steps != STEPS else []
        words += [f"--until-wrap {self.until_wrap}"] if self.until_wrap else []
        words += [f"--others {self.others}"] if self.others else []
        return " ".join([*words, *(f"--trap {each}" for each in self.traps)])


class Violation(NamedTuple):
    """A story that failed, and the first line of the reason."""

    story: Drawn
    why: str


@dataclass(frozen=True)
class Outcome:
    """The outcome. `steps` is the mean number of steps with faults of a story."""

    seed: int
    stories: int
    steps: int
    processes: int
    seconds: float
    failed: list[Violation]


def draw(seed: int, number: int, themes: tuple[str, ...]) -> Drawn:
    """Return story `number` of a seed."""
    # These are drawn last, and separately, so that the other stories stay the same.
    return _beside_transactions(seed, number, _near_wrap(seed, number, _drawn(seed, number, themes)))


def _near_wrap(seed: int, number: int, drawn: Drawn) -> Drawn:
    chance = random.Random(f"{seed} {number} wrap")
    if chance.random() >= _WRAP_SHARE:
        return drawn
    at_wrap = (chance.choice(AT_WRAP),) if drawn.traps and chance.random() < _AT_WRAP_SHARE else ()
    return drawn._replace(traps=drawn.traps + at_wrap, until_wrap=chance.randint(1, _MOST_UNTIL_WRAP))


def _beside_transactions(seed: int, number: int, drawn: Drawn) -> Drawn:
    chance = random.Random(f"{seed} {number} others")
    if chance.random() >= _OTHERS_SHARE:
        return drawn
    drawn = drawn._replace(others=chance.randint(2, _MOST_OTHERS))
    if chance.random() >= _BESIDE_SHARE:
        return drawn
    traps, theme = draw_beside_transactions(chance), drawn.theme or chance.choice(PLAIN)
    return drawn._replace(theme=theme, traps=traps, steps=_STEPS_WITH_TRAPS)


def _drawn(seed: int, number: int, themes: tuple[str, ...]) -> Drawn:
    chance = random.Random(f"{seed} {number}")
    has_all, kind = themes == tuple(THEMES), chance.random()
    story, theme, is_scarce = chance.randrange(1 << 40), chance.choice(themes), chance.random() < _SCARCE_SHARE
    mode: Mode = "at-least-once" if chance.random() < _WEAK_SHARE else "sequence"
    traps: tuple[str, ...] = ()
    if has_all and kind < _PLAIN_SHARE:
        return Drawn(story, scarce=is_scarce)
    if kind < _PLAIN_SHARE + _TRAPS_SHARE:
        traps = draw_traps(chance, _MOST_TRAPS)
        theme = theme if not has_all or chance.random() < _THEME_SHARE else chance.choice(PLAIN)
    elif has_all and chance.random() < _PAIR_SHARE:
        theme = BESIDE.join(chance.sample(themes, 2))
    return Drawn(story, theme, mode, is_scarce, traps, _STEPS_WITH_TRAPS if traps else STEPS)


def _shape(drawn: Drawn) -> Shape:
    shape = replace(shape_named(drawn.theme), mode=drawn.mode, until_wrap=drawn.until_wrap)
    shape = replace(shape, others=drawn.others)
    return shape_with(shape, drawn.traps)


def begun(drawn: Drawn) -> Story:
    """Return the story before its first step."""
    return Story(drawn.seed, _shape(drawn) if drawn.theme else None, drawn.until_wrap, drawn.others)


def collect_rarely() -> None:
    """Let the process look for garbage after some stories, not many times in each of them."""
    gc.set_threshold(_GARBAGE)


def play(drawn: Drawn, story: Story) -> None:
    """Play the story to its end. Raises what it finds."""
    with scarce(fewest=2, most=8, block=3) if drawn.scarce else nullcontext():
        story.run(drawn.steps)


def run(
    seed: int,
    stories: int,
    print_line: Callable[[str], None],
    *,
    themes: tuple[str, ...] = tuple(THEMES),
    processes: int | None = None,
    minutes: float = float("inf"),
) -> Outcome:
    """Play the first stories of a seed, for as many minutes as given."""
    began, count = time.monotonic(), processes or os.cpu_count() or 1
    failed: list[Violation] = []
    done, steps, next_word = 0, 0, began + _PROGRESS_S
    stretches = (range(at, min(at + _AT_ONCE, stories)) for at in range(0, stories, _AT_ONCE))
    with ProcessPoolExecutor(count) as pool:

        def begin(many: int) -> Iterator[Future[tuple[int, int, list[Violation]]]]:
            late = time.monotonic() - began > minutes * 60
            return (pool.submit(_play, seed, each, themes) for each in islice(stretches, 0 if late else many))

        running = set(begin(2 * count))
        while running:
            finished, running = wait(running, return_when=FIRST_COMPLETED)
            for each in finished:
                played, all_steps, found = each.result()
                done += played
                steps += all_steps
                failed += found
                for violation in found:
                    print_line(f"{violation.story}: {violation.why}")
            running |= set(begin(len(finished)))
            if time.monotonic() > next_word or not running:
                next_word = time.monotonic() + _PROGRESS_S
                rate = done / (time.monotonic() - began)
                print_line(
                    f"seed {seed}: {done:,} of {stories:,} stories, {rate:.0f} a second, {len(failed)} violations"
                )
    return Outcome(seed, done, round(steps / max(done, 1)), count, time.monotonic() - began, failed)


def _play(seed: int, numbers: range, themes: tuple[str, ...]) -> tuple[int, int, list[Violation]]:
    """Return how many were played, the number of their steps, and those that failed."""
    collect_rarely()
    failed: list[Violation] = []
    steps = 0
    for number in numbers:
        drawn = draw(seed, number, themes)
        steps += drawn.steps
        try:
            play(drawn, begun(drawn))
        except Exception as error:  # noqa: BLE001 -- whatever it is, it is a finding
            failed.append(Violation(drawn, next(iter(str(error).splitlines()), repr(error))))
    return len(numbers), steps, failed


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.stories", description=__doc__)
    parser.add_argument("--stories", type=_count, default=100_000, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32), help="default: random")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no story begins after this many")
    parser.add_argument("--processes", type=_count, help="default: one per core")
    parser.add_argument("--theme", type=_theme, action="append", help=f"or two, THEME{BESIDE}THEME (default: all)")
    parser.add_argument("--story", type=int, metavar="SEED", help="replay this one, and show what happened")
    parser.add_argument("--mode", choices=("sequence", "at-least-once"), default="sequence", help="of that story")
    parser.add_argument("--scarce", action="store_true", help="play that story with hardly any memory for runs")
    parser.add_argument("--steps", type=_count, default=STEPS, help="of that story (default: %(default)s)")
    parser.add_argument("--until-wrap", type=_count, default=0, metavar="RECORDS", help=_UNTIL_WRAP)
    parser.add_argument("--others", type=_count, default=0, metavar="CLIENTS", help=_OTHERS)
    parser.add_argument("--trap", action="append", choices=sorted(TRAPS), default=[], help="play that story with it")
    arguments = parser.parse_args()
    themes = tuple(arguments.theme or ())
    if arguments.story is not None:
        if len(themes) > 1:
            parser.error("--story takes one --theme")
        theme, traps = "".join(themes), tuple(arguments.trap)
        how = (arguments.mode, arguments.scarce, traps, arguments.steps, arguments.until_wrap, arguments.others)
        return _show(Drawn(arguments.story, theme, *how))
    limits = {"processes": arguments.processes, "minutes": arguments.minutes}
    outcome = run(
        arguments.seed,
        arguments.stories,
        lambda line: print(line, flush=True),
        themes=themes or tuple(THEMES),
        **limits,
    )
    return 1 if outcome.failed else 0


def _theme(text: str) -> str:
    """Return a theme, or two; empty for a random world. Raises ArgumentTypeError."""
    if text == _ANY:
        return ""
    if not all(each in THEMES for each in text.split(BESIDE, 1)):
        raise argparse.ArgumentTypeError(f"there is no theme {text!r}; themes are {', '.join(THEMES)}")
    return text


def _count(text: str) -> int:
    """Return a number from 1 on. Raises ValueError."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _show(drawn: Drawn) -> int:
    """Play one story, and print its trail if it fails."""
    story = begun(drawn)
    try:
        play(drawn, story)
    except Exception as error:  # noqa: BLE001 -- whatever it is, it is a finding
        print(*story.world.trail, f"{drawn}: {error!r}", sep="\n")
        return 1
    print(f"{drawn}: nothing went wrong")
    return 0
