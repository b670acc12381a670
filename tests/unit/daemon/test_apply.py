"""A daemon applies another configuration: flows come, go and change, or nothing of it is applied."""

import asyncio
import hashlib
import socket
from collections.abc import AsyncGenerator
from pathlib import Path
from types import SimpleNamespace

import msgspec
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from mirrord.config.changes import ConfigChanges
from mirrord.config.http import HttpConfig
from mirrord.config.jobs import AuditConfig
from mirrord.config.own_file import FileDigest, OwnFile
from mirrord.config.schema import ClusterConfig, Config, FlowConfig, ReplicatorsConfig, RuntimeConfig
from mirrord.config.security import Secret, Security
from mirrord.config.value_parsers import HostPort
from mirrord.config.writer import conf_toml
from mirrord.control.command_sender import CommandSender
from mirrord.daemon.daemon import DaemonAccess, Supervisor
from mirrord.daemon.http_api import RefusedCommand
from mirrord.daemon.own_file import OwnFileReader
from mirrord.ledger.codec import decode_entry
from mirrord.ledger.facts.commands import CommandGiven
from mirrord.ledger.facts.core import ConfigChanged, Entry, TargetProbed
from mirrord.ledger.facts.orders import CopyingPaused
from mirrord.ledger.standing_orders import Giver, Order
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.names import Alias, ClusterId
from mirrord.supervision import flow_supervisor
from mirrord.supervision.daemon_http_client import give_order, hand_over, order_apply, order_stop
from mirrord.supervision.upgrade.protocol import HandoverCall, Successor
from tests.fixtures.fake_pipe import as_any
from tests.fixtures.supervision import FakeAdmin, FakeCluster, FakeEngine, FakeUpkeep, eventually
from tests.unit.daemon.test_http_api import free_port

FLOW = FlowConfig(name="eu-us", source="eu", target="us", topics=("orders",), refresh_ms=100)
OTHER = FlowConfig(name="other", source="eu", target="us", topics=("payments",), refresh_ms=100)
ELSEWHERE = ClusterConfig(("127.0.0.1:1",), Security())


