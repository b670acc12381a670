"""A configuration that is printed as conf.toml reads back as the same one, whatever it holds."""

from pathlib import Path
from typing import get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrord.config.flow_features import MONTH_MS, GroupsConfig, HeartbeatsConfig, Mm2RecordsConfig, SyncConfig
from mirrord.config.http import RESERVED_NAMES, ROLES, HttpConfig, HttpToken
from mirrord.config.limits import LimitsConfig
from mirrord.config.loader import load, load_text
from mirrord.config.schema import (
    ClusterConfig,
    Config,
    FlowConfig,
    LogsConfig,
    RayConfig,
    ReplicatorsConfig,
    RuntimeConfig,
)
from mirrord.config.security import Cipher, Secret, Security, TlsVersion
from mirrord.config.value_parsers import HostPort
from mirrord.config.writer import conf_toml

CONF = Path(__file__).parents[3] / "conf"
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=8)
EVERY = st.integers(100, MONTH_MS)
REFRESH = st.none() | EVERY
FACTORS = st.just("broker") | st.integers(1, 32_767)
REGEXES = st.sampled_from([".*", r"a\.b", "it's", r"it's \d", '"', "\t", "é", "x" * 130])
LISTS = st.lists(REGEXES, max_size=3).map(tuple)
_STARTS = st.sampled_from(["earliest", "latest"]) | st.integers(0, 2**50)
SEPARATORS = st.sampled_from([".", "__", "-"])
SECRETS = st.sampled_from(["env:X", "file:/a b/'c'.pem", "properties:/x\\y#us.sasl.jaas.config#password"]).map(
    Secret.parse
)
NAMES = st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True)


def _with_copies_of_their_own(flow: FlowConfig) -> FlowConfig:
    """The flow with a target topic for each incarnation, if its settings permit that."""
    records = flow.mm2_records
    is_off = not records.checkpoints and records.offset_syncs == "off"
    return msgspec.structs.replace(flow, on_recreated="fresh") if is_off else flow


