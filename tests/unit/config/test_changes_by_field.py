"""What a configuration that arrives over HTTP can change, field by field, alone and in two steps."""

from collections.abc import Iterator

import msgspec
import pytest

from mirrord.config.changes import compare, from_order
from mirrord.config.flow_features import RecordsConfig, SyncConfig
from mirrord.config.jobs import AuditConfig, CompactConfig
from mirrord.config.loader import load_file
from mirrord.config.schema import ClusterConfig, Config, FlowConfig, HttpConfig, LogsConfig, RayConfig
from mirrord.config.security import Secret, Security
from mirrord.config.value_parsers import HostPort
from tests.unit.config.test_samples import CONF

SECURITY = Security(
    protocol="SASL_SSL",
    mechanism="SCRAM-SHA-512",
    username="mirrord",
    password=Secret("env:PASSWORD"),
    ca=Secret("file:/ca.pem"),
)
FLOW = FlowConfig(
    name="eu-us",
    source="eu",
    target="us",
    topics=("orders",),
    select="shop.names:Select",
    select_settings={"path": "a"},
    naming="shop.names:Naming",
    naming_settings={"path": "a"},
    sync=SyncConfig(filter_configs="shop.names:Settings", filter_settings={"path": "a"}),
    records=RecordsConfig(
        filter="shop.names:Filter", filter_settings={"path": "a"}, transform="shop.names:T", transform_settings={"p": 1}
    ),
    archive="/srv/maps",
)
CONFIG = Config(
    clusters={alias: ClusterConfig((f"{alias}:9092",), SECURITY) for alias in ("eu", "us", "spare")},
    flows=(FLOW,),
    elsewhere=(msgspec.structs.replace(FLOW, name="other", source="us", target="eu"),),
    ray=RayConfig(dashboard_port=8265),
    http=HttpConfig(HostPort("127.0.0.1", 1), HostPort("a", 1), Secret("file:/token")),
    logs=LogsConfig("/var/log/mirrord"),
    audit=AuditConfig(every_ms=60_000, out="/srv/audits", spark={"spark.master": "local[1]"}),
    compact=CompactConfig(path="/srv/maps", every_ms=60_000, spark={"spark.master": "local[1]"}),
)
FREE = {
    "name", "topics", "exclude", "separator", "start", "start_of", "isolation", "on_loss", "on_reject", "rpo_ms",
    "transaction_alarm_ms", "refresh_ms", "replication_factor", "on_deleted_copy", "on_recreated", "on_unknown_copies",
    "propagate_deletes", "delete_grace_ms", "groups", "heartbeats", "mm2_records", "from_mm2", "limits",
    "sync.configs", "sync.exclude_configs", "sync.use_defaults_from", "sync.acls", "sync.every_ms",
    "records.topics", "records.on_error",
}  # fmt: skip
"""Parts of a flow that a request may change: none names an address, a file, a class or a folder."""
FREE_FOR_ALL = {
    "replicators", "audit.every_ms", "audit.level", "audit.topics", "audit.since_ms", "audit.sample", "audit.again",
    "audit.rate_bytes_per_s", "compact.every_ms", "compact.topics", "compact.least",
}  # fmt: skip


def alterations(path: str, value: object) -> Iterator[tuple[str, object]]:
    """The value with one leaf altered, and the path of that leaf."""
    match value:
        case Secret():
            yield path, Secret("file:/etc/shadow")
        case HostPort():
            yield path, HostPort("evil", 666)
        case msgspec.Struct():
            for name in value.__struct_fields__:
                for where, other in alterations(f"{path}.{name}".lstrip("."), getattr(value, name)):
                    yield where, msgspec.structs.replace(value, **{name: other})
        case dict() | tuple():
            yield from in_collection(path, value)
        case bool():
            yield path, not value
        case int() | float():
            yield path, value + 1
        case _:
            yield path, "evil"
            yield path, "../../evil"


def in_collection(path: str, value: dict[str, object] | tuple[object, ...]) -> Iterator[tuple[str, object]]:
    if isinstance(value, dict):
        yield path, {**value, "evil": next(iter(value.values()), "earliest")}
        for key, item in value.items():
            for where, other in alterations(f"{path}.{key}", item):
                yield where, {**value, key: other}
        return
    if not any(isinstance(item, msgspec.Struct) for item in value):
        yield path, (*value, "evil")
    for number, item in enumerate(value):
        for where, other in alterations(path, item):
            yield where, (*value[:number], other, *value[number + 1 :])


def is_free(path: str) -> bool:
    inner = path.removeprefix("flows.").removeprefix("elsewhere.")
    free = FREE if inner != path else FREE_FOR_ALL
    return any(inner == each or inner.startswith(f"{each}.") for each in free)


def taken(old: Config, new: Config) -> Config:
    """The resulting configuration, as the supervisor computes it."""
    return old if compare(old, new, own_file=False).refused else from_order(old, new)


