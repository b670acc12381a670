"""Files of MirrorMaker 2: a row for each property, and the remarks on those that become nothing."""

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrord.config.flow_features import GroupsConfig, HeartbeatsConfig, Mm2RecordsConfig, SyncConfig
from mirrord.config.key_declarations import keys_of, tables_of
from mirrord.config.loader import load_text
from mirrord.config.mm2.flows import TOPICS_EXCLUDE
from mirrord.config.mm2.property_meanings import BECOMES, OLD, SECURITY, SOURCE_CONSUMER, reason
from mirrord.config.mm2.translate import translate
from mirrord.config.schema import ClusterConfig, Config, FlowConfig
from mirrord.config.writer import conf_toml
from mirrord.model.errors import ConfigError

HEAD = "clusters = eu, us\neu.bootstrap.servers = eu1:9092, eu2:9092\nus.bootstrap.servers = us1:9092\n"
BASE = HEAD + "eu->us.enabled = true\n"

LISTED = """
topics topics.exclude topic.filter.class refresh.topics.enabled refresh.topics.interval.seconds
heartbeats.replication.enabled consumer.poll.timeout.ms replication.factor admin.timeout.ms forwarding.admin.class
sync.topic.configs.enabled sync.topic.configs.interval.seconds config.properties.exclude config.property.filter.class
use.defaults.from sync.topic.acls.enabled sync.topic.acls.interval.seconds replication.policy.class
replication.policy.separator replication.policy.internal.topic.separator.enabled offset.lag.max
offset-syncs.topic.location offset-syncs.topic.replication.factor emit.offset-syncs.enabled groups groups.exclude
group.filter.class refresh.groups.enabled refresh.groups.interval.seconds emit.checkpoints.enabled
emit.checkpoints.interval.seconds sync.group.offsets.enabled sync.group.offsets.interval.seconds
checkpoints.topic.replication.factor emit.heartbeats.enabled emit.heartbeats.interval.seconds
heartbeats.topic.replication.factor exactly.once.source.support exactly.once.support transaction.boundary clusters
bootstrap.servers enabled dedicated.mode.enable.internal.rest listeners rest.advertised.host.name rest.advertised.port
rest.advertised.listener ssl.client.auth response.http.headers.config access.control.allow.methods
access.control.allow.origin config.providers offset.flush.interval.ms scheduled.rebalance.max.delay.ms tasks.max
client.id group.id config.storage.topic offset.storage.replication.factor status.storage.replication.factor
key.converter value.converter header.converter security.protocol sasl.mechanism sasl.jaas.config isolation.level
auto.offset.reset enable.auto.commit metric.reporters metric.names.formats use.incremental.alter.configs
add.source.alias.to.metrics topics.blacklist groups.blacklist sync.topic.configs.exclude name connector.class
source.cluster.alias target.cluster.alias ssl.keystore.location ssl.keystore.key ssl.truststore.location
"""
"""Every property that the map of MirrorMaker 2's behaviour names."""


def config(more: str = "", head: str = BASE) -> Config:
    return translate(head + more, "mm2.properties").config


def flow(more: str = "", head: str = BASE) -> FlowConfig:
    return config(more, head).flows[0]


def remarks_of(more: str, head: str = BASE) -> list[str]:
    return [notice.of("mm2.properties") for notice in translate(head + more, "mm2.properties").notices if notice.lines]


