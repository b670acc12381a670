"""One daemon replaces another one, with fake replicators: host by host, and back again if it vanishes."""

import argparse
import asyncio
from collections.abc import AsyncGenerator

import msgspec
import pytest

from mirrord.cli import start_upgrade
from mirrord.cli.order_verbs import author
from mirrord.config.http import HttpConfig
from mirrord.config.schema import Config, RuntimeConfig
from mirrord.config.value_parsers import HostPort
from mirrord.control.command_sender import NoAnswer
from mirrord.daemon.http_api import HttpServer
from mirrord.ledger.errors import LedgerMissing, NotSigned
from mirrord.ledger.facts.core import LeaseContinued, LeaseTaken
from mirrord.ledger.store.cluster_access import ClusterAccess
from mirrord.model.errors import ConfigError, EnvironmentFault, MirrordError
from mirrord.runtime.build_info import program
from mirrord.runtime.clock import SystemClock
from mirrord.supervision.fleet import fleet
from mirrord.supervision.fleet.engine import Engine
from mirrord.supervision.flow_supervisor import FlowSupervisor
from mirrord.supervision.upgrade import incoming, outgoing
from mirrord.supervision.upgrade.incoming import Succession
from mirrord.supervision.upgrade.outgoing import FlowHandover, Handover
from mirrord.supervision.upgrade.protocol import (
    HandoverAnswer,
    HandoverCall,
    HandoverTerms,
    HandoverVerb,
    Predecessor,
    Successor,
)
from tests.fixtures.clock import FakeClock
from tests.fixtures.fake_pipe import as_any
from tests.fixtures.one_flow import FLOW, Mirror, hosted, mirrors
from tests.fixtures.supervision import FakeEngine, eventually
from tests.unit.daemon.test_http_api import Daemon

OLD, NEW = "http://127.0.0.1:8182", "http://127.0.0.1:8183"
TERMS = HandoverTerms(program=program(), instance="mirrord", daemon="one", lease_ttl_ms=6000, flows=("eu-us",))


@pytest.fixture
async def mirror(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Mirror]:
    monkeypatch.setattr(fleet, "RETIRE_PAUSE_S", 0.1)
    monkeypatch.setattr(fleet, "RETIRED_AT_ONCE", 1)
    monkeypatch.setattr(outgoing, "LOOK_S", 0.05)
    async for made in mirrors(monkeypatch):
        made.config = msgspec.structs.replace(
            made.config, runtime=RuntimeConfig(lease_ttl_ms=1500, request_timeout_ms=200)
        )
        yield made


class Door:
    """The old daemon's HTTP API, as the new one reaches it."""

    def __init__(self, flow: FlowSupervisor, engine: FakeEngine) -> None:
        self.calls: list[HandoverCall] = []
        self.silent = False
        self.handover = Handover(engine, {flow.flow.name: flow}, flow.stop, SystemClock())

    async def ask(self, http: str, config: Config, call: HandoverCall, seconds: float) -> HandoverAnswer:
        assert (http, seconds > 0, bool(config.flows)) == (OLD, True, True)
        self.calls.append(call)
        if self.silent:
            raise NoAnswer("no answer in time")
        return await self.handover.answer(call, TERMS)


async def upgraded(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, lanes: int = 4
) -> tuple[FlowSupervisor, FakeEngine, FlowSupervisor, FakeEngine, Door, Succession]:
    """A flow that runs, and a daemon that begins to take it over."""
    mirror.clusters["eu"].add("orders", lanes)
    old, old_engine = mirror.start(daemon="one")
    await eventually(lambda: hosted(old_engine, lanes) and old.status().totals.lanes == {"copying": lanes})
    door = Door(old, old_engine)
    monkeypatch.setattr(incoming, "hand_over", door.ask)
    taking = Succession(Predecessor(OLD, "0.0.9", "one"), mirror.config, SystemClock())
    taking.successor = Successor(NEW, program())
    new, new_engine = mirror.start(daemon="one", pid=2, succession=taking)
    return old, old_engine, new, new_engine, door, taking