def guarded(config: Config) -> dict[str, object]:
    """What no request may change, as texts."""
    free = {name.partition(".")[0] for name in FREE} - {"sync", "records"}
    flows = [
        {name: getattr(flow, name) for name in flow.__struct_fields__ if name not in free}
        | {"sync": (flow.sync.filter_configs, flow.sync.filter_settings)}
        | {"records": msgspec.structs.replace(flow.records, topics=(), on_error="halt")}
        for flow in config.all_flows
    ]
    found = {name: getattr(config, name) for name in ("clusters", "instance", "runtime", "ray", "http", "logs")}
    jobs = (config.audit.out, config.audit.spark, config.compact.path, config.compact.spark)
    return found | {"flows": flows, "jobs": jobs}


CASES = [
    pytest.param(path, altered, id=f"{path}-{number}")
    for number, (path, altered) in enumerate(alterations("", CONFIG))
    if isinstance(altered, Config)
]


@pytest.mark.parametrize(("path", "altered"), CASES)
def test_each_field_alone_and_in_two_steps(path: str, altered: Config) -> None:
    refused = compare(CONFIG, altered, own_file=False).refused
    assert is_free(path) or refused
    assert guarded(taken(CONFIG, altered)) == guarded(CONFIG)
    # First without the flows that use it, then with them again.
    for first in (msgspec.structs.replace(altered, flows=(), elsewhere=()), msgspec.structs.replace(altered, flows=())):
        between = taken(CONFIG, first)
        for second in (altered, msgspec.structs.replace(altered, clusters=between.clusters)):
            after = taken(between, second)
            assert guarded(after) | {"flows": None} == guarded(CONFIG) | {"flows": None}
            assert [flow.archive for flow in after.all_flows] == ["/srv/maps"] * len(after.all_flows)


def test_every_free_part_is_a_part() -> None:
    paths = {path for path, _ in alterations("", CONFIG)}
    assert [part for part in FREE if not any(f"flows.{part}" in path for path in paths)] == []
    assert [part for part in FREE_FOR_ALL if not any(path.startswith(part) for path in paths)] == []


def test_a_cluster_that_no_flow_uses_is_refused_too() -> None:
    thief = ClusterConfig(("attacker:9092",), Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN"))
    loot = msgspec.structs.replace(CONFIG, clusters={**CONFIG.clusters, "loot": thief})
    (line,) = compare(CONFIG, loot, own_file=False).refused
    assert line == "clusters.loot: a new cluster is taken only from the daemon's own file (SIGHUP)"
    swapped = msgspec.structs.replace(CONFIG, clusters={**CONFIG.clusters, "eu": thief}, flows=(), elsewhere=())
    (line,) = compare(CONFIG, swapped, own_file=False).refused
    assert line.startswith("clusters.eu: how a cluster is reached")


def test_a_configuration_that_names_no_clusters_is_judged_by_the_daemons() -> None:
    assert compare(CONFIG, msgspec.structs.replace(CONFIG, clusters={}), own_file=False).refused == ()
    strange = msgspec.structs.replace(FLOW, name="strange", source="nowhere")
    (line,) = compare(
        CONFIG, msgspec.structs.replace(CONFIG, flows=(FLOW, strange), clusters={}), own_file=False
    ).refused[:1]
    assert line.startswith("clusters.nowhere: a new cluster")


@pytest.mark.parametrize(
    ("values", "part"),
    [
        ({"name": "../../../../tmp/flow"}, "name"),
        ({"topics": ("(",)}, "topics"),
        ({"topics": ()}, "topics"),
        ({"rpo_ms": -1}, "rpo"),
    ],
)
def test_the_rules_of_a_file_hold(values: dict[str, object], part: str) -> None:
    plain = Config(clusters=CONFIG.clusters, flows=(FlowConfig(name="eu-us", source="eu", target="us", topics=("o",)),))
    new = msgspec.structs.replace(plain, flows=(msgspec.structs.replace(plain.flows[0], **values),))
    refused = compare(plain, new, own_file=False).refused
    assert part in "\n".join(refused)


@pytest.mark.parametrize("path", [*CONF.glob("*.toml"), *CONF.glob("*.properties")], ids=lambda path: path.name)
def test_every_sample_may_be_sent(path: object) -> None:
    """The rules refuse no configuration that a file can express, files of MirrorMaker 2 included."""
    config = load_file(str(path)).config
    assert compare(config, config, own_file=False).refused == ()


def test_values_of_secret_names_are_not_shown() -> None:
    spark = {"spark.hadoop.fs.s3a.secret.key": "AKIA", "spark.hadoop.fs.s3a.access.key": "AK", "spark.master": "yarn"}
    new = msgspec.structs.replace(CONFIG, audit=msgspec.structs.replace(CONFIG.audit, spark=spark))
    lines = compare(CONFIG, new, own_file=True).jobs
    assert "AK" not in "\n".join(lines)
    assert "audit.spark.spark.hadoop.fs.s3a.secret.key: a different value" in lines
    assert "audit.spark.spark.master: local[1] -> yarn" in lines
