"""The table of a lane's phases against the diagram in the docs, and against what lanes do in the simulator."""

import itertools
import re
from pathlib import Path

import pytest

from mirrord.replication.lane.phases import WAYS, Phase
from mirrord.replication.lane.state import Lane
from tests.sim.scheduler import STEPS, Story
from tests.sim.themes import THEMES

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "explanation" / "architecture.md"
ELSEWHERE = {("resuming", "rebuilding"), ("rebuilding", "resuming"), ("rebuilding", "halted")}
"""They need a former holder with another view: tests/unit/replication/lane/test_rebuilding.py has those."""
ROUNDS = 30


def drawn() -> set[tuple[str, str]]:
    block = re.search(r"<!-- phases:.*?```mermaid\n(.*?)```", ARCHITECTURE.read_text(), re.DOTALL)
    assert block is not None
    return set(re.findall(r"^ +(\w+) --> (\w+)", block[1], re.MULTILINE))


def allowed() -> set[tuple[str, str]]:
    return {(phase.value, following.value) for phase, ways in WAYS.items() for following in ways}


def test_the_diagram_shows_only_transitions_in_the_table() -> None:
    """Transitions of nearly every phase (drain, new grant, halt, loss of the lane) are described below the diagram."""
    stops = {phase.value for phase in (Phase.DRAINING, Phase.DRAINED, Phase.OPENING, Phase.HALTED, Phase.GONE)}
    assert drawn() <= allowed()
    assert {way for way in allowed() - drawn() if way[1] not in stops} == set()


def test_lanes_make_only_the_transitions_in_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[tuple[str, str], str] = {}
    put = Lane.__setattr__
    story = ""

    def noticed(lane: Lane, name: str, value: object) -> None:
        if name == "phase" and isinstance(value, Phase) and getattr(lane, "phase", value) is not value:
            seen.setdefault((lane.phase.value, value.value), story)
        put(lane, name, value)

    monkeypatch.setattr(Lane, "__setattr__", noticed)
    wanted = drawn() - ELSEWHERE
    for seed, theme in itertools.product(range(ROUNDS), THEMES):
        if wanted <= seen.keys():
            break
        story = f"{theme}, seed {seed}"
        Story(seed, THEMES[theme]).run(STEPS)
    assert not {way: seen[way] for way in seen.keys() - allowed()}
    assert not wanted - seen.keys()
