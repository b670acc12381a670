"""The runner of the simulator's stories: the same ones each time, and each violation names what replays it."""

import shlex
import sys

import pytest

from bench.faults import stories
from tests.sim.scheduler import Story
from tests.sim.themes import THEMES, shape_named


def test_stories_of_a_seed_are_the_same_each_time_and_of_all_themes() -> None:
    drawn = [stories.draw(7, number, tuple(THEMES)) for number in range(3_000)]
    assert drawn == [stories.draw(7, number, tuple(THEMES)) for number in range(3_000)]
    themes = {each.theme for each in drawn}
    assert themes > {"", *THEMES}
    assert all(
        shape_named(each).faults == sum((THEMES[one].faults for one in each.split(" + ")), ()) for each in themes - {""}
    )
    assert {each.mode for each in drawn} == {"sequence", "at-least-once"}
    assert {each.scarce for each in drawn} == {False, True}
    assert len({each.seed for each in drawn}) == len(drawn)


def test_stories_beside_transactions_leave_all_others_as_they_were() -> None:
    drawn = [stories.draw(7, number, tuple(THEMES)) for number in range(2_000)]
    beside = [each for each in drawn if each.others]
    assert 0.15 < len(beside) / len(drawn) < 0.25
    assert f"--others {beside[0].others}" in str(beside[0])
    for number, each in enumerate(drawn):
        before = stories._near_wrap(7, number, stories._drawn(7, number, tuple(THEMES)))
        assert each == before or each.others
        assert each.seed == before.seed


def test_a_violation_is_named_and_plays_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(story: Story) -> None:
        story.world.note("the last step")
        raise AssertionError("doubled: source offsets [3]")

    monkeypatch.setattr(Story, "settle", fail)
    monkeypatch.setattr(sys, "argv", ["stories", "--stories", "2", "--seed", "7", "--processes", "1", "--theme", "far"])
    assert stories.main() == 1
    lines = [line for line in capsys.readouterr().out.splitlines() if "doubled" in line]
    assert len(lines) == 2
    monkeypatch.setattr(sys, "argv", ["stories", *shlex.split(lines[0].partition(": doubled")[0])])
    assert stories.main() == 1
    assert "the last step" in capsys.readouterr().out


def test_stories_without_a_violation_end_with_0(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Story, "run", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["stories", "--stories", "250", "--seed", "7", "--processes", "1"])
    assert stories.main() == 0
    assert "seed 7: 250 of 250 stories" in capsys.readouterr().out
