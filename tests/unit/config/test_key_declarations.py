"""The declarations of the keys of conf.toml: the reader, the writer and the reference follow them."""

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import pytest

from mirrord.config import reference_page
from mirrord.config.key_declarations import DeclaredKey, keys_of, tables_of
from mirrord.config.loader import load_text
from mirrord.config.schema import ClusterConfig, Config, FlowConfig
from mirrord.config.value_kinds import REQUIRED
from mirrord.config.writer import conf_toml
from mirrord.model.errors import ConfigError

REFERENCE = Path(__file__).parents[3] / "docs" / "reference" / "configuration.md"
NOT_IN_THE_FILE = {("Config", "elsewhere"), ("FlowConfig", "archive"), ("ClusterConfig", "ledger")}
COLLECTIONS = {("Config", "clusters"), ("Config", "flows")}
"""Tables that occur several times. The loader reads them itself."""

REST = """
[clusters.eu]
bootstrap = "eu1:9092"
[clusters.us]
bootstrap = "us1:9092"
[[flows]]
from = "eu"
to = "us"
topics = ["orders"]
"""
BEARER = {"protocol": '"SASL_SSL"', "mechanism": '"OAUTHBEARER"', "password": '"env:X"'}
"""`security` of a cluster for which every key with a default has a meaning."""

ALL = r"""
instance = "blue"
[clusters.eu]
bootstrap = "eu1:9092,eu2:9092"
[clusters.eu.security]
protocol = "SASL_SSL"
mechanism = "OAUTHBEARER"
username = "mirrord"
password = "env:PASSWORD"
token_url = "https://login.example.com/token"
token_ca = "file:login-ca.pem"
tls_min = "1.3"
scope = "kafka"
ca = "file:ca.pem"
certificate = "file:client.pem"
key = "file:client.key"
key_password = "env:KEY_PASSWORD"
check_hostname = false
[clusters.us]
bootstrap = "us1:9093"
[clusters.us.security]
protocol = "SSL"
truststore = "trust.jks"
truststore_password = "env:TRUST_PASSWORD"
keystore = "store.p12"
keystore_password = "env:STORE_PASSWORD"
ciphers = ["ECDHE-RSA-AES256-GCM-SHA384"]
[clusters.asia]
bootstrap = "asia1:9094"
[clusters.asia.security]
protocol = "SASL_PLAINTEXT"
mechanism = "OAUTHBEARER"
username = "mirrord"
unsigned = true
[[flows]]
name = "night"
from = "eu"
to = "us"
topics = ["orders", 'logs\..*']
exclude = ['.*\.tmp']
select = "team:NoDrafts"
select_settings = { endings = ["-draft", ".tmp"], limit = 3 }
naming = "team:Naming"
naming_settings = { team = "billing" }
separator = "__"
start = 2026-01-31T12:00:00Z
start_of = { 'logs\..*' = "latest", orders = 5 }
isolation = "read_uncommitted"
on_loss = "halt"
on_reject = "skip"
rpo = "30s"
transaction_alarm = "2m"
refresh = "never"
replication_factor = "source"
on_deleted_copy = "halt"
on_recreated = "fresh"
on_unknown_copies = "begin"
propagate_deletes = true
delete_grace = "1500ms"
[flows.groups]
match = ["app.*"]
exclude = []
mode = "forward-only"
every = "2s"
refresh = "1m"
reverse = true
[flows.records]
topics = ["orders"]
filter = "keys"
filter_settings = { exclude = "test-.*" }
transform = "headers"
transform_settings = { mask = ["user"] }
on_error = "reject"
[flows.sync]
configs = false
exclude_configs = ['retention\..*']
use_defaults_from = "source"
acls = "exact"
every = "1m"
filter_configs = "team:LeaveRetention"
filter_settings = { strict = true, share = 0.5 }
[flows.heartbeats]
emit = "both"
every = "5s"
replicate = false
replication_factor = 1
[flows.mm2_records]
checkpoints = false
checkpoints_every = "1m"
checkpoints_replication_factor = 3
offset_syncs = "off"
offset_syncs_replication_factor = 2
offset_lag_max = 0
separator = "-"
[flows.from_mm2]
takeover = "trust"
offsets_topic = "mm2-offsets"
workers_group = "workers"
verify_records = 5
[flows.limits]
in_flight_bytes = "8MiB"
map_bytes = "100 MB"
rebuild_bytes = "32MiB"
topics = 500
partitions = 4000
rate = "10MiB/s"
[flows.recovery]
before = ["/etc/mirrord/stop-producers"]
grant = ["User:orders"]
after = ["https://example.com/hook"]
timeout = "30s"
[[flows]]
from = "asia"
to = "us"
topics = ["orders"]
naming = "identity"
groups = { both_ways = true }
[replicators]
count = 4
partitions_per_replicator = 1
placement = "spread"
alone = ["orders-0"]
spares = 2
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
names = ["proxy.example.org"]
token = "env:TOKEN"
tokens = [{ name = "ops", role = "operate", token = "env:OPS" }]
[http.tls]
certificate = "file:server.pem"
key = "file:server.key"
key_password = "env:KEY_PASSWORD"
client_ca = "file:clients.pem"
ca = "file:ca.pem"
[logs]
dir = "/var/log/mirrord"
[audit]
every = "1h"
level = "records"
topics = ["orders"]
since = "24h"
sample = 0.5
again = true
rate = "50MiB/s"
out = "/srv/audits"
spark.master = "local[2]"
[compact]
path = "/srv/maps"
every = "1d"
topics = ["orders"]
least = 65536
spark.executor.memory = "1g"
[drill]
every = "1d"
sample = 0.5
principals = ["User:app"]
canary = false
[ledger]
key = "env:LEDGER_KEY"
keys = ["env:FORMER_KEY"]
unsigned = ["us-eu"]
"""
"""Every key, with a value that is not its default."""


