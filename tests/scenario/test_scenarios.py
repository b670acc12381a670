"""Every scenario has the output that its file says."""

import re
from difflib import unified_diff
from pathlib import Path

import pytest

from tests.scenario.interpreter import Interpreter, ScenarioError, blocks, play, usages

FOLDER = Path(__file__).parent
SCENARIOS = sorted(FOLDER.glob("*.txt"))
README = (FOLDER / "README.md").read_text()
SMALL = "# A copy.\n\nwrite 2\nstart r1 silent\nrun silent\n----\nsource offsets 0-1: records 1001-1002\n"


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_scenario(path: Path, pytestconfig: pytest.Config) -> None:
    expected = path.read_text()
    played = play(expected)
    if pytestconfig.getoption("rewrite_scenarios"):
        path.write_text(played)
        return
    if played != expected:
        lines = unified_diff(
            expected.splitlines(), played.splitlines(), path.name, "what happens now", lineterm="", n=5
        )
        hint = "If that is intended: pytest tests/scenario --rewrite-scenarios"
        pytest.fail("\n".join([*lines, hint]), pytrace=False)


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_a_scenario_introduces_itself_and_ends_with_a_check(path: Path) -> None:
    blocks = path.read_text().strip().split("\n\n")
    assert re.match(r"# \w.+\n#\n# \w", blocks[0])
    assert "check\n----\n" in blocks[-1]
    assert f"]({path.name})" in README


def test_every_command_is_described_and_used() -> None:
    assert [row for row in usages() if row not in README] == []
    names = {name.removeprefix("do_").replace("_", "-") for name in vars(Interpreter) if name.startswith("do_")}
    commands = [each for path in SCENARIOS for _, _, each in blocks(path.read_text())]
    used = {line.split()[0] for lines in commands for line in lines}
    assert names - used == set()


def test_old_output_is_replaced_and_the_rest_stays() -> None:
    assert play(SMALL) == SMALL
    assert play(SMALL.replace("records 1001-1002", "something else\nand more")) == SMALL


def test_a_command_without_output_says_so() -> None:
    assert play("forget target\n----\n") == "forget target\n----\nok\n"


@pytest.mark.parametrize(
    "line",
    ["swim", "write", "write many", "start r2", "crash r1", "run r7", "run hold=breath", "refuse SOMETHING", "skip"],
)
def test_a_command_that_makes_no_sense_is_named(line: str) -> None:
    with pytest.raises(ScenarioError, match=rf"^line 3: {line}: "):
        play(f"# Prose.\n\n{line}\n----\n")


def test_commands_without_a_separator_are_refused() -> None:
    with pytest.raises(ScenarioError, match="no ----"):
        play("write 2\n\nwrite 3\n----\n")
    with pytest.raises(ScenarioError, match="no ----"):
        play("write 2\n")


def test_a_violation_fails_whatever_the_file_says() -> None:
    with pytest.raises(AssertionError, match="never arrived") as caught:
        play("write 2\nstart r1\ncheck\n----\n")
    assert caught.value.__notes__ == ["line 1: check"]
