"""`mirrord pause|resume|move|drain` as users type them: whom they ask, what they print, how they end."""

import json
from pathlib import Path

import msgspec
import pytest

from mirrord.cli import main as cli
from mirrord.cli import order_verbs
from mirrord.cli.verbs import quarantine
from mirrord.config.schema import Config
from mirrord.ledger.facts.core import Holder
from mirrord.ledger.standing_orders import Order, OrderAnswer
from mirrord.ledger.state import FlowState
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.operations import flow_lookup
from mirrord.operations.status_report import LedgerView
from tests.unit.cli.test_cli import CONF


class Daemons:
    """A fake that finds daemons and answers commands."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = {"eu-us": "http://127.0.0.1:1", "us-eu": "http://127.0.0.1:1"}
        self.taken: list[tuple[str, Order, bool]] = []
        self.answer: OrderAnswer | Exception = OrderAnswer(
            flow="eu-us", done=("topic orders of eu-us is paused",), lanes=("orders-0",), notes=("one more thing",)
        )
        monkeypatch.setattr(flow_lookup, "read_ledgers", self.read)
        monkeypatch.setattr(order_verbs, "give_order", self.give)
        monkeypatch.setattr(quarantine, "park", self.park)
        self.parked: int | Exception = 2

    async def read(self, config: Config, _: object) -> dict[str, LedgerView]:
        views: dict[str, LedgerView] = {}
        for flow in config.flows:
            http = self.at.get(flow.name)
            holder = Holder("elsewhere", 1, "mirrord", http) if http else None
            views[flow.name] = LedgerView(flow, FlowState(flow=flow.name, holder=holder), None)
        return views

    async def park(self, config: Config, order: Order, flow: str, at_ms: int) -> Order:
        assert config.flow(flow)
        assert at_ms > 0
        if isinstance(self.parked, Exception):
            raise self.parked
        return msgspec.structs.replace(order, letters=self.parked)

    async def give(self, http: str, config: Config, order: Order, *, dry_run: bool) -> OrderAnswer:
        assert config.flows
        self.taken.append((http, order, dry_run))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def daemons(monkeypatch: pytest.MonkeyPatch) -> Daemons:
    monkeypatch.setattr(order_verbs.getpass, "getuser", lambda: "ada")
    monkeypatch.setattr(order_verbs.socket, "gethostname", lambda: "host")
    return Daemons(monkeypatch)


@pytest.fixture
def conf(tmp_path: Path) -> str:
    path = tmp_path / "conf.toml"
    path.write_text(CONF)
    return str(path)


def test_an_order_says_who_gave_it_and_why(daemons: Daemons, conf: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["pause", "orders", conf, "--reason", "it is full", "--kind", "topic"]) == 0
    ((http, order, dry_run),) = daemons.taken
    assert (http, dry_run) == ("http://127.0.0.1:1", False)
    assert order == Order(verb="pause", name="orders", kind="topic", by="ada@host", reason="it is full")
    assert capsys.readouterr().out == ("topic orders of eu-us is paused\n    partitions: orders-0\none more thing\n")


def test_orders_about_records_are_given_as_their_help_says(daemons: Daemons, conf: str) -> None:
    assert cli.main(["quarantine", "skip", "orders-3", "1207", "--why", "too large", conf]) == 0
    assert cli.main(["quarantine", "skip", "orders-3", "1207", conf, "--until", "1300", "--why", "too large"]) == 0
    assert cli.main(["quarantine", "replay", "orders-3", "1207", conf]) == 0
    given = [
        (order.verb, order.name, order.offset, order.until, order.reason) for _, order, dry in daemons.taken if not dry
    ]
    assert given == [
        ("skip", "orders-3", 1207, -1, "too large"),
        ("skip", "orders-3", 1207, 1300, "too large"),
        ("replay", "orders-3", 1207, -1, ""),
    ]


def test_nothing_is_left_out_before_it_is_parked(
    daemons: Daemons, conf: str, capsys: pytest.CaptureFixture[str]
) -> None:
    skip = ["quarantine", "skip", "orders-3", "1207", "--why", "too large", conf]
    assert cli.main(skip) == 0
    assert [(order.letters, dry) for _, order, dry in daemons.taken] == [(-1, True), (2, False)]
    assert capsys.readouterr().out.endswith("2 records parked in mirrord.eu-us.dead\n")
    daemons.taken.clear()
    daemons.parked = EnvironmentFault("nothing was changed: it cannot be parked")
    assert cli.main(skip) == 1
    assert capsys.readouterr().err == "mirrord: nothing was changed: it cannot be parked\n"
    assert [dry for *_, dry in daemons.taken] == [True]
    assert cli.main([*skip, "--without-parking"]) == 0
    assert [(order.letters, dry) for _, order, dry in daemons.taken[1:]] == [(-1, True), (-1, False)]
    assert capsys.readouterr().out.endswith("not parked\n")


def test_nothing_is_parked_by_a_dry_run_or_for_an_order_that_stands(
    daemons: Daemons, conf: str, capsys: pytest.CaptureFixture[str]
) -> None:
    daemons.parked = AssertionError("parked")
    skip = ["quarantine", "skip", "orders-3", "1207", "--why", "too large", conf]
    assert cli.main([*skip, "--dry-run"]) == 3
    line = "the records that the source still holds would be parked in mirrord.eu-us.dead first\n"
    assert capsys.readouterr().out.endswith(line)
    daemons.answer = OrderAnswer(flow="eu-us", notes=("it is left out already",))
    assert cli.main(skip) == 0
    assert capsys.readouterr().out == "it is left out already\n"
    assert all(dry for *_, dry in daemons.taken)


def test_into_another_topic_goes_only_what_is_left_out(
    daemons: Daemons, conf: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["quarantine", "replay", "orders-3", "1207", conf, "--into", "side"]) == 2
    assert capsys.readouterr().err == "mirrord: --into: no record of orders-3 was skipped at source offset 1207\n"
    assert daemons.taken == []


@pytest.mark.parametrize("why", ["", " ", "two\nlines", "x" * 501])
def test_leaving_records_out_needs_a_reason_in_one_line(
    daemons: Daemons, conf: str, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["quarantine", "skip", "orders-3", "1207", conf, "--why", why]) == 2
    assert capsys.readouterr().err.startswith("mirrord: --why: ")
    assert daemons.taken == []


@pytest.mark.parametrize(
    "arguments",
    [["skip", "o-3", "-1", "--why", "x"], ["skip", "o-3", "x", "--why", "x"], ["show", "o-3", "-1"], ["replay", "o-3"]],
)
def test_an_offset_is_a_number_of_0_or_more(
    daemons: Daemons, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["quarantine", *arguments, "--flow", "eu-us"])
    assert ended.value.code == 2
    errors = capsys.readouterr().err
    assert "allowed: an offset, 0 or more" in errors or "required: OFFSET" in errors
    assert daemons.taken == []


def test_each_verb_gives_its_order(daemons: Daemons, conf: str) -> None:
    assert cli.main(["resume", "eu-us:orders-0", conf]) == 0
    assert cli.main(["move", "orders-0", conf, "--to", "replicator-1", "--flow", "eu-us"]) == 0
    assert cli.main(["move", "orders-0", conf, "--unpin"]) == 0
    assert cli.main(["drain", "replicator-0", conf]) == 0
    given = [(order.verb, order.name, order.to, order.flow) for _, order, _ in daemons.taken]
    assert given == [
        ("resume", "eu-us:orders-0", "", ""),
        ("move", "orders-0", "replicator-1", "eu-us"),
        ("unpin", "orders-0", "", ""),
        ("drain", "replicator-0", "", ""),
    ]


def test_a_dry_run_ends_with_3_when_there_is_something_to_do(
    daemons: Daemons, conf: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["pause", "orders", conf, "--dry-run"]) == 3
    assert capsys.readouterr().out.startswith("would be: topic orders")
    daemons.answer = OrderAnswer(flow="eu-us", notes=("topic orders of eu-us is already paused",))
    assert cli.main(["pause", "orders", conf, "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["notes"] == ["topic orders of eu-us is already paused"]
    assert all(dry_run for _, _, dry_run in daemons.taken)


@pytest.mark.parametrize(
    ("fault", "code"),
    [(ConfigError('no topic "odrers"; did you mean "orders"?'), 2), (EnvironmentFault("it is draining"), 1)],
)
def test_a_refusal_is_one_line(
    daemons: Daemons, conf: str, capsys: pytest.CaptureFixture[str], fault: Exception, code: int
) -> None:
    daemons.answer = fault
    assert cli.main(["pause", "odrers", conf]) == code
    assert capsys.readouterr().err == f"mirrord: {fault}\n"


def test_without_a_daemon_or_with_several_nothing_is_given(
    daemons: Daemons, conf: str, capsys: pytest.CaptureFixture[str]
) -> None:
    daemons.at["us-eu"] = "http://127.0.0.1:2"
    assert cli.main(["pause", "orders", conf]) == 1
    assert "several daemons are running these flows" in capsys.readouterr().err
    assert cli.main(["pause", "us-eu:orders", conf]) == 0
    assert daemons.taken.pop()[0] == "http://127.0.0.1:2"
    daemons.at.clear()
    assert cli.main(["pause", "orders", conf]) == 1
    assert "nothing was changed: no daemon is running these flows" in capsys.readouterr().err
    assert daemons.taken == []


@pytest.mark.parametrize(
    "arguments",
    [
        ["pause", "orders", "--reason", "two\nlines"],
        ["pause", "orders", "--reason", "x" * 501],
        ["pause", "orders", "--flow", "eu-su"],
        ["pause", "eu-su:orders"],
    ],
)
def test_wrong_words_end_with_2(daemons: Daemons, conf: str, arguments: list[str]) -> None:
    assert cli.main([*arguments[:2], conf, *arguments[2:]]) == 2
    assert daemons.taken == []


@pytest.mark.parametrize("arguments", [["move", "orders-0"], ["drain"], ["move", "o-0", "--to", "x", "--unpin"]])
def test_wrong_usage_ends_with_2(daemons: Daemons, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert daemons.taken == []