class World(DaemonAccess):
    """Clusters and ledgers in memory."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.clusters = {alias: FakeCluster(ClusterId(f"{alias}-id")) for alias in ("eu", "us")}
        self.ledgers = {name: MemoryLedger() for name in (FLOW.name, OTHER.name)}

    def admin(self, alias: Alias) -> FakeAdmin:
        return FakeAdmin(self.clusters[alias])

    def upkeep(self, alias: Alias) -> FakeUpkeep:
        return FakeUpkeep(self.clusters[alias])

    def mm2(self, flow: FlowConfig) -> None:  # noqa: ARG002
        return None

    def ledger(self, flow: FlowConfig) -> LedgerStore:
        return LedgerStore(MemoryLog(self.ledgers[flow.name]), self.clock, deadline_seconds=1.0)

    async def probe(self, flow: FlowConfig, known: TargetProbed | None) -> TargetProbed:
        return known or TargetProbed(ClusterId("us-id"), flow.name, passed=True)


@pytest.fixture
async def daemon(monkeypatch: pytest.MonkeyPatch) -> AsyncGenerator[Supervisor]:
    monkeypatch.setattr(flow_supervisor, "POLL_S", 0.05)
    config = Config(
        clusters={"eu": ELSEWHERE, "us": ELSEWHERE},
        flows=(FLOW,),
        runtime=RuntimeConfig(lease_ttl_ms=1000, request_timeout_ms=1000),
        http=HttpConfig(listen=HostPort("127.0.0.1", free_port())),
    )
    world = World(config)
    for topic in ("orders", "payments"):
        world.clusters["eu"].add(topic, 1)
    engine = FakeEngine(world.ledgers[FLOW.name])
    engine.ledgers = world.ledgers
    made = Supervisor(config, engine, world)
    await made.start()
    waiting = asyncio.create_task(made.wait())
    await eventually(lambda: states(made) == {"eu-us": "running"})
    yield made
    await made.stop()
    await waiting


def states(daemon: Supervisor) -> dict[str, str]:
    return {flow.name: flow.state for flow in daemon.status().flows}


def with_flows(daemon: Supervisor, *flows: FlowConfig) -> Config:
    return msgspec.structs.replace(daemon.config, flows=flows)


async def test_flows_come_and_go(daemon: Supervisor) -> None:
    both = with_flows(daemon, FLOW, OTHER)
    await daemon.apply(both, dry_run=True)
    assert states(daemon) == {"eu-us": "running"}
    changes = await daemon.apply(both, dry_run=False)
    assert [(change.flow, change.kind) for change in changes.flows] == [("other", "added")]
    await eventually(lambda: states(daemon) == {"eu-us": "running", "other": "running"})
    await daemon.apply(with_flows(daemon, FLOW), dry_run=False)
    assert states(daemon) == {"eu-us": "running"}
    assert daemon.config.flows == (FLOW,)


async def test_a_change_names_its_topics_and_happens_once(daemon: Supervisor) -> None:
    wider = with_flows(daemon, msgspec.structs.replace(FLOW, topics=("orders", "payments")))
    (change,) = (await daemon.apply(wider, dry_run=False)).flows
    assert change.topics == ("starts copying payments into eu.payments",)
    await eventually(lambda: {lane.topic for lane in daemon.status().flows[0].lanes} == {"orders", "payments"})
    assert (await daemon.apply(wider, dry_run=False)).flows == ()


async def test_another_number_of_replicators_counts_for_all_flows_and_stands_in_their_ledgers(
    daemon: Supervisor,
) -> None:
    engine = daemon._engine  # pyright: ignore[reportPrivateUsage]
    assert isinstance(engine, FakeEngine)
    await eventually(lambda: len(engine.alive) == 1)
    config = msgspec.structs.replace(daemon.config, replicators=ReplicatorsConfig(count=1, spares=1))
    planned = await daemon.apply(config, dry_run=True)
    assert planned.replicators == ("replicators.count: auto -> 1", "replicators.spares: 0 -> 1")
    assert len(engine.alive) == 1
    await daemon.apply(config, dry_run=False)
    await eventually(lambda: len(engine.alive) == 2)
    await eventually(lambda: any(ConfigChanged(planned.replicators) in entry.facts for entry in entries(engine)))
    assert (await daemon.apply(config, dry_run=False)).replicators == ()
    await daemon.apply(with_flows(daemon), dry_run=False)


def entries(engine: FakeEngine) -> list[Entry]:
    return [decode_entry(data) for data in engine.ledger.entries]


async def test_orders_are_taken_until_the_daemon_drains(daemon: Supervisor) -> None:
    order = Order(verb="pause", name="orders", by="ada@host")
    await daemon.apply(with_flows(daemon, FLOW, OTHER), dry_run=False)
    await eventually(lambda: states(daemon) == {"eu-us": "running", "other": "running"})
    await eventually(lambda: all(flow.lanes for flow in daemon.status().flows))
    assert (await daemon.order(order, dry_run=False)).flow == "eu-us"
    paused = (await daemon.order(msgspec.structs.replace(order, name="other"), dry_run=False)).done
    assert paused == ("flow other is paused",)
    with pytest.raises(ConfigError, match='no flow or topic or partition "refunds"'):
        await daemon.order(msgspec.structs.replace(order, name="refunds"), dry_run=False)
    await daemon.stop()
    with pytest.raises(EnvironmentFault, match="nothing was changed: this daemon is draining"):
        await daemon.order(msgspec.structs.replace(order, verb="resume"), dry_run=False)


async def test_everything_or_nothing_is_taken(daemon: Supervisor) -> None:
    before = daemon.config
    stolen = {**before.clusters, "us": ClusterConfig(("thief:9092",), Security())}
    config = msgspec.structs.replace(with_flows(daemon, FLOW, OTHER), clusters=stolen)
    changes = await daemon.apply(config, dry_run=False)
    assert len(changes.refused) == 1
    assert daemon.config == before
    assert states(daemon) == {"eu-us": "running"}


async def test_no_body_of_a_request_is_a_configuration(daemon: Supervisor) -> None:
    """Two requests in a row could once swap a cluster, and one could bring Spark's settings."""
    before, http = daemon.config, f"http://{daemon.config.http.listen}"
    thief = {"eu": ClusterConfig(("attacker:9092",), Security("SASL_PLAINTEXT", "PLAIN", "x", Secret("file:/etc/x")))}
    code = AuditConfig(every_ms=10_000, out="/anywhere", spark={"spark.driver.extraJavaOptions": "-XX:OnError=x"})
    for config in (
        before,
        msgspec.structs.replace(before, flows=()),
        msgspec.structs.replace(before, clusters={**before.clusters, **thief}, flows=()),
        msgspec.structs.replace(before, audit=code),
    ):
        sender = CommandSender(http, before.http, 5.0)
        answer = await sender.send("POST", "/apply", msgspec.json.encode(config), "configure")
        assert answer.status == 400
        assert daemon.config == before
    assert states(daemon) == {"eu-us": "running"}