def faults(text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        translate(text, "mm2.properties")
    return str(raised.value)


@pytest.mark.parametrize("name", LISTED.split())
def test_no_property_is_forgotten(name: str) -> None:
    old = [each for names in OLD.values() for each in names]
    assert name in (*BECOMES, *SECURITY, *SOURCE_CONSUMER, *old) or reason(name) is not None


def keys_of_conf_toml() -> set[str]:
    """The keys of a flow and of a cluster, as the tables name them."""
    return {
        f"{path}.{key.name}".lstrip(".")
        for top in (FlowConfig, ClusterConfig)
        for path, struct in (("", top), *tables_of(top))
        for key in keys_of(struct)
    }


@pytest.mark.parametrize(("name", "becomes"), [*BECOMES.items(), *SECURITY.items(), *SOURCE_CONSUMER.items()])
def test_what_a_property_becomes_is_a_key_of_conf_toml(name: str, becomes: str) -> None:
    for key in re.split(", | or ", becomes):
        assert key.startswith(("(", "[", "references")) or key in keys_of_conf_toml(), name


def test_the_defaults_are_those_of_mirrormaker() -> None:
    found = config()
    assert found.clusters["eu"].bootstrap == ("eu1:9092", "eu2:9092")
    assert found.flows == (
        FlowConfig(
            name="eu-us",
            source="eu",
            target="us",
            topics=(".*",),
            exclude=TOPICS_EXCLUDE,
            refresh_ms=600_000,
            replication_factor=2,
            groups=GroupsConfig(refresh_ms=600_000),
            sync=SyncConfig(acls="read-only", every_ms=600_000),
            heartbeats=HeartbeatsConfig(emit="both", replication_factor=3),
            mm2_records=Mm2RecordsConfig(
                checkpoints_every_ms=60_000,
                checkpoints_replication_factor=3,
                offset_syncs="source",
                offset_syncs_replication_factor=3,
            ),
        ),
    )


def test_stronger_defaults_hold_unless_the_file_names_the_property() -> None:
    assert (flow().isolation, flow().groups.mode) == ("read_committed", "follow")
    (notice,) = translate(BASE, "mm2.properties").notices
    assert notice.of("mm2.properties") == (
        "mm2.properties: not set, so mirrord's default applies, which is stronger than MirrorMaker 2's: "
        'isolation = "read_committed", groups.mode = "follow"'
    )
    named = "eu.consumer.isolation.level = read_uncommitted\nsync.group.offsets.enabled = false\n"
    assert (flow(named).isolation, flow(named).groups.mode) == ("read_uncommitted", "off")
    assert translate(BASE + named, "mm2.properties").notices == ()


@pytest.mark.parametrize(
    ("line", "path", "value"),
    [
        ("topics = orders, pay.* ,x", "topics", ("orders", "pay.*", "x")),
        ("topics.exclude = a, b", "exclude", ("a", "b")),
        ("topics.exclude =", "exclude", ()),
        ("topics.blacklist = a", "exclude", ("a",)),
        ("refresh.topics.enabled = false", "refresh_ms", None),
        ("refresh.topics.interval.seconds = 30", "refresh_ms", 30_000),
        ("refresh.topics.interval.seconds = -1", "refresh_ms", None),
        ("refresh.topics.interval.seconds = 2147483647", "refresh_ms", 30 * 86_400_000),
        ("heartbeats.replication.enabled = FALSE", "heartbeats.replicate", False),
        ("replication.factor = 1", "replication_factor", 1),
        ("replication.factor = -1", "replication_factor", "broker"),
        ("sync.topic.configs.enabled = false", "sync.configs", False),
        ("sync.topic.configs.interval.seconds = 60", "sync.every_ms", 60_000),
        ("sync.topic.configs.interval.seconds = -1", "sync.configs", False),
        ("config.properties.exclude = retention\\\\..*", "sync.exclude_configs", (r"retention\..*",)),
        ("config.properties.blacklist = a", "sync.exclude_configs", ("a",)),
        ("sync.topic.configs.exclude = a", "sync.exclude_configs", ("a",)),
        ("use.defaults.from = source", "sync.use_defaults_from", "source"),
        ("sync.topic.acls.enabled = false", "sync.acls", "off"),
        ("sync.topic.acls.interval.seconds = 30", "sync.every_ms", 30_000),
        ("replication.policy.class = org.apache.kafka.connect.mirror.DefaultReplicationPolicy", "naming", "prefix"),
        ("replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy", "naming", "identity"),
        (
            "replication.policy.class = io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy",
            "naming",
            "identity",
        ),
        ("replication.policy.separator = __", "separator", "__"),
        ("replication.policy.separator = __", "mm2_records.separator", "__"),
        ("replication.policy.internal.topic.separator.enabled = false", "mm2_records.separator", "."),
        (
            "replication.policy.separator=-\nreplication.policy.internal.topic.separator.enabled=false",
            "mm2_records.separator",
            ".",
        ),
        ("offset.lag.max = 0", "mm2_records.offset_lag_max", 0),
        ("offset-syncs.topic.location = target", "mm2_records.offset_syncs", "target"),
        ("offset-syncs.topic.replication.factor = 1", "mm2_records.offset_syncs_replication_factor", 1),
        ("emit.offset-syncs.enabled = false", "mm2_records.offset_syncs", "off"),
        ("groups = a, b.*", "groups.match", ("a", "b.*")),
        ("groups.exclude = c", "groups.exclude", ("c",)),
        ("groups.blacklist = c", "groups.exclude", ("c",)),
        ("refresh.groups.enabled = false", "groups.refresh_ms", None),
        ("refresh.groups.interval.seconds = 5", "groups.refresh_ms", 5_000),
        ("emit.checkpoints.enabled = false", "mm2_records.checkpoints", False),
        ("emit.checkpoints.interval.seconds = 5", "mm2_records.checkpoints_every_ms", 5_000),
        ("sync.group.offsets.enabled = true", "groups.mode", "follow"),
        ("sync.group.offsets.enabled = false", "groups.mode", "off"),
        ("sync.group.offsets.interval.seconds = 20", "groups.every_ms", 20_000),
        ("checkpoints.topic.replication.factor = 1", "mm2_records.checkpoints_replication_factor", 1),
        ("emit.heartbeats.enabled = false", "heartbeats.emit", "off"),
        ("eu->us.emit.heartbeats.enabled = false", "heartbeats.emit", "source"),
        ("us->eu.emit.heartbeats.enabled = false", "heartbeats.emit", "target"),
        ("emit.heartbeats.interval.seconds = 5", "heartbeats.every_ms", 5_000),
        ("heartbeats.topic.replication.factor = -1", "heartbeats.replication_factor", "broker"),
        ("eu.consumer.auto.offset.reset = latest", "start", "latest"),
        ("eu.consumer.auto.offset.reset = earliest", "start", "earliest"),
        ("eu->us.consumer.auto.offset.reset = latest", "start", "latest"),
        ("eu.consumer.isolation.level = read_uncommitted", "isolation", "read_uncommitted"),
        ("eu->us.source.consumer.isolation.level = read_uncommitted", "isolation", "read_uncommitted"),
        ("us.offset.storage.topic = connect-offsets", "from_mm2.offsets_topic", "connect-offsets"),
        ("us.offset.storage.topic = a\noffset.storage.topic = b", "from_mm2.offsets_topic", "b"),
        ("us.group.id = workers", "from_mm2.workers_group", "workers"),
        ("topic.filter.class = org.apache.kafka.connect.mirror.DefaultTopicFilter", "topics", (".*",)),
        ("value.converter = org.apache.kafka.connect.converters.ByteArrayConverter", "topics", (".*",)),
    ],
)
def test_a_property_and_what_it_becomes(line: str, path: str, value: object) -> None:
    found: object = flow(line + "\n")
    for part in path.split("."):
        found = getattr(found, part)
    assert found == value
    assert not [line for line in remarks_of(line + "\n") if "unknown" in line]


def test_a_flows_own_value_wins() -> None:
    more = "topics = a\neu->us.topics = b\nus->eu.topics = c\nus->eu.enabled = true\neu->us.replication.factor = 3\n"
    there, back = config(more).flows
    assert (there.topics, back.topics) == (("b",), ("c",))
    assert (there.replication_factor, back.replication_factor) == (3, 2)
    # Each direction writes its own heartbeats.
    assert (there.heartbeats.emit, back.heartbeats.emit) == ("target", "target")


def test_flows_of_three_clusters() -> None:
    text = "clusters = a, b, c\n" + "".join(f"{alias}.bootstrap.servers = {alias}:1\n" for alias in "abc")
    found = config("a->b.enabled = true\na->c.enabled = TRUE\nc->b.enabled=false\n", text)
    assert [each.name for each in found.flows] == ["a-b", "a-c"]
    assert list(found.clusters) == ["a", "b", "c"]
    assert list(config("a->b.enabled = true\n", text).clusters) == ["a", "b"]
    assert [each.name for each in config("enabled = true\n", HEAD).flows] == ["eu-us", "us-eu"]


def test_flows_that_would_have_one_name() -> None:
    text = "clusters = a, a-b, b-c, c\n" + "".join(
        f"{alias}.bootstrap.servers = x:1\n" for alias in ["a", "a-b", "b-c", "c"]
    )
    found = config("a->b-c.enabled = true\na-b->c.enabled = true\n", text)
    assert [each.name for each in found.flows] == ["a-b-c", "a-b--c"]


def test_a_flow_without_topics_is_left_out() -> None:
    more = "eu->us.topics =\nus->eu.enabled = true\n"
    assert [each.name for each in config(more).flows] == ["us-eu"]
    assert "mm2.properties:5: eu->us.topics: empty, so the flow copies nothing and is omitted" in remarks_of(more)


@pytest.mark.parametrize(
    ("lines", "notice"),
    [
        ("tasks.max = 8", "5: tasks.max: has no effect in mirrord: each partition is copied independently"),
        (
            "us.producer.compression.type = zstd\neu.producer.compression.type = zstd",
            "5: us.producer.compression.type: has no effect in mirrord: records keep the codec in which the source "
            "stored "
            "them (also in line 6)",
        ),
        (
            "us.exactly.once.source.support = enabled",
            "5: us.exactly.once.source.support: has no effect in mirrord: records always arr",
        ),
        (
            "dedicated.mode.enable.internal.rest = true",
            "has no effect in mirrord: daemons find each other through the ledger",
        ),
        ("us.consumer.metrics.num.samples = 3", "has no effect in mirrord: metrics are in Prometheus's format"),
        ("us.offset.storage.topic = x", "has no effect in mirrord: there are no Connect topics"),
        (
            "consumer.fetch.min.bytes = 1",
            "ignored, also by MirrorMaker 2: for a cluster, it would be ALIAS.consumer.fetch.min",
        ),
        ("us.topics = x", "5: us.topics: ignored, also by MirrorMaker 2: it belongs to a flow or to the top"),
        ("eu->us.topcs = x", '5: eu->us.topcs: unknown; did you mean "eu->us.topics"?'),
        ("eu->us.enable = true", '5: eu->us.enable: unknown; did you mean "eu->us.enabled"?'),
        ("us.bootstrap.server = x:1", 'us.bootstrap.server: unknown; did you mean "us.bootstrap.servers"?'),
        ("su.bootstrap.servers = x:1", 'su.bootstrap.servers: unknown; did you mean "us.bootstrap.servers"?'),
        ("eu->asia.enabled = true", "eu->asia.enabled: unknown; did you mean"),
        ("us.consumer.isolation.levl = x", 'unknown; did you mean "us.consumer.isolation.level"?'),
        (
            "us.consumer.isolation.level = read_committed",
            "has no effect in mirrord: no flow uses it to read the records that it copies",
        ),
        ("xyzzy = 1", "5: xyzzy: unknown"),
        ("topics = a\ntopics = b", "5: topics: is repeated in line 6, which applies"),
        ("us.sasl.jaas.config = x", "5: us.sasl.jaas.config: not used: no cluster's security.protocol"),
        (
            "eu->us.source.cluster.security.protocol = SSL",
            "in mirrord, a cluster has one identity; write it as eu.security.proto",
        ),
        (
            "us.security.protocol = SSL\nus.producer.security.protocol = PLAINTEXT",
            "6: us.producer.security.protocol: not used: in mirrord, a cluster has one identity, that of us.security.",
        ),
        ("config.providers.file.param.allowed.paths = /x", "has no effect in mirrord: a declared provider may read"),
    ],
)
def test_what_is_reported_of_a_property(lines: str, notice: str) -> None:
    found = remarks_of(lines + "\n")
    assert len(found) == 1, found
    assert notice in found[0]


def test_nothing_is_reported_of_properties_that_belong_to_no_enabled_flow() -> None:
    text = HEAD.replace("eu, us", "eu, us, asia") + "eu->us.enabled = true\n"
    more = "us->eu.topics = x\nasia.bootstrap.servers = x\nasia.sasl.jaas.config = y\neu->asia.tasks.max = 3\n"
    assert remarks_of(more, text) == []


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("replication.policy.class = com.example.Mine", 'naming: "prefix", "identity", or a template such as'),
        ("eu->us.replication.policy.class = com.example.Mine", "5: eu->us.replication.policy.class: found"),
        ("topic.filter.class = com.example.Mine", "Use instead: the lists topics and exclude"),
        ("group.filter.class = com.example.Mine", "Use instead: the lists groups.match and groups.exclude"),
        ("config.property.filter.class = com.example.Mine", "Use instead: the list sync.exclude_configs"),
        ("forwarding.admin.class = com.example.Mine", "Use instead: topics that are created in advance"),
        ("eu->us.transforms = mask", "mirrord copies records unaltered"),
        (
            "value.converter = org.apache.kafka.connect.json.JsonConverter",
            "records are copied as bytes, unchanged",
        ),
        ("us.ssl.engine.factory.class = com.example.Mine", "Python's TLS, with PEM, PKCS12 or JKS stores"),
        ("us.sasl.login.callback.handler.class = com.example.Mine", "security with token_url"),
        ("us.sasl.client.callback.handler.class = com.example.Mine", 'mechanism "PLAIN", "SCRAM-SHA-256"'),
        (
            "config.providers = vault\nconfig.providers.vault.class = com.example.Vault",
            "6: config.providers.vault.class: found",
        ),
        ("replication.factor = 0", '5: replication.factor: found "0"; allowed: a whole number from 1 to 32767, or -1'),
        ("replication.factor = two", 'replication.factor: found "two"; allowed: a whole number from -1 to 32767'),
        ("sync.topic.acls.enabled = yes", 'found "yes"; allowed: true or false'),
        ("refresh.topics.interval.seconds = 0", 'found "0"; allowed: a whole number of seconds from 1, or a negative'),
        ("offset-syncs.topic.location = sorce", 'allowed: "source" or "target"; did you mean "source"?'),
        ("replication.policy.separator = /", 'found "/"; allowed: up to 16 letters'),
        ("topics = a{2,3}", 'topics: found "a{2"; allowed: "\\{", or a quantifier such as {2}'),
        ("topics = a(", 'topics: found "a("; allowed: a regular expression that Python also supports'),
        ("us.bootstrap.servers = us1", 'us.bootstrap.servers: found "us1"; allowed: host:port'),
        ("us.security.protocol = TLS", 'allowed: "PLAINTEXT" or "SSL"'),
        ("eu.consumer.isolation.level = none", 'allowed: "read_committed" or "read_uncommitted"'),
        ("eu.consumer.auto.offset.reset = by_duration:PT1H", 'allowed: "earliest" or "latest" or "none"'),
        ("topics = ${env:MIRRORD_NO_SUCH}", "topics: the environment variable MIRRORD_NO_SUCH is not set"),
        ("topics = ${file:/none:a}", "topics: the file /none cannot be read: No such file or directory"),
    ],
)
def test_faults(line: str, fault: str) -> None:
    assert fault in faults(BASE + line + "\n")


