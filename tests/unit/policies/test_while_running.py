"""Third-party policies while a flow runs: misbehaviour is reported for its topic and stops no other topic."""

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from mirrord.config.changes import compare
from mirrord.config.flow_features import SyncConfig
from mirrord.config.loader import load
from mirrord.config.schema import ClusterConfig, Config, FlowConfig
from mirrord.config.security import Security
from mirrord.daemon.daemon import Supervisor
from mirrord.kafka.protocol.configs import Setting
from mirrord.ledger.store.memory_log import MemoryLedger
from mirrord.model.acls import AclRule
from mirrord.model.errors import EnvironmentFault, PolicyFault
from mirrord.model.names import ClusterId
from mirrord.supervision.upkeep import Upkeep
from mirrord.topics.discovery import Discovery
from mirrord.topics.rules.acls import plan_acls
from mirrord.topics.rules.hazards import topic_hazards
from mirrord.topics.rules.topic_configs import plan_settings
from mirrord.topics.rules.topic_list import topic_lines
from mirrord.topics.topic_claims import Claims
from policies import flow_policies
from policies.acls import TopicNames, acl_policy
from policies.contracts import NamingPolicy, PropertyPolicy, SelectionPolicy
from policies.flow_policies import naming_of, properties_of, selection_of
from policies.policy_trial import LOADING
from tests.fixtures.clock import FakeClock
from tests.fixtures.sample_policies import BROKEN, Filter, SuffixNaming, Without
from tests.fixtures.supervision import FakeAdmin, FakeCluster, FakeEngine, FakeUpkeep

ROOT = Path(__file__).parents[3]
SAMPLE = "tests.fixtures.sample_policies"
FLOW = FlowConfig(
    name="eu-us",
    source="eu",
    target="us",
    topics=("orders.*", "us.*"),
    naming=f"{SAMPLE}:SuffixNamingWithHops",
    select=f"{SAMPLE}:Without",
    sync=SyncConfig(filter_configs=f"{SAMPLE}:Filter"),
)


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(flow_policies, "_made", {})
    yield
    BROKEN.clear()


def discovery(source: FakeCluster, target: FakeCluster, flow: FlowConfig = FLOW) -> Discovery:
    return Discovery(flow, FakeAdmin(source), FakeAdmin(target), Claims())


def clusters(*topics: str) -> tuple[FakeCluster, FakeCluster]:
    source, target = FakeCluster(ClusterId("eu-id")), FakeCluster(ClusterId("us-id"))
    for topic in topics:
        source.add(topic, 1)
    return source, target


# For the type checker: a plain class satisfies the contract.
NAMING: type[NamingPolicy] = SuffixNaming
SELECTION: type[SelectionPolicy] = Without
PROPERTIES: type[PropertyPolicy] = Filter


async def test_names_and_selection_are_those_of_the_policies() -> None:
    source, target = clusters("orders", "orders.draft", "payments", "orders-us", "__consumer_offsets")
    discovered = await discovery(source, target).refresh()
    assert list(target.topics) == ["orders-eu"]
    assert discovered.faults == {}
    found = discovery(source, target)
    plan = (await found.preview()).plan
    lines = topic_lines(source.topics.values(), plan, found.selection, "us")
    assert {line.source: line.state for line in lines} == {
        "__consumer_offsets": "internal",
        "orders": "copied",
        "orders-us": "cycle",
        "orders.draft": "left-out",
        "payments": "not-included",
    }
    assert lines[3].why == f'select "{SAMPLE}:Without": a draft'


async def test_a_topic_without_a_name_is_reported_and_the_others_are_copied() -> None:
    source, target = clusters("orders", "orders.bad")
    BROKEN.add("orders.bad")
    flow = msgspec.structs.replace(FLOW, select="")
    found = discovery(source, target, flow)
    discovered = await found.refresh()
    assert list(target.topics) == ["orders-eu"]
    line = f'naming "{flow.naming}": target_topic("orders.bad") raised LookupError: no name for orders.bad'
    assert discovered.faults == {"orders.bad": line}
    plan = (await found.preview()).plan
    assert (plan.faults, plan.unanswered) == ({}, {"orders.bad": line}), "a start is not refused for it"
    lines = topic_lines(source.topics.values(), plan, found.selection, "us")
    assert [(each.source, each.target, each.state) for each in lines] == [
        ("orders", "orders-eu", "copied"),
        ("orders.bad", "", "fault"),
    ]
    (finding,) = topic_hazards(flow, lines, target.topics, ("eu", "us"))
    assert (finding.severity, finding.what, finding.do) == ("error", line, "exclude it, or fix the policy")
    upkeep = Upkeep(flow, FakeUpkeep(source), FakeUpkeep(target), FakeClock())
    (status,) = upkeep.topics(discovered)
    assert (status.topic, status.target_topic, status.faults) == ("orders.bad", "", (line,))
    BROKEN.clear()
    assert (await found.refresh()).faults == {}
    assert list(target.topics) == ["orders-eu", "orders.bad-eu"]


async def test_a_topic_that_the_selection_cannot_judge() -> None:
    source, target = clusters("orders", "orders.bad")
    found = discovery(source, target)
    BROKEN.add("orders.bad")
    discovered = await found.refresh()
    assert list(target.topics) == ["orders-eu"]
    assert "nothing is known of orders.bad" in discovered.faults["orders.bad"]
    lines = topic_lines(source.topics.values(), (await found.preview()).plan, found.selection, "us")
    assert [(line.source, line.state) for line in lines] == [("orders", "copied"), ("orders.bad", "fault")]
    assert selection_of(FLOW).copy_of("orders.bad") is None
    with pytest.raises(PolicyFault, match="nothing is known"):
        selection_of(FLOW).selects("orders.bad")


