"""The transitions of flows and replicators in these tests are compared with the diagrams in architecture.md."""

import re
from collections.abc import Generator, Mapping
from pathlib import Path

import pytest

from mirrord.model import known_secrets
from mirrord.supervision.fleet.fleet import Fleet
from mirrord.supervision.flow_supervisor import FlowSupervisor

ARCHITECTURE = Path(__file__).parents[2] / "docs" / "explanation" / "architecture.md"
BORN = "[*]"


def drawn(name: str) -> set[tuple[str, str]]:
    """The steps in the diagram with this name."""
    block = re.search(rf"<!-- {name}:.*?```mermaid\n(.*?)```", ARCHITECTURE.read_text(), re.DOTALL)
    assert block is not None
    return set(re.findall(r"^ +(\w+|\[\*\]) --> (\w+|\[\*\])", block[1], re.MULTILINE))


FLOW_STEPS, HOST_STEPS = drawn("flow states"), drawn("host states")


@pytest.fixture(autouse=True)
def own_state_directory(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests leave no tokens and logs in the user's state directory."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.getbasetemp() / "state"))


@pytest.fixture(autouse=True)
def own_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    """The secrets of other tests, for example the word "second", are not masked."""
    monkeypatch.setattr(known_secrets, "_known", dict[str, None]())


@pytest.fixture(autouse=True)
def only_drawn_steps(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Fails a test in which a flow or a replicator makes a transition that is not drawn."""
    undrawn: list[str] = []
    put, states = FlowSupervisor.__setattr__, Fleet.states

    def noticed(flow: FlowSupervisor, name: str, value: object) -> None:
        if name == "_state":
            before = getattr(flow, "_state", BORN)
            if before != value and (before, value) not in FLOW_STEPS:
                undrawn.append(f"flow: {before} --> {value}")
        put(flow, name, value)

    seen: dict[int, Mapping[str, str]] = {}

    def look(fleet: Fleet) -> None:
        before, now = seen.get(id(fleet), {}), dict(states(fleet))
        seen[id(fleet)] = now
        for name in before.keys() | now.keys():
            step = (before.get(name, BORN), now.get(name, BORN))
            if step[0] != step[1] and step not in HOST_STEPS:
                undrawn.append(f"replicator {name}: {step[0]} --> {step[1]}")

    steps, poll = Fleet.step, Fleet.poll

    def step(fleet: Fleet) -> None:
        look(fleet)
        steps(fleet)
        look(fleet)

    async def polled(fleet: Fleet) -> None:
        await poll(fleet)
        look(fleet)

    monkeypatch.setattr(FlowSupervisor, "__setattr__", noticed)
    monkeypatch.setattr(Fleet, "step", step)
    monkeypatch.setattr(Fleet, "poll", polled)
    yield
    assert not undrawn