FLOWS = st.builds(
    FlowConfig,
    name=NAMES | st.just("eu-us"),
    source=st.just("eu"),
    target=st.just("us"),
    topics=st.lists(REGEXES, min_size=1, max_size=3).map(tuple),
    exclude=LISTS,
    naming=st.sampled_from(["prefix", "identity", "dr-{topic}"]),
    separator=SEPARATORS,
    start=_STARTS,
    start_of=st.dictionaries(st.sampled_from(["orders", r"logs\..*", "'a'|b"]), _STARTS, max_size=2),
    isolation=st.sampled_from(["read_committed", "read_uncommitted"]),
    on_loss=st.sampled_from(["continue", "halt"]),
    on_reject=st.sampled_from(["halt", "skip", "skip-unparked"]),
    rpo_ms=st.none() | st.integers(1_000, MONTH_MS),
    transaction_alarm_ms=st.integers(1_000, MONTH_MS),
    refresh_ms=REFRESH,
    replication_factor=FACTORS | st.just("source"),
    on_unknown_copies=st.sampled_from(["wait", "begin"]),
    on_deleted_copy=st.sampled_from(["create", "halt"]),
    propagate_deletes=st.booleans(),
    groups=st.builds(
        GroupsConfig,
        match=LISTS,
        exclude=LISTS,
        mode=st.sampled_from(["follow", "forward-only", "off"]),
        every_ms=EVERY,
        refresh_ms=REFRESH,
    ),
    sync=st.builds(
        SyncConfig,
        configs=st.booleans(),
        exclude_configs=LISTS,
        use_defaults_from=st.sampled_from(["source", "target"]),
        acls=st.sampled_from([None, "read-only", "exact", "off"]),
        every_ms=EVERY,
    ),
    heartbeats=st.builds(
        HeartbeatsConfig,
        emit=st.sampled_from(["target", "source", "both", "off"]),
        every_ms=EVERY,
        replicate=st.booleans(),
        replication_factor=FACTORS,
    ),
    mm2_records=st.builds(
        Mm2RecordsConfig,
        checkpoints=st.booleans(),
        checkpoints_every_ms=EVERY,
        checkpoints_replication_factor=FACTORS,
        offset_syncs=st.sampled_from(["target", "source", "off"]),
        offset_syncs_replication_factor=FACTORS,
        offset_lag_max=st.integers(0, 2**63 - 1),
        separator=SEPARATORS,
    ),
    limits=st.builds(
        LimitsConfig,
        in_flight_bytes=st.integers(1 << 20, 1 << 40),
        map_bytes=st.integers(8 << 20, 1 << 40),
        rebuild_bytes=st.integers(1 << 20, 1 << 30),
        topics=st.integers(1, 1_000_000),
        partitions=st.integers(1, 1_000_000),
        rate_bytes_per_s=st.none() | st.integers(64 << 10, 1 << 40),
    ),
).map(_with_copies_of_their_own)
CIPHERS = st.lists(st.sampled_from(get_args(Cipher)), max_size=3).map(tuple)
SECURITIES = (
    st.just(Security())
    | st.builds(Security, st.just("SSL"), ca=SECRETS, check_hostname=st.booleans(), ciphers=CIPHERS)
    | st.builds(Security, st.just("SSL"), truststore=TEXTS, keystore=TEXTS, keystore_password=SECRETS)
    | st.builds(Security, st.just("SASL_SSL"), st.just("PLAIN"), TEXTS, SECRETS, certificate=SECRETS, key=SECRETS)
    | st.builds(Security, st.just("SASL_PLAINTEXT"), st.just("OAUTHBEARER"), TEXTS, unsigned=st.just(True))
    | st.builds(
        Security,
        st.just("SASL_SSL"),
        st.just("OAUTHBEARER"),
        TEXTS,
        SECRETS,
        token_url=TEXTS.map("https://login/".__add__),
        token_ca=SECRETS,
        scope=TEXTS,
        tls_min=st.sampled_from(get_args(TlsVersion)),
    )
)
CLUSTERS = st.builds(ClusterConfig, st.sampled_from([("a:1",), ("[::1]:9092", "b:2")]), SECURITIES)
SECONDS = st.integers(1_000, 300_000)
COUNTS = st.just("auto") | st.integers(1, 10_000)
TOKEN_NAMES = NAMES.filter(lambda name: name not in RESERVED_NAMES)
TOKENS = st.builds(HttpToken, TOKEN_NAMES, st.sampled_from(ROLES), SECRETS)
CONFIGS = st.builds(
    Config,
    clusters=st.fixed_dictionaries({"eu": CLUSTERS, "us": CLUSTERS}),
    flows=FLOWS.map(lambda flow: (flow,)),
    instance=NAMES,
    replicators=st.builds(ReplicatorsConfig, COUNTS, COUNTS),
    runtime=st.builds(
        RuntimeConfig, engine=st.sampled_from(["ray", "process"]), lease_ttl_ms=SECONDS, request_timeout_ms=SECONDS
    ),
    ray=st.builds(RayConfig, TEXTS, st.booleans(), st.none() | st.integers(1, 65_535)),
    http=st.builds(
        HttpConfig,
        st.none() | st.just(HostPort("::1", 80)),
        st.none() | st.just(HostPort("mirror.example.org", 443)),
        st.lists(st.sampled_from(["proxy", "proxy:443", "[::1]"]), max_size=2).map(tuple),
        st.none() | SECRETS,
        st.just(()) | TOKENS.map(lambda token: (token,)),
    ),
    logs=st.builds(LogsConfig, st.none() | TEXTS),
)


@given(CONFIGS)
def test_any_configuration_survives(config: Config) -> None:
    assert load_text(conf_toml(config, ["a remark\nof two lines"]), "conf.toml") == config


@pytest.mark.parametrize("path", sorted(CONF.glob("*.toml")), ids=lambda path: path.name)
def test_every_sample_survives(path: Path) -> None:
    config = load(path)
    assert load_text(conf_toml(config), "conf.toml") == config


def test_defaults_are_left_out() -> None:
    config = load(CONF / "one-way.toml")
    assert conf_toml(config, ["from a test"]) == (
        '# from a test\n\n[clusters.eu]\nbootstrap = "127.0.0.1:19092"\n\n[clusters.us]\nbootstrap = '
        '"127.0.0.1:29092"\n\n[[flows]]\nfrom = "eu"\nto = "us"\ntopics = [".*"]\nexclude = [\'.*\\.tmp\']\n'
    )


def test_only_the_flows_into_some_clusters() -> None:
    config = load(CONF / "active-active.toml")
    heartbeats = HeartbeatsConfig(emit="both")
    config = msgspec.structs.replace(
        config, flows=tuple(msgspec.structs.replace(flow, heartbeats=heartbeats) for flow in config.flows)
    )
    (flow,) = config.only_targets(["us"]).flows
    assert (flow.target, flow.heartbeats.emit) == ("us", "target")
    assert config.only_targets(["us,eu"]) == config.only_targets(["us", "eu"]) == config
