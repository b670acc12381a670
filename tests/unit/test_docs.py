"""The documents name what exists: files, packages, phases, commands and targets."""

import re
from pathlib import Path
from typing import get_args

import pytest

from mirrord.config.loader import load_text
from mirrord.model.status import FlowPhase, HostState
from mirrord.replication.lane.phases import Phase

ROOT = Path(__file__).parents[2]
FRONT = [ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")]
PAGES = [*FRONT, *sorted((ROOT / "docs").rglob("*.md"))]
ARCHITECTURE = (ROOT / "docs" / "explanation" / "architecture.md").read_text()
FILE = re.compile(r"\b(?:mirrord|actors|policies|tests|bench|conf|docs)/[\w./-]*\w")
LINK = re.compile(r"\]\((?!\w+:)([^)#]+)")
NO_FILES = {
    "mirrord/eu-us/replicator-0.g2.1/1": "a replicator's name",
}


def picture(name: str) -> str:
    """The fenced block after a comment that names it."""
    found = re.search(rf"<!-- {name}:.*?-->\n```\w+\n(.*?)```", ARCHITECTURE, re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_file_that_is_named_exists(page: Path) -> None:
    text = page.read_text()
    missing = [name for name in FILE.findall(text) if not (ROOT / name).exists() and name not in NO_FILES]
    missing += [link for link in LINK.findall(text) if not (page.parent / link).exists()]
    assert not missing


def test_the_picture_of_phases_has_all_of_them() -> None:
    drawn = set(re.findall(r"^ +(\w+) -->|--> (\w+)", picture("phases"), re.MULTILINE))
    assert {name for pair in drawn for name in pair if name} == {phase.value for phase in Phase}


@pytest.mark.parametrize(("name", "states"), [("flow states", FlowPhase), ("host states", HostState)])
def test_the_pictures_of_supervision_have_all_states(name: str, states: object) -> None:
    drawn = set(re.findall(r"^ +(\w+) -->|--> (\w+)", picture(name), re.MULTILINE))
    assert {each for pair in drawn for each in pair if each} == set(get_args(states))


def test_the_picture_of_packages_has_all_of_them() -> None:
    columns = [line[:33] for line in picture("packages").splitlines()]
    drawn = {name for line in columns for name in line.split()}
    packages = {path.parent for path in (*ROOT.glob("mirrord/*/__init__.py"), *ROOT.glob("*/__init__.py"))}
    there = {str(path.relative_to(ROOT)) for path in packages}
    assert drawn == there - {"mirrord", "bench", "tests"}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_command_that_is_named_exists(page: Path) -> None:
    text = page.read_text()
    typed = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", text)
    typed += [line for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL) for line in block.splitlines()]
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    verbs = {path.stem for path in (ROOT / "tests" / "golden" / "help").glob("*.txt")}
    assert {found[1] for line in typed if (found := re.match(r"make ([a-z]+)", line))} <= targets
    assert {found[1] for line in typed if (found := re.match(r"mirrord ([a-z]+)", line))} <= verbs


def test_the_configuration_of_the_readme_is_whole() -> None:
    text = (ROOT / "README.md").read_text()
    found = re.search(r"```toml\n(.*?)```", text, re.DOTALL)
    assert found is not None
    (flow,) = load_text(found[1], "README.md").flows
    assert flow.name == "eu-us"


def test_every_decision_has_a_number_of_its_own_and_is_in_the_index() -> None:
    """Code and tests refer to decisions by number."""
    folder = ROOT / "docs" / "explanation" / "decisions"
    files = sorted(path.name for path in folder.glob("[0-9]*.md"))
    assert [int(name[:4]) for name in files] == list(range(1, len(files) + 1))
    listed = re.findall(r"^- \[(.*?)\]\((.*?)\)$", (folder / "index.md").read_text(), re.MULTILINE)
    titles = [((folder / name).read_text().partition("\n")[0].removeprefix("# "), name) for name in files]
    assert sorted(listed) == sorted(titles)


def test_every_test_of_a_broker_behaviour_exists() -> None:
    """Each row names a test of the contract, or one of real brokers only, which is marked with a star."""
    page = (ROOT / "docs" / "explanation" / "broker-behaviour.md").read_text()
    named = set(re.findall(r"`(test_\w+)`(\*?)", page))
    sim = ROOT / "tests" / "sim"
    contract = "".join(
        (sim / name).read_text() for name in ("contract.py", "epoch_contract.py", "transaction_contract.py")
    )
    kafka = ROOT / "tests" / "kafka"
    files = "broker_contract", "cleaned_end", "transaction_contract", "producer_fence"
    brokers = "".join((kafka / f"test_{name}.py").read_text() for name in files)
    in_contract = set(re.findall(r"    async def (test_\w+)", contract))
    with_brokers = set(re.findall(r"^async def (test_\w+)", brokers, re.MULTILINE))
    assert {name for name, star in named if not star} == in_contract
    assert {name for name, star in named if star} == with_brokers