async def test_apply_reads_the_file_of_the_daemon_and_no_other(daemon: Supervisor, tmp_path: Path) -> None:
    before, http = daemon.config, f"http://{daemon.config.http.listen}"
    path, another = tmp_path / "conf.toml", tmp_path / "another.toml"
    checked: list[Config] = []

    async def check(config: Config) -> None:
        checked.append(config)
        if any(flow.topics == ("unreachable",) for flow in config.flows):
            raise EnvironmentFault("cluster eu: refused")

    assert daemon._own_file is None  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(EnvironmentFault, match="was not started with a file"):
        await order_apply(http, before, FileDigest(""), dry_run=False)
    daemon._own_file = OwnFileReader(OwnFile.at(str(path)), check)  # pyright: ignore[reportPrivateUsage]

    def written(to: Path, *flows: FlowConfig) -> FileDigest:
        to.write_text(conf_toml(msgspec.structs.replace(before, flows=flows)))
        return FileDigest(hashlib.sha256(to.read_bytes()).hexdigest())

    own, foreign = written(path, FLOW), written(another, FLOW, OTHER)
    assert await order_apply(http, before, own, dry_run=False) == ConfigChanges()
    assert checked == [before]
    (refused,) = (await order_apply(http, before, foreign, dry_run=False)).refused
    assert refused.startswith(f"this file differs from {path} on {socket.gethostname()}")
    assert daemon.config == before
    with pytest.raises(EnvironmentFault, match="cluster eu: refused"):
        await order_apply(http, before, written(path, replace(FLOW, topics=("unreachable",))), dry_run=False)
    path.write_text("[clusters\n")
    broken = FileDigest(hashlib.sha256(path.read_bytes()).hexdigest())
    (refused,) = (await order_apply(http, before, broken, dry_run=False)).refused
    assert refused.startswith(f"{path}: not valid TOML")
    path.unlink()
    (refused,) = (await order_apply(http, before, broken, dry_run=False)).refused
    assert refused.startswith(f"{path}: no such file")
    assert daemon.config == before
    digest = written(path, FLOW, OTHER)
    planned = await order_apply(http, before, digest, dry_run=True)
    assert ([change.flow for change in planned.flows], daemon.config) == (["other"], before)
    assert (await order_apply(http, before, digest, dry_run=False)).flows == planned.flows
    await eventually(lambda: states(daemon) == {"eu-us": "running", "other": "running"})
    # As on SIGHUP, nobody has to name the file.
    written(path, FLOW)
    assert [change.kind for change in (await daemon.reload(None, dry_run=False)).flows] == ["removed"]


async def test_a_daemon_keeps_the_flows_that_its_start_selected(tmp_path: Path) -> None:
    path = tmp_path / "conf.toml"
    clusters = {"eu": ELSEWHERE, "us": ELSEWHERE}
    path.write_text(conf_toml(Config(clusters=clusters, flows=(FLOW, OTHER))))

    async def check(_: Config) -> None:
        return

    reader = OwnFileReader(OwnFile.at(str(path), ("other",)), check)
    config = await reader.read(None)
    assert [flow.name for flow in config.flows] == ["other"]
    assert [flow.name for flow in config.elsewhere] == ["eu-us"]
    path.write_text(conf_toml(Config(clusters=clusters, flows=(FLOW,))))
    with pytest.raises(ConfigError, match='no flow "other"'):
        await reader.read(None)


def given(daemon: Supervisor) -> list[CommandGiven]:
    engine = daemon._engine  # pyright: ignore[reportPrivateUsage]
    assert isinstance(engine, FakeEngine)
    return [fact for entry in entries(engine) for fact in entry.facts if isinstance(fact, CommandGiven)]


async def test_the_ledger_says_who_applied_and_who_stopped(daemon: Supervisor, tmp_path: Path) -> None:
    http, path = f"http://{daemon.config.http.listen}", tmp_path / "conf.toml"

    async def check(_: Config) -> None:
        return

    daemon._own_file = OwnFileReader(OwnFile.at(str(path)), check)  # pyright: ignore[reportPrivateUsage]
    path.write_text(conf_toml(daemon.config))
    digest = FileDigest(hashlib.sha256(path.read_bytes()).hexdigest(), "ada@host\n" + "x" * 500)
    await order_apply(http, daemon.config, digest, dry_run=True)
    assert given(daemon) == []
    await order_apply(http, daemon.config, digest, dry_run=False)
    (applied,) = given(daemon)
    assert applied.command == "apply"
    assert applied.origin.by.startswith("ada@host?xxx")
    assert (len(applied.origin.by), applied.origin.client, applied.origin.peer) == (300, "local", "127.0.0.1")
    await order_stop(http, daemon.config, "bob@host")
    stopped = given(daemon)[-1]
    assert (stopped.command, stopped.origin.by, stopped.origin.client) == ("stop", "bob@host", "local")