async def test_every_lane_moves_in_turn_and_the_old_daemon_ends(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    old, old_engine, new, new_engine, door, taking = await upgraded(mirror, monkeypatch)
    most_away = 0

    def moved() -> bool:
        nonlocal most_away
        homes = [*old_engine.homes(), *new_engine.homes()]
        assert len(homes) == len(set(homes)), "two replicators for one lane"
        most_away = max(most_away, 4 - len(homes))
        return hosted(new_engine, 4)

    await eventually(moved)
    # One at a time from each of the two old replicators.
    assert most_away <= 2
    assert {lane.former for lane in new_engine.assignments(new_engine.replicators)} == {"left"}
    assert {each.name.rpartition("/")[2].partition(".")[0] for each in new_engine.alive} == {
        "replicator-0",
        "replicator-1",
    }
    assert old.status().state in {"draining", "stopped"}
    await eventually(lambda: not old_engine.alive)
    assert new.refusal() == f"it is being taken over from {OLD}"
    await taking.dismiss(lambda: not taking.names.isdisjoint(new.hosts() or ()))
    assert door.handover.replaced_by == Successor(NEW, program())
    await eventually(lambda: old.status().state == "stopped")
    assert new.refusal() == ""
    assert [type(fact) for fact in mirror.facts() if isinstance(fact, LeaseTaken | LeaseContinued)] == [
        LeaseTaken,
        LeaseContinued,
    ]
    lease = new.status().lease
    assert lease is not None
    assert lease.http == NEW


async def test_a_daemon_that_vanishes_while_it_takes_over_gives_the_flow_back(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet, "RETIRE_PAUSE_S", 0.5)
    old, old_engine, new, new_engine, _, _ = await upgraded(mirror, monkeypatch)
    await eventually(new_engine.homes)
    assert "handed over to mirrord" in old.status().note
    assert old.refusal() == "it is draining"
    mirror.crash(new)
    await eventually(lambda: old.status().state == "running")
    await eventually(lambda: hosted(old_engine, 4))
    assert old.status().lease is not None


async def test_a_daemon_that_does_not_answer_is_waited_for_and_continues(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.clusters["eu"].add("orders", 2)
    old, old_engine = mirror.start(daemon="one")
    await eventually(lambda: hosted(old_engine, 2))
    door = Door(old, old_engine)
    door.silent = True
    monkeypatch.setattr(incoming, "hand_over", door.ask)
    taking = Succession(Predecessor(OLD, "0.0.9", "one"), mirror.config, SystemClock())
    taking.successor = Successor(NEW, program())
    new, new_engine = mirror.start(daemon="one", pid=2, succession=taking)
    await eventually(lambda: "waiting for the daemon at" in new.status().note)
    assert (old.status().state, new.status().state) == ("running", "standby")
    door.silent = False
    await eventually(lambda: hosted(new_engine, 2))
    assert new.status().note == ""


async def test_a_replicator_of_the_old_daemon_that_dies_is_replaced(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, old_engine, _, new_engine, door, _ = await upgraded(mirror, monkeypatch)
    await eventually(lambda: any(call.verb == "greet" for call in door.calls))
    old_engine.alive[0].dead = True
    await eventually(lambda: hosted(new_engine, 4))


async def test_nothing_is_passed_on_before_a_flow_is_handed_over(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    mirror.clusters["eu"].add("orders", 1)
    old, engine = mirror.start(daemon="one")
    await eventually(lambda: hosted(engine, 1) and old.refusal() == "")
    door = Door(old, engine)
    name = engine.alive[0].name

    async def answer_to(call: HandoverCall) -> HandoverAnswer:
        return await door.handover.answer(call, TERMS)

    kill = await answer_to(HandoverCall(verb="kill", name=name))
    assert (kill.refused, kill.dead, engine.alive[0].dead) == (f"{name} is not handed over", False, False)
    assert (await answer_to(HandoverCall(verb="found", flow="eu-us"))).refused == "eu-us is not handed over yet"
    assert (await answer_to(HandoverCall(verb="kill", name="nobody"))).dead
    successor = Successor(NEW, program())
    assert "no flow" in (await answer_to(HandoverCall(verb="begin", flow="us-eu", successor=successor))).refused
    assert (await answer_to(HandoverCall(verb="terms"))).terms == TERMS
    assert old.status().state == "running"


class Flow:
    """A running flow, as far as `Handover` needs it."""

    def __init__(self, engine: Engine, name: str) -> None:
        self.handover = FlowHandover(engine, f"mirrord/{name}/", SystemClock())

    def refusal(self) -> str:
        return ""


class Replicators:
    """An engine with a replicator of each of two flows."""

    def __init__(self) -> None:
        self.killed: list[str] = []
        self.all = [Replicator(f"mirrord/{flow}/replicator-0.g1.1/1", self.killed) for flow in ("eu-us", "us-eu")]

    def running(self, prefix: str) -> "list[Replicator]":
        return [each for each in self.all if each.name.startswith(prefix)]


class Replicator:
    def __init__(self, name: str, killed: list[str]) -> None:
        self.name = name
        self._killed = killed

    async def kill(self) -> None:
        self._killed.append(self.name)


async def test_flows_that_are_not_handed_over_are_left_alone() -> None:
    replicators = Replicators()
    engine = as_any(replicators)
    flows = {name: Flow(engine, name) for name in ("eu-us", "us-eu")}
    dismissed: list[bool] = []
    door = Handover(engine, flows, lambda: dismissed.append(True), SystemClock())
    flows["eu-us"].handover.is_handed = True
    one, other = (each.name for each in replicators.all)

    async def refusal_of(call: HandoverCall) -> str:
        return (await door.answer(call, TERMS)).refused

    assert await refusal_of(HandoverCall(verb="kill", name=other)) == f"{other} is not handed over"
    assert await refusal_of(HandoverCall(verb="kill", name=one)) == ""
    assert replicators.killed == [one]
    end = HandoverCall(verb="end", successor=Successor(NEW, program()))
    assert await refusal_of(end) == "not handed over: us-eu"
    assert (dismissed, door.replaced_by) == ([], None)
    flows["us-eu"].handover.is_handed = True
    assert await refusal_of(end) == ""
    assert (dismissed, door.replaced_by) == ([True], Successor(NEW, program()))


async def test_of_two_that_take_over_at_once_one_has_its_way() -> None:
    engine, clock = as_any(Replicators()), FakeClock()
    flows = {name: Flow(engine, name) for name in ("eu-us", "us-eu")}
    door = Handover(engine, flows, lambda: None, clock)
    first, second = Successor(NEW, "2.0"), Successor("http://127.0.0.1:8184", "2.1")

    async def refusal_of(verb: HandoverVerb, successor: Successor | None) -> str:
        return (await door.answer(HandoverCall(verb=verb, flow="us-eu", successor=successor), TERMS)).refused

    assert await refusal_of("begin", first) == ""
    taken = f"mirrord 2.0 at {NEW} is already taking over from it"
    assert (
        await refusal_of("begin", second) == await refusal_of("end", second) == await refusal_of("terms", None) == taken
    )
    assert flows["us-eu"].handover.successor == first
    await clock.advance(outgoing.GONE_S - 1)
    assert await refusal_of("begin", first) == ""
    await clock.advance(outgoing.GONE_S - 1)
    assert await refusal_of("begin", second) == taken, "the first one is heard of"
    await clock.advance(1)
    assert await refusal_of("terms", None) == await refusal_of("begin", second) == ""
    assert flows["us-eu"].handover.successor == second


@pytest.mark.parametrize("patience_s", [60.0, 0.0])
async def test_the_old_daemon_is_asked_to_end_until_it_answers(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, patience_s: float
) -> None:
    answers = [NoAnswer("no answer in time"), HandoverAnswer(refused="not yet"), HandoverAnswer(), HandoverAnswer()]
    asked: list[str] = []

    async def ask(_: str, __: Config, call: HandoverCall, ___: float) -> HandoverAnswer:
        asked.append(call.verb)
        answer = answers[len(asked) - 1]
        if isinstance(answer, NoAnswer):
            raise answer
        return answer

    monkeypatch.setattr(incoming, "hand_over", ask)
    monkeypatch.setattr(incoming, "RETRY_S", 0.0)
    monkeypatch.setattr(incoming, "LET_GO_S", patience_s)
    taking = Succession(Predecessor(OLD, "0.0.9", "one"), mirror.config, SystemClock())
    await taking.dismiss(lambda: False)
    assert (taking.over, asked) == (True, ["end"] * (3 if patience_s else len(asked)))
    assert patience_s or len(asked) < len(answers), "an old daemon that is gone is not waited for"


class Held:
    """A flow's ledger as `mirrord start --upgrade` finds it."""

    def __init__(self, http: str | None) -> None:
        self.http = http


@pytest.mark.parametrize(
    ("holders", "terms", "error"),
    [
        ([None], TERMS, "no daemon is running these flows"),
        ([NotSigned("it has no signature")], TERMS, "flow eu-us: it has no signature"),
        ([LedgerMissing("there is no flow")], TERMS, "no daemon is running these flows"),
        ([OLD, NEW], TERMS, "several are running these flows: eu-us at http://127.0.0.1:8182; us-eu at"),
        ([OLD], msgspec.structs.replace(TERMS, flows=("eu-us", "x")), "is running different flows (eu-us, x)"),
        ([OLD], msgspec.structs.replace(TERMS, instance="b"), 'is the instance "b", but'),
        ([OLD], msgspec.structs.replace(TERMS, lease_ttl_ms=3000), "runtime.lease_ttl is 3 s at"),
        ([OLD], None, "`mirrord stop` and `mirrord start` do the same with a pause"),
    ],
)
async def test_bad_uses_are_reported_in_one_line(
    mirror: Mirror,
    monkeypatch: pytest.MonkeyPatch,
    holders: list[str | MirrordError | None],
    terms: HandoverTerms | None,
    error: str,
) -> None:
    config = Config(clusters=mirror.config.clusters, flows=(FLOW,))
    views = {
        name: each if isinstance(each, MirrordError) else Held(each)
        for name, each in zip(("eu-us", "us-eu"), holders, strict=False)
    }

    async def read(*_: object) -> dict[str, Held | MirrordError]:
        return views

    async def answer(*_: object) -> HandoverAnswer:
        if terms is None:
            raise NoAnswer(f"{OLD} answers with 404")
        return HandoverAnswer(terms=terms)

    monkeypatch.setattr(start_upgrade, "LedgerView", Held)
    monkeypatch.setattr(start_upgrade, "read_ledgers", read)
    monkeypatch.setattr(start_upgrade, "hand_over", answer)
    with pytest.raises((ConfigError, EnvironmentFault)) as raised:
        await start_upgrade.find_predecessor(config, ClusterAccess(config))
    assert error in str(raised.value)
    assert "\n" not in str(raised.value)


async def test_the_same_version_is_allowed_and_reported(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    config = Config(clusters=mirror.config.clusters, flows=(FLOW,))

    async def read(*_: object) -> dict[str, Held]:
        return {"eu-us": Held(OLD)}

    async def answer(*_: object) -> HandoverAnswer:
        return HandoverAnswer(terms=terms[-1])

    terms = [TERMS]
    monkeypatch.setattr(start_upgrade, "LedgerView", Held)
    monkeypatch.setattr(start_upgrade, "read_ledgers", read)
    monkeypatch.setattr(start_upgrade, "hand_over", answer)
    found = await start_upgrade.find_predecessor(config, ClusterAccess(config))
    assert found == Predecessor(OLD, program(), "one", author())
    errors = capsys.readouterr().err
    assert errors == f"mirrord {program()} takes over from mirrord {program()} at {OLD}, the same version\n"
    start_upgrade.print_replacement(Successor(NEW, "2.0"))
    assert capsys.readouterr().err == f"mirrord {program()} is replaced by mirrord 2.0 at {NEW}\n"
    # The answer of another server, whose address a client has written to the ledger.
    terms.append(msgspec.structs.replace(TERMS, program="\x1b[2J1.0"))
    await start_upgrade.find_predecessor(config, ClusterAccess(config))
    assert capsys.readouterr().err == f"mirrord {program()} takes over from mirrord ?[2J1.0 at {OLD}\n"
    start_upgrade.print_replacement(Successor(NEW, "\x9b2J"))
    assert capsys.readouterr().err == f"mirrord {program()} is replaced by mirrord ?2J at {NEW}\n"


@pytest.mark.parametrize("other", ["dry_run", "until_caught_up"])
def test_what_it_cannot_go_with(other: str) -> None:
    given = argparse.Namespace(**({"upgrade": True, "dry_run": False, "until_caught_up": False} | {other: True}))
    with pytest.raises(ConfigError, match="--upgrade takes over from a daemon that keeps copying"):
        start_upgrade.check_upgrade(given)


async def test_a_given_address_is_taken_when_the_old_daemon_has_left_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mirrord.daemon.http_api.MOVE_IN_S", 0.01)
    first = HttpServer(Daemon(), HttpConfig(), SystemClock())
    taken = await first.start()
    second = HttpServer(Daemon(), HttpConfig(listen=taken), SystemClock(), elsewhere=True)
    other = await second.start()
    assert other != taken
    moving = asyncio.create_task(second.move_in())
    tries: list[HostPort] = []
    listen_at = second._listen_at

    async def counted(address: HostPort) -> None:
        tries.append(address)
        await listen_at(address)

    monkeypatch.setattr(second, "_listen_at", counted)
    await eventually(lambda: len(tries) > 5)
    assert not moving.done()
    assert len(second._runner.sites) <= 2, "but for the present try, what could not be opened is not kept"
    await first.close()
    await moving
    with pytest.raises(EnvironmentFault, match="cannot listen"):
        await HttpServer(Daemon(), HttpConfig(listen=taken), SystemClock()).start()
    await second.close()
