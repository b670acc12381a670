"""What a changed configuration means for a running daemon, as a table."""

import msgspec
import pytest

from mirrord.config.changes import LIVE, ConfigChanges, compare
from mirrord.config.jobs import AuditConfig, SparkSettings
from mirrord.config.limits import LimitsConfig
from mirrord.config.schema import (
    ClusterConfig,
    Config,
    FlowConfig,
    LogsConfig,
    ReplicatorsConfig,
    RuntimeConfig,
)
from mirrord.config.security import Secret, Security

FLOW = FlowConfig(name="eu-us", source="eu", target="us", topics=("orders", "payments"))
OTHER = FlowConfig(name="asia-us", source="asia", target="us", topics=(".*",))
CLUSTERS = {alias: ClusterConfig((f"{alias}:9092",), Security()) for alias in ("eu", "us", "asia")}
CONFIG = Config(clusters=CLUSTERS, flows=(FLOW,))


def changed(**values: object) -> ConfigChanges:
    flow = msgspec.structs.replace(FLOW, **values)
    return compare(CONFIG, msgspec.structs.replace(CONFIG, flows=(flow,)))


def test_nothing_changes() -> None:
    assert compare(CONFIG, CONFIG) == ConfigChanges()


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"topics": ("orders", "refunds")}, "topics: - payments, + refunds"),
        ({"exclude": (".*tmp",)}, "exclude: + .*tmp"),
        ({"topics": ("payments", "orders")}, "topics: a different order"),
        ({"refresh_ms": 1000}, "refresh_ms: 5000 -> 1000"),
        ({"groups": msgspec.structs.replace(FLOW.groups, mode="off")}, "groups.mode: follow -> off"),
        ({"sync": msgspec.structs.replace(FLOW.sync, acls="off")}, "sync.acls: null -> off"),
        ({"refresh_ms": None}, "refresh_ms: 5000 -> null"),
    ],
)
def test_what_changes_while_lanes_continue(values: dict[str, object], line: str) -> None:
    found = changed(**values)
    (change,) = found.flows
    assert (change.kind, change.lines, change.restarts, found.refused) == ("changed", (line,), False, ())


@pytest.mark.parametrize(
    "values",
    [
        {"limits": LimitsConfig(in_flight_bytes=1 << 20)},
        {"naming": "identity"},
        {"isolation": "read_uncommitted"},
        {"start": "latest"},
        {"separator": "_"},
        {"on_loss": "halt"},
        {"on_reject": "skip"},
        {"transaction_alarm_ms": 600_000},
        {"topics": ("orders",), "limits": LimitsConfig(in_flight_bytes=1 << 20)},
    ],
)
def test_what_lanes_work_by_drains_the_lanes_of_that_flow(values: dict[str, object]) -> None:
    (change,) = changed(**values).flows
    assert change.restarts


def test_the_number_of_replicators_changes_for_all_flows() -> None:
    replicators = ReplicatorsConfig(count=3, alone=("orders-0",))
    found = compare(CONFIG, msgspec.structs.replace(CONFIG, replicators=replicators))
    assert found == ConfigChanges(replicators=("replicators.count: auto -> 3", "replicators.alone: + orders-0"))


def test_every_field_of_a_flow_is_known_to_be_one_or_the_other() -> None:
    lanes_work_by = {"name", "source", "target", "naming", "naming_settings", "separator", "start", "isolation"}
    lanes_work_by |= {"limits", "start_of", "from_mm2", "on_loss", "on_reject", "records", "transaction_alarm_ms"}
    lanes_work_by |= {"archive", "on_unknown_copies"}
    assert LIVE | lanes_work_by == set(FlowConfig.__struct_fields__)
    assert not LIVE & lanes_work_by


def test_flows_come_and_go() -> None:
    both = msgspec.structs.replace(CONFIG, flows=(FLOW, OTHER))
    (added,) = compare(CONFIG, both).flows
    assert (added.flow, added.kind, added.lines) == ("asia-us", "added", ("asia -> us",))
    (removed,) = compare(both, CONFIG).flows
    assert (removed.flow, removed.kind) == ("asia-us", "removed")


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"instance": "another"}, "instance: it is read only when a daemon starts"),
        ({"runtime": RuntimeConfig(lease_ttl_ms=9_000)}, "runtime:"),
        ({"logs": LogsConfig(directory="elsewhere")}, "logs:"),
        (
            {"clusters": CLUSTERS | {"us": ClusterConfig(("elsewhere:9092",), Security(password=Secret("env:A")))}},
            "clusters.us: how a cluster is reached",
        ),
        ({"flows": (msgspec.structs.replace(FLOW, target="asia"),)}, "flow eu-us: from and to"),
    ],
)
def test_what_only_a_restart_takes(values: dict[str, object], part: str) -> None:
    (line,) = compare(CONFIG, msgspec.structs.replace(CONFIG, **values)).refused
    assert line.startswith(part)


def test_a_cluster_may_be_added() -> None:
    old = msgspec.structs.replace(CONFIG, clusters={alias: CLUSTERS[alias] for alias in ("eu", "us")})
    assert compare(old, msgspec.structs.replace(CONFIG, flows=(FLOW, OTHER))).refused == ()
    assert compare(old, CONFIG) == ConfigChanges()


def test_values_of_secret_names_are_not_shown() -> None:
    old = msgspec.structs.replace(CONFIG, audit=AuditConfig(spark={"spark.master": "local[1]"}))
    spark: SparkSettings = {
        "spark.hadoop.fs.s3a.secret.key": "AKIA",
        "spark.hadoop.fs.s3a.access.key": "AK",
        "spark.master": "yarn",
    }
    lines = compare(old, msgspec.structs.replace(old, audit=AuditConfig(spark=spark))).jobs
    assert "AK" not in "\n".join(lines)
    assert "audit.spark.spark.hadoop.fs.s3a.secret.key: a different value" in lines
    assert "audit.spark.spark.master: local[1] -> yarn" in lines