async def test_the_ledger_says_who_removed_the_flow(daemon: Supervisor, tmp_path: Path) -> None:
    """A removed flow gives up its ledger, so the command is recorded before it takes effect."""
    path = tmp_path / "conf.toml"

    async def check(_: Config) -> None:
        return

    daemon._own_file = OwnFileReader(OwnFile.at(str(path)), check)  # pyright: ignore[reportPrivateUsage]
    path.write_text(conf_toml(msgspec.structs.replace(daemon.config, flows=(OTHER,))))
    digest = FileDigest(hashlib.sha256(path.read_bytes()).hexdigest(), "ada@host")
    changes = await order_apply(f"http://{daemon.config.http.listen}", daemon.config, digest, dry_run=False)
    assert [change.kind for change in changes.flows] == ["removed", "added"]
    (applied,) = given(daemon)
    assert (applied.command, applied.origin.by, applied.origin.client) == ("apply", "ada@host", "local")


async def test_a_draining_daemon_applies_nothing_and_says_so(daemon: Supervisor, tmp_path: Path) -> None:
    path, before = tmp_path / "conf.toml", daemon.config

    async def check(_: Config) -> None:
        return

    daemon._own_file = OwnFileReader(OwnFile.at(str(path)), check)  # pyright: ignore[reportPrivateUsage]
    path.write_text(conf_toml(msgspec.structs.replace(before, flows=(FLOW, OTHER))))
    await daemon.stop()
    with pytest.raises(EnvironmentFault, match="nothing was changed: this daemon is draining"):
        await daemon.reload(None, dry_run=False)
    assert daemon.config == before


async def test_the_ledger_says_who_replaced_the_daemon(daemon: Supervisor) -> None:
    call = HandoverCall(verb="begin", flow="eu-us", successor=Successor("http://new:8183\x1b", "0.2.0"), by="ada@host")
    await hand_over(f"http://{daemon.config.http.listen}", daemon.config, call, 5.0)
    await hand_over(f"http://{daemon.config.http.listen}", daemon.config, call, 5.0)
    (upgrade,) = given(daemon)
    assert (upgrade.command, upgrade.origin.client, upgrade.detail) == ("upgrade", "local", "http://new:8183?")
    assert upgrade.origin.by == "ada@host"


async def test_the_ledger_says_who_tried_more_than_the_token_permits(daemon: Supervisor) -> None:
    refused = RefusedCommand("stop", 'the token "see" has the role view; needed: configure', 7)
    with capture_logs() as logs:
        daemon.command_refused(refused, Giver("see", "10.0.0.7"))
        await eventually(lambda: bool(given(daemon)))
    (fact,) = given(daemon)
    assert (fact.command, fact.refused, fact.omitted) == ("stop", refused.reason, 7)
    assert (fact.origin.by, fact.origin.client, fact.origin.peer) == ("", "see", "10.0.0.7")
    assert "command_given" not in {each["event"] for each in logs}


async def test_nothing_new_is_written_while_older_replicators_read_the_ledger(daemon: Supervisor) -> None:
    daemon._succession = as_any(SimpleNamespace(over=False))  # pyright: ignore[reportPrivateUsage]
    daemon.command_refused(RefusedCommand("stop", "", 0), Giver("see", "10.0.0.7"))
    await daemon.ordered_stop("ada@host", Giver("local", "127.0.0.1"))
    assert given(daemon) == []


@pytest.mark.parametrize(
    "texts",
    [
        {"by": "root@prod\x1b[2J"},
        {"by": "x" * 301},
        {"reason": "x" * 501},
        {"reason": "a\nb"},
        {"name": "orders\r"},
        {"to": "x" * 301},
        {"flow": "eu\u202eus"},
    ],
)
async def test_the_daemon_itself_checks_the_texts_of_orders(daemon: Supervisor, texts: dict[str, str]) -> None:
    order = Order(**{"verb": "pause", "name": "eu-us", "by": "ada@host"} | texts)  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="one line of at most"):
        await give_order(f"http://{daemon.config.http.listen}", daemon.config, order, dry_run=False)
    engine = daemon._engine  # pyright: ignore[reportPrivateUsage]
    assert isinstance(engine, FakeEngine)
    assert not any(isinstance(fact, CopyingPaused) for entry in entries(engine) for fact in entry.facts)


async def test_an_order_is_recorded_with_its_client(daemon: Supervisor) -> None:
    order = Order(verb="pause", name="eu-us", by="root@elsewhere", reason="full")
    await give_order(f"http://{daemon.config.http.listen}", daemon.config, order, dry_run=False)
    engine = daemon._engine  # pyright: ignore[reportPrivateUsage]
    assert isinstance(engine, FakeEngine)
    (pause,) = (fact for entry in entries(engine) for fact in entry.facts if isinstance(fact, CopyingPaused))
    assert (pause.origin.by, pause.origin.client, pause.origin.peer) == ("root@elsewhere", "local", "127.0.0.1")