def test_what_must_be_there() -> None:
    assert "mm2.properties: clusters: missing; allowed: a list such as eu, us" in faults("")
    assert 'did you mean it by "cluster"?' in faults("cluster = eu, us\n")
    assert "mm2.properties:1: clusters: no flow between them is enabled; allowed: eu->us.enabled = true" in faults(HEAD)
    assert "us.bootstrap.servers: missing; allowed: host:port" in faults("clusters = eu, us\neu->us.enabled = true\n")
    dotted = "clusters = e.u, us\ne.u.bootstrap.servers = a:1\nus.bootstrap.servers = b:1\ne.u->us.enabled = true\n"
    assert 'the alias "e.u" is not allowed' in faults(dotted)
    assert "every flow that is enabled has an empty list" in faults(BASE + "topics =\n")


def test_all_faults_come_at_once() -> None:
    report = faults(BASE + "replication.factor = x\ntopics = (\nus.security.protocol = y\n")
    assert report.splitlines()[0] == "mm2.properties: 3 faults"


def test_what_mirrord_refuses_of_several_flows() -> None:
    identity = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
    report = faults(BASE + identity + "us->eu.enabled = true\n")
    assert "only one of them may sync configs" in report


def test_values_from_providers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secrets = tmp_path / "secrets.properties"
    secrets.write_text("hosts = us7:9092\npassword = hunter2\n")
    monkeypatch.setenv("MIRRORD_TEST_TOPICS", "a, b")
    text = (
        "config.providers = e, f\n"
        "config.providers.e.class = org.apache.kafka.common.config.provider.EnvVarConfigProvider\n"
        "config.providers.f.class = org.apache.kafka.common.config.provider.FileConfigProvider\n"
        "topics = ${e:MIRRORD_TEST_TOPICS}, c\n"
        f"us.bootstrap.servers = ${{f:{secrets}:hosts}}\n"
    )
    found = config(text)
    assert (found.flows[0].topics, found.clusters["us"].bootstrap) == (("a", "b", "c"), ("us7:9092",))
    # Not declared, but a user who writes it means it.
    assert flow("topics = ${env:MIRRORD_TEST_TOPICS}\n").topics == ("a", "b")