async def test_an_answer_that_was_taken_stays() -> None:
    source, target = clusters("orders")
    found = discovery(source, target)
    lanes = (await found.refresh()).lanes
    BROKEN.add("orders")
    assert (await found.refresh()).lanes == lanes
    assert selection_of(FLOW).copy_of("orders") == "orders-eu"


def test_heartbeats_keep_their_names_under_every_naming() -> None:
    names = naming_of(FLOW)
    assert names.target_topic("heartbeats") == "eu.heartbeats"
    assert names.source_topic("eu.heartbeats") == "heartbeats"
    assert names.hops("us.eu.heartbeats") == ("us", "eu")
    assert (names.source_topic("orders-eu"), names.source_topic("orders")) == ("orders", None)


def test_what_a_naming_may_leave_out() -> None:
    names = naming_of(msgspec.structs.replace(FLOW, naming=f"{SAMPLE}:SuffixNaming"))
    assert (names.hops("orders-us"), names.target_prefix("orders")) == ((), None)
    names = naming_of(msgspec.structs.replace(FLOW, naming=f"{SAMPLE}:PrefixedNaming"))
    assert names.target_prefix("ord") == "copy-ord"
    assert names.target_topic("orders") == "copy-orders"
    with pytest.raises(PolicyFault, match="orders is copied to copy-orders"):
        names.target_prefix("wrong")


def test_no_right_is_taken_away_while_a_name_is_not_known() -> None:
    names = naming_of(msgspec.structs.replace(FLOW, naming=f"{SAMPLE}:SuffixNaming"))
    topics = TopicNames(lambda _: True, lambda _: True, names.target_topic, names.target_prefix)
    rights = [AclRule("TOPIC", "LITERAL", name, "User:a", "*", "READ", "ALLOW") for name in ("orders", "orders.bad")]
    gone = AclRule("TOPIC", "LITERAL", "orders.bad-eu", "User:a", "*", "READ", "ALLOW")
    BROKEN.add("orders.bad")
    ours = frozenset({gone})
    plan = plan_acls(rights, ours, ours, acl_policy("exact"), topics, ["orders-eu"])
    assert [rule.name for rule in plan.add] == ["orders-eu"]
    assert plan.remove == ()
    ((rule, why),) = plan.uncopyable
    assert rule.name == "orders.bad"
    assert "no name for orders.bad" in why


def test_settings_that_a_policy_leaves_alone() -> None:
    rule = properties_of(FLOW)
    own = {name: Setting("5", own=True) for name in ("retention.ms", "max.message.bytes", "min.insync.replicas")}
    BROKEN.add("max.message.bytes")
    there = {name: Setting("1", own=False) for name in (*own, "segment.bytes", "flush.ms")}
    source = {**own, **{name: Setting("7", own=False) for name in ("segment.bytes", "flush.ms")}}
    assert [change.name for change in plan_settings(source, there, rule).changes] == ["segment.bytes"]
    (line,) = rule.faults
    assert line.endswith("raised LookupError: what is max.message.bytes?; the setting is left alone")
    BROKEN.clear()
    changed = [change.name for change in plan_settings(source, there, rule).changes]
    assert (changed, rule.faults) == (["max.message.bytes", "segment.bytes"], ())


def test_the_file_of_a_daemon_may_bring_code() -> None:
    cluster = ClusterConfig(("127.0.0.1:1",), Security())
    plain = msgspec.structs.replace(FLOW, naming="prefix", select="", sync=SyncConfig())
    old = Config(clusters={"eu": cluster, "us": cluster}, flows=(plain,))
    new = msgspec.structs.replace(old, flows=(FLOW,))
    (change,) = compare(old, new).flows
    assert change.restarts
    other = msgspec.structs.replace(FLOW, select_settings={"endings": ("x",)})
    found = compare(new, msgspec.structs.replace(new, flows=(other,))).flows
    assert (found[0].restarts, found[0].lines) == (False, ('select_settings.endings: null -> ["x"]',))


async def test_a_daemon_that_cannot_use_a_policy_neither_starts_nor_takes_it() -> None:
    cluster = ClusterConfig(("127.0.0.1:1",), Security())
    flow = msgspec.structs.replace(FLOW, naming="no_such_module:Naming")
    config = Config(clusters={"eu": cluster, "us": cluster}, flows=(flow,))
    line = 'flow eu-us: naming: found "no_such_module:Naming"; there is no module no_such_module'
    with pytest.raises(EnvironmentFault, match=line):
        await Supervisor(config, FakeEngine(MemoryLedger())).start()
    sound = Supervisor(msgspec.structs.replace(config, flows=(FLOW,)), FakeEngine(MemoryLedger()))
    (refused,) = (await sound.apply(config, dry_run=False)).refused
    assert refused.startswith(line)
    assert sound.config.flows == (FLOW,)


def test_the_page_and_the_sample_belong_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (ROOT / "docs" / "reference" / "policies.md").read_text()
    blocks = [block.partition("```")[0] for block in page.split("```python\n")[1:]]
    (tmp_path / "team_policies.py").write_text("\n\n".join(blocks))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert len(blocks[0].splitlines()) <= 15
    (flow,) = load(ROOT / "conf" / "policies.toml", LOADING).flows
    assert naming_of(flow).target_topic("orders") == "billing.eu.orders"
    assert naming_of(flow).hops("billing.eu.orders") == ("eu",)
    selection = selection_of(flow)
    assert (selection.copy_of("orders"), selection.refusal("orders-draft")) == ("billing.eu.orders", "left-out")
    assert not properties_of(flow).passes("retention.ms")