class Table(NamedTuple):
    """A table of the file that declares keys."""

    path: str
    struct: type[msgspec.Struct]


def tables(path: str = "", struct: type[msgspec.Struct] = Config) -> Iterator[Table]:
    """Every table, as `load_text` reads them: `flows` and `clusters.eu` among them."""
    yield Table(path, struct)
    inner = [(each.name, each.struct) for each in tables_of(struct)]
    inner += [("clusters.eu", ClusterConfig), ("flows", FlowConfig)] if struct is Config else []
    for name, each in inner:
        yield from tables(f"{path}.{name}".lstrip("."), each)


KEYS = [
    pytest.param(table, key, id=f"{table.path}.{key.name}".lstrip("."))
    for table in tables()
    for key in keys_of(table.struct)
]


def with_defaults() -> str:
    """A file in which every key that has a default is written with it."""
    text: list[str] = []
    for path, struct in tables():
        head = "[[flows]]" if path == "flows" else f"[{path}]" if path else ""
        values = {key.name: key.key.kind.toml(key.default) for key in keys_of(struct) if has_default(key)}
        if path == "clusters.eu":
            values["bootstrap"] = '"eu1:9092"'
        if path == "clusters.eu.security":
            values |= BEARER
        if path == "flows":
            values |= {"from": '"eu"', "to": '"us"', "topics": '["orders"]'}
        text += [head, *(f"{name} = {value}" for name, value in values.items())]
    return "\n".join([*text, "[clusters.us]", 'bootstrap = "us1:9092"', '[clusters.us.security]\nprotocol="PLAINTEXT"'])


def has_default(key: DeclaredKey) -> bool:
    return key.default is not REQUIRED and not key.key.unset


def names(values: dict[str, Any], path: str = "") -> Iterator[str]:
    """Every key in a file, by a path such as `clusters.security.ca`, without aliases."""
    for name, value in values.items():
        here = f"{path}.{name}".lstrip(".")
        yield here
        for inner in cast("list[Any]", value) if isinstance(value, list) else [value]:
            if isinstance(inner, dict):
                items = cast(dict[str, Any], inner)
                for each in items.values() if here == "clusters" else [items]:
                    yield from names(each, here)


def declared_names(*, with_default: bool = False) -> set[str]:
    keys = [(table.path, key) for table in tables() for key in keys_of(table.struct)]
    found = {f"{path}.{key.name}".lstrip(".") for path, key in keys if has_default(key) or not with_default}
    return {name.replace("clusters.eu.", "clusters.") for name in found}


def test_every_field_is_a_key_or_a_table() -> None:
    strange = {
        (table.struct.__name__, field)
        for table in tables()
        for field in table.struct.__struct_fields__
        if field not in {key.field for key in keys_of(table.struct)}
        and field not in {inner.name for inner in tables_of(table.struct)}
    }
    assert strange == NOT_IN_THE_FILE | COLLECTIONS


@pytest.mark.parametrize("table", list(tables()), ids=lambda table: table.path or "root")
def test_no_name_is_declared_twice_in_a_table(table: Table) -> None:
    found = [key.name for key in keys_of(table.struct)] + [inner.name for inner in tables_of(table.struct)]
    assert len(found) == len(set(found))


@pytest.mark.parametrize(("table", "declared"), KEYS)
def test_each_key_has_a_help_line(table: Table, declared: DeclaredKey) -> None:
    text = declared.key.help
    assert text == " ".join(text.split())
    assert text.endswith(".")
    assert 10 <= len(text) <= 300
    assert text.count("`") % 2 == 0
    assert declared.key.kind.allowed


def test_a_file_with_every_default_means_the_same_as_one_without() -> None:
    written = with_defaults()
    bearer = "\n".join(["[clusters.eu.security]", *(f"{name} = {value}" for name, value in BEARER.items())])
    plain = load_text(REST.replace("[clusters.us]", f"{bearer}\n[clusters.us]"), "conf.toml")
    config = load_text(written, "conf.toml")
    assert config == plain
    assert conf_toml(config) == conf_toml(plain)
    assert load_text(conf_toml(config), "conf.toml") == config
    assert declared_names(with_default=True) <= set(names(tomllib.loads(written)))


def test_a_file_with_every_key_is_written_with_every_key() -> None:
    assert declared_names() <= set(names(tomllib.loads(ALL)))
    config = load_text(ALL, "conf.toml")
    written = conf_toml(config)
    assert declared_names() <= set(names(tomllib.loads(written)))
    assert load_text(written, "conf.toml") == config
    # The values have the types of their fields.
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=Config) == config


@pytest.mark.parametrize(("table", "declared"), KEYS)
def test_a_misspelled_key_is_recognized(table: Table, declared: DeclaredKey) -> None:
    misspelled = f"{declared.name}x"
    heads = {"": "", "flows": "[[flows]]", "clusters.eu": "[clusters.eu]"}
    head = heads.get(table.path, f"[{table.path}]")
    if head and f"{head}\n" in REST:
        text = REST.replace(f"{head}\n", f"{head}\n{misspelled} = 1\n")
    else:
        text = f"{misspelled} = 1\n{REST}" if not head else f"{REST}{head}\n{misspelled} = 1\n"
    with pytest.raises(ConfigError, match=f'{misspelled}: unknown key; did you mean "{declared.name}"?'):
        load_text(text, "conf.toml")


def test_the_reference_is_what_the_declarations_make() -> None:
    command = "python -m mirrord.config.reference_page > docs/reference/configuration.md"
    assert REFERENCE.read_text() == reference_page.page(), command