def test_a_file_as_it_is_in_the_wild() -> None:
    text = HEAD.replace("=", ":") + "! remark\neu->us.enabled\ttrue\neu->us.topics = a, \\\n    b ,\\\n  c\\\\.d\n"
    assert flow("", text).topics == ("a", "b", r"c\.d")


@pytest.mark.parametrize(
    "more",
    [
        "",
        "us->eu.enabled = true\nreplication.policy.separator = _\nrefresh.topics.enabled = false\n",
        "topics = a'b, \\\\Qx.y\\\\E, [\"]\ngroups.exclude =\noffset.lag.max = 0\nemit.heartbeats.enabled=false\n",
        "us.security.protocol = SASL_PLAINTEXT\nus.sasl.mechanism = PLAIN\nus.sasl.jaas.config = "
        'org.apache.kafka.common.security.plain.PlainLoginModule required username="u\\u00e9" password="p";\n',
    ],
)
def test_the_conf_toml_that_is_printed_means_the_same(more: str) -> None:
    found = config(more)
    assert load_text(conf_toml(found, ["a remark"]), "conf.toml") == found


NAMES = st.sampled_from([*BECOMES, *SECURITY, *SOURCE_CONSUMER, "topics.blacklist", "tasks.max", "x"])
KEYS = st.builds(str.__add__, st.sampled_from(["", "eu.", "us.consumer.", "eu->us.", "us->eu.", "->."]), NAMES)
VALUES = st.sampled_from(
    [
        "true",
        "false",
        "1",
        "-1",
        "0",
        "eu, us",
        ".*",
        "a(",
        "PLAIN",
        "SASL_SSL",
        "${env:HOME}",
        "${env:}",
        "${file:a#b:c}",
        "",
    ]
) | (st.text(st.characters(codec="utf-8", exclude_categories=["C"]), max_size=6))


@given(st.lists(st.tuples(KEYS, VALUES), max_size=8), st.sampled_from([BASE, HEAD, ""]))
def test_any_file_is_a_configuration_or_a_list_of_faults(entries: list[tuple[str, str]], head: str) -> None:
    text = head + "".join(f"{key} = {value}\n" for key, value in entries)
    try:
        found = translate(text, "mm2.properties")
    except ConfigError:
        return
    assert load_text(conf_toml(found.config), "conf.toml") == found.config
    for notice in found.notices:
        assert notice.of("mm2.properties").startswith("mm2.properties:")
