"""conf.toml: what a valid file means."""

import json
from pathlib import Path

import msgspec
import pytest

from mirrord.config.cross_checks import literal_prefix
from mirrord.config.flow_features import GroupsConfig, HeartbeatsConfig, Mm2RecordsConfig, SyncConfig
from mirrord.config.loader import load, load_text
from mirrord.config.schema import Config
from mirrord.config.security import Secret, Security
from mirrord.config.value_parsers import HostPort
from mirrord.model.errors import ConfigError

SMALL = """
[clusters.eu]
bootstrap = "127.0.0.1:19092"
[clusters.us]
bootstrap = "us1:9093, us2:9093"
[[flows]]
from = "eu"
to = "us"
topics = ["orders", 'payments\\..*']
"""

WHOLE = """
instance = "blue"
[clusters.eu]
bootstrap = "127.0.0.1:19092"
[clusters.us]
bootstrap = "us1:9093"
[clusters.us.security]
protocol = "SASL_SSL"
mechanism = "SCRAM-SHA-512"
username = "mirrord"
password = "env:PW"
ca = "file:ca.pem"
[[flows]]
name = "night"
from = "eu"
to = "us"
topics = [".*"]
exclude = ['.*\\.tmp']
naming = "dr-{topic}"
separator = "__"
start = 2026-01-31T12:00:00Z
isolation = "read_uncommitted"
refresh = "1m"
replication_factor = 3
propagate_deletes = true
groups = { match = ["app.*"], exclude = [], mode = "forward-only", every = "2s", refresh = "never", reverse = true }
heartbeats = { emit = "both", every = "5s", replicate = false, replication_factor = 1 }
limits = { in_flight_bytes = "8MiB", map_bytes = "100 MB" }
[flows.sync]
configs = false
exclude_configs = ['retention\\..*']
use_defaults_from = "source"
acls = "exact"
every = "1m"
[flows.mm2_records]
checkpoints = false
checkpoints_every = "1m"
checkpoints_replication_factor = 3
offset_syncs = "source"
offset_syncs_replication_factor = 2
offset_lag_max = 0
separator = "-"
[replicators]
count = 4
partitions_per_replicator = 1
[runtime]
engine = "process"
lease_ttl = "10s"
request_timeout = "1500ms"
[ray]
address = "10.0.0.1:6379"
dashboard = false
dashboard_port = 8266
[http]
listen = "127.0.0.1:8190"
advertised = "mirror.example.org:443"
token = "env:TOKEN"
[logs]
dir = "/var/log/mirrord"
"""


def test_the_defaults() -> None:
    config = load_text(SMALL, "conf.toml")
    assert config.instance == "mirrord"
    assert config.clusters["us"].bootstrap == ("us1:9093", "us2:9093")
    assert config.clusters["us"].security.protocol == "PLAINTEXT"
    (flow,) = config.flows
    assert (flow.name, flow.source, flow.target) == ("eu-us", "eu", "us")
    assert flow.topics == ("orders", r"payments\..*")
    assert (flow.naming, flow.start, flow.isolation) == ("prefix", "earliest", "read_committed")
    assert (flow.refresh_ms, flow.replication_factor, flow.limits.in_flight_bytes) == (5_000, "broker", 64 << 20)
    assert flow.limits.map_bytes == 64 << 20
    assert config.replicators.count == "auto"
    assert (config.runtime.engine, config.runtime.lease_ttl_ms, config.runtime.request_timeout_ms) == (
        "ray",
        6_000,
        8_000,
    )
    assert (config.ray.address, config.ray.dashboard, config.ray.dashboard_port) == ("local", True, None)
    assert (config.http.listen, config.http.token, config.logs.directory) == (None, None, None)


@pytest.mark.parametrize(("lease", "timeout"), [("1s", "5m"), ("5m", "1s"), ("60s", "2s"), ("6s", "8s")])
def test_lease_and_request_timeout_do_not_depend_on_each_other(lease: str, timeout: str) -> None:
    """The lease is renewed with a deadline of the ledger's own, and barriers use the times that are recorded."""
    load_text(f'{SMALL}\n[runtime]\nlease_ttl = "{lease}"\nrequest_timeout = "{timeout}"\n', "conf.toml")


