"""Every sample in conf/ loads, and means what its first lines say."""

from pathlib import Path

import msgspec
import pytest

from mirrord.config.loader import load, load_file, load_text
from mirrord.config.schema import FlowConfig
from mirrord.config.security import Secret
from mirrord.config.writer import conf_toml

CONF = Path(__file__).parents[3] / "conf"


@pytest.mark.parametrize("path", sorted(CONF.glob("*.toml")), ids=lambda path: path.name)
def test_every_sample_loads(path: Path) -> None:
    assert load(path).flows


def test_the_one_way_sample_has_the_defaults() -> None:
    config = load(CONF / "one-way.toml")
    (flow,) = config.flows
    bare = FlowConfig(name="eu-us", source="eu", target="us", topics=flow.topics, exclude=flow.exclude)
    assert flow == bare
    smallest = load_text(
        '[clusters.eu]\nbootstrap = "eu:1"\n[clusters.us]\nbootstrap = "us:1"\n'
        '[[flows]]\nfrom = "eu"\nto = "us"\ntopics = [".*"]\n',
        "smallest",
    )
    assert msgspec.structs.replace(config, clusters=smallest.clusters, flows=smallest.flows) == smallest


def test_the_other_samples() -> None:
    assert [flow.naming for flow in load(CONF / "active-active.toml").flows] == ["prefix", "prefix"]
    assert [flow.naming for flow in load(CONF / "same-names.toml").flows] == ["identity", "identity"]
    assert {flow.target for flow in load(CONF / "fan-in.toml").flows} == {"hq"}
    migration = load(CONF / "migration.toml")
    assert (migration.flows[0].naming, migration.runtime.engine) == ("identity", "process")
    security = load(CONF / "secured.toml").clusters["eu"].security
    assert (security.protocol, security.mechanism) == ("SASL_SSL", "SCRAM-SHA-512")
    assert security.password is not None
    assert security.ca is not None
    stores, bearer = (load(CONF / "secured.toml").clusters[alias].security for alias in ("asia", "hq"))
    assert (stores.truststore, stores.keystore) == (f"{CONF}/tls/trust.p12", f"{CONF}/tls/mirrord.jks")
    assert (bearer.mechanism, bearer.scope) == ("OAUTHBEARER", "kafka")


@pytest.mark.parametrize("path", sorted(CONF.glob("*.properties")), ids=lambda path: path.name)
def test_every_properties_sample_loads(path: Path) -> None:
    config, remarks = load_file(str(path))
    assert not [line for line in remarks if "unknown" in line]
    printed = conf_toml(config, remarks)
    assert load_text(printed, "conf.toml") == config


def test_the_sample_for_mirrormaker() -> None:
    config, remarks = load_file(str(CONF / "mm2.properties"))
    (flow,) = config.flows
    assert (flow.topics, flow.exclude) == (("orders", r"payments\..*"), (r".*\.tmp",))
    assert (flow.groups.match, flow.sync.acls, flow.refresh_ms) == (("billing-.*", "shipping"), "off", 30_000)
    security = config.clusters["us"].security
    assert (security.username, security.password) == ("mirrord", Secret.parse("env:US_PASSWORD"))
    assert security.truststore == str(Path.cwd() / "tls" / "trust.jks")
    meaningless = [line for line in remarks if "has no effect in mirrord" in line]
    assert [line.split(": ")[1] for line in meaningless] == [
        "offset.storage.replication.factor",
        "status.storage.replication.factor",
        "config.storage.replication.factor",
        "tasks.max",
        "us.producer.compression.type",
    ]
