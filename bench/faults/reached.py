"""`python -m bench.reached`: which statements of the lane the stories of the simulator reach, and how rarely.

A rule that no story ever reaches is not tested by stories, however many there are. The stories are those of
`bench.stories`; they are played in blocks, and a statement counts once for each block that reaches it. The exit code is
1 if a statement is reached in no block and is not listed with a reason in tests/sim/unreached.toml, or if a story
fails. With `--list`, the statements that are not reached are printed in the form of that file.
"""

import argparse
import ast
import os
import random
import time
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from itertools import repeat
from pathlib import Path
from typing import NamedTuple

import coverage

from bench.faults.stories import Violation, begun, draw, play
from tests.sim.themes import THEMES

_ROOT = Path(__file__).parents[2]
LANE = "mirrord/replication/lane"
EXCEPTIONS = _ROOT / "tests" / "sim" / "unreached.toml"
STORIES = 20_000
_BLOCK = 100
_RAREST = 20
"""Number of the rarest statements that are printed."""

PrintLine = Callable[[str], None]


class Statement(NamedTuple):
    """A statement in a function of the lane. Its number changes with every edit, so it is known by its text."""

    module: str
    """The path of the module in the package `LANE`."""
    function: str
    text: str
    """Its first line."""

    def __str__(self) -> str:
        return f"{self.module} {self.function}: {self.text}"


class Reached(NamedTuple):
    """The outcome."""

    blocks: int
    counts: Mapping[Statement, int]
    """For each statement of the lane: in how many blocks it was reached."""
    failed: Sequence[Violation]

    @property
    def unreached(self) -> list[Statement]:
        return [statement for statement, count in self.counts.items() if not count]

    def unlisted(self) -> list[Statement]:
        """Return the statements that are not reached, and for which tests/sim/unreached.toml gives no reason."""
        listed = exceptions(EXCEPTIONS.read_text())
        return [each for each in self.unreached if not listed.covers(each)]


class Exceptions(NamedTuple):
    """What tests/sim/unreached.toml lists."""

    listed: frozenset[str]
    """Functions (`module function`) and statements (`module function: text`)."""

    def covers(self, statement: Statement) -> bool:
        return not self.listed.isdisjoint(
            {statement.module, f"{statement.module} {statement.function}", str(statement)}
        )

    def needless(self, unreached: Sequence[Statement]) -> list[str]:
        """Return the entries to which no statement that is not reached belongs."""
        used = {name for each in unreached for name in (each.module, f"{each.module} {each.function}", str(each))}
        return sorted(self.listed - used)


def statements() -> dict[str, dict[int, Statement]]:
    """Return the statements in functions of the lane by absolute path and line."""
    return {str(path): _statements(path) for path in sorted((_ROOT / LANE).rglob("*.py"))}


@cache
def _statements(path: Path) -> dict[int, Statement]:
    source = path.read_text()
    lines, found = source.splitlines(), dict[int, Statement]()
    for function, body in _functions(ast.parse(source)):
        for node in body:
            for each in ast.walk(node):
                if isinstance(each, ast.stmt) and not _is_docstring(each):
                    text = lines[each.lineno - 1].strip()
                    found[each.lineno] = Statement(str(path.relative_to(_ROOT / LANE)), function, text)
    return found


def _functions(tree: ast.AST, of: str = "") -> Iterator[tuple[str, list[ast.stmt]]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield of + node.name, node.body
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node, f"{of}{node.name}.")


def _is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def count(seed: int, stories: int, print_line: PrintLine, processes: int | None = None) -> Reached:
    """Play the first stories of a seed, and count the blocks that reach each statement of the lane."""
    known, counts, failed = statements(), Counter[Statement](), list[Violation]()
    began, blocks = time.monotonic(), [range(at, min(at + _BLOCK, stories)) for at in range(0, stories, _BLOCK)]
    with ProcessPoolExecutor(processes or os.cpu_count()) as pool:
        for number, (lines, violations) in enumerate(pool.map(_play, repeat(seed), blocks), 1):
            failed += violations
            for path, reached in lines.items():
                counts.update({known[path][line] for line in reached if line in known.get(path, {})})
            if number % 20 == 0:
                print_line(f"{number * _BLOCK:,} of {stories:,} stories, {time.monotonic() - began:.0f} s")
    everything = {each for by_line in known.values() for each in by_line.values()}
    return Reached(len(blocks), {each: counts[each] for each in sorted(everything)}, failed)


def _play(seed: int, numbers: range) -> tuple[dict[str, list[int]], list[Violation]]:
    """Return the lines that these stories reach by absolute path, and the stories that failed."""
    tracer = coverage.Coverage(data_file=None, include=[str(_ROOT / LANE / "*")], config_file=False)
    failed: list[Violation] = []
    tracer.start()
    try:
        for number in numbers:
            drawn = draw(seed, number, tuple(THEMES))
            try:
                play(drawn, begun(drawn))
            except Exception as error:  # noqa: BLE001 -- whatever it is, it is a finding
                failed.append(Violation(drawn, next(iter(str(error).splitlines()), repr(error))))
    finally:
        tracer.stop()
    data = tracer.get_data()
    return {path: data.lines(path) or [] for path in data.measured_files()}, failed


def exceptions(text: str) -> Exceptions:
    """Parse tests/sim/unreached.toml."""
    return Exceptions(frozenset(each for part in tomllib.loads(text)["unreached"] for each in part["statements"]))


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.reached", description=__doc__)
    parser.add_argument("--stories", type=int, default=STORIES, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32), help="default: random")
    parser.add_argument("--processes", type=int, help="default: one per core")
    parser.add_argument("--list", action="store_true", help="print all statements that are not reached")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}", flush=True)
    found = count(arguments.seed, arguments.stories, lambda line: print(line, flush=True), arguments.processes)
    listed = exceptions(EXCEPTIONS.read_text())
    if arguments.list:
        for statement in found.unreached:
            print(f"    '''{statement}''',")
    for statement, blocks in sorted(found.counts.items(), key=lambda each: each[1])[: len(found.unreached) + _RAREST]:
        if blocks:
            print(f"rare: {blocks} of {found.blocks} blocks: {statement}")
    unlisted = found.unlisted()
    for statement in unlisted:
        print(f"never reached: {statement}")
    for entry in listed.needless(found.unreached):
        print(f"listed in {EXCEPTIONS.name}, and reached: {entry}")
    for violation in found.failed:
        print(f"{violation.story}: {violation.why}")
    print(
        f"{len(found.counts):,} statements, {len(found.unreached):,} of them never reached in {arguments.stories:,} "
        f"stories, {len(unlisted):,} without a listed reason"
    )
    return 1 if unlisted or found.failed else 0