def test_every_key_is_read() -> None:
    config = load_text(WHOLE, "conf.toml")
    assert config.instance == "blue"
    assert config.clusters["us"].security == Security(
        protocol="SASL_SSL",
        mechanism="SCRAM-SHA-512",
        username="mirrord",
        password=Secret.parse("env:PW"),
        ca=Secret.parse("file:ca.pem"),
    )
    (flow,) = config.flows
    assert (flow.name, flow.exclude, flow.naming, flow.separator) == ("night", (r".*\.tmp",), "dr-{topic}", "__")
    assert flow.propagate_deletes
    assert flow.groups == GroupsConfig(("app.*",), (), "forward-only", 2_000, None, True)
    assert flow.sync == SyncConfig(False, (r"retention\..*",), "source", "exact", 60_000)
    assert flow.heartbeats == HeartbeatsConfig("both", 5_000, False, 1)
    assert flow.mm2_records == Mm2RecordsConfig(False, 60_000, 3, "source", 2, 0, "-")
    assert (flow.start, flow.isolation) == (1_769_860_800_000, "read_uncommitted")
    assert (flow.refresh_ms, flow.replication_factor, flow.limits.in_flight_bytes) == (60_000, 3, 8 << 20)
    assert flow.limits.map_bytes == 100_000_000
    assert (config.replicators.count, config.replicators.partitions_per_replicator) == (4, 1)
    assert (config.runtime.engine, config.runtime.lease_ttl_ms, config.runtime.request_timeout_ms) == (
        "process",
        10_000,
        1_500,
    )
    assert (config.ray.address, config.ray.dashboard, config.ray.dashboard_port) == ("10.0.0.1:6379", False, 8266)
    assert (config.http.listen, config.http.token) == (HostPort("127.0.0.1", 8190), Secret.parse("env:TOKEN"))
    assert config.http.advertised == HostPort("mirror.example.org", 443)
    assert config.logs.directory == "/var/log/mirrord"


def test_relative_paths_begin_at_the_folder_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "conf.toml").write_text(
        """
        [clusters.eu]
        bootstrap = "eu:1"
        [clusters.eu.security]
        protocol = "SASL_SSL"
        mechanism = "PLAIN"
        username = "mirrord"
        password = "file:../secrets/password"
        truststore = "trust.jks"
        truststore_password = "properties:kafka.properties#pw"
        [clusters.us]
        bootstrap = "us:1"
        security = { protocol = "SSL", ca = "file:/etc/ca.pem" }
        [[flows]]
        from = "eu"
        to = "us"
        topics = ["a"]
        [http]
        token = "env:TOKEN"
        [logs]
        dir = "logs"
        """
    )
    monkeypatch.chdir(tmp_path)
    config = load("conf/conf.toml")
    monkeypatch.chdir("/")
    folder, security = tmp_path / "conf", config.clusters["eu"].security
    assert security.password == Secret.parse(f"file:{folder}/../secrets/password")
    assert security.truststore == f"{folder}/trust.jks"
    assert security.truststore_password == Secret.parse(f"properties:{folder}/kafka.properties#pw")
    assert config.clusters["us"].security.ca == Secret.parse("file:/etc/ca.pem")
    assert (config.http.token, config.logs.directory) == (Secret.parse("env:TOKEN"), f"{folder}/logs")
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "password").write_text("hunter2")
    assert security.password is not None
    assert security.password.resolve() == "hunter2"


def test_a_printed_configuration_shows_no_secret() -> None:
    config = load_text(WHOLE, "conf.toml")
    described = config.describe()
    assert json.loads(json.dumps(described)) == described
    shown = json.dumps(described) + repr(config) + str(config)
    assert "env:PW" not in shown
    assert "env:TOKEN" not in shown
    assert '"password": "***"' in json.dumps(described)


def test_it_survives_the_way_to_another_process() -> None:
    config = load_text(WHOLE, "conf.toml")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=Config) == config


def test_a_flow_is_found_by_name() -> None:
    config = load_text(SMALL, "conf.toml")
    assert config.flow("eu-us") is config.flows[0]
    with pytest.raises(ConfigError, match=r'no flow "eu-uss".*Did you mean "eu-us"'):
        config.flow("eu-uss")


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file"):
        load(tmp_path / "none.toml")
    with pytest.raises(ConfigError, match="cannot be read"):
        load(tmp_path)
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        load(tmp_path / "binary.toml")


@pytest.mark.parametrize(
    ("pattern", "prefix"),
    [
        ("orders", "orders"),
        (r"payments\..*", "payments."),
        ("orders?", "order"),
        ("orders+", "orders"),
        ("a|b", ""),
        (".*", ""),
        ("(?i)orders", ""),
        (r"a\d", "a"),
        ("ab{0}", "a"),
        (r"x\.*", "x"),
    ],
)
def test_what_every_match_begins_with(pattern: str, prefix: str) -> None:
    assert literal_prefix(pattern) == prefix
