"""References to secrets in the settings of policies and of Spark."""

import json
import re
from pathlib import Path

import msgspec
import pytest

from mirrord.config.changes import compare
from mirrord.config.loader import load_text
from mirrord.config.schema import Config
from mirrord.config.security import Secret
from mirrord.config.writer import conf_toml
from mirrord.model.errors import ConfigError
from mirrord.operations.rules.weak_settings import weak_lines
from mirrord.supervision.start_resolution import FirstLook
from policies.flow_policies import leaving_of, record_transform_of

CONF = """[clusters.eu]
bootstrap = "eu:9092"
[clusters.us]
bootstrap = "us:9092"
[[flows]]
from = "eu"
to = "us"
topics = ["orders"]
select = "tests.fixtures.sample_policies:Answers"
select_settings = {{ answer = {{ secret = "file:names" }} }}
records.transform = "tests.fixtures.sample_policies:Upper"
records.transform_settings = {{ answer = {{ secret = "{secret}" }} }}
[audit]
spark.master = "local[1]"
spark.hadoop.fs.s3a.secret.key = {{ secret = "env:S3_KEY" }}
spark.authenticate.secret = "in plain text"
"""


def loaded(secret: str = "env:PEPPER") -> Config:
    return load_text(CONF.format(secret=secret), "conf.toml")


def test_references_are_read_and_written() -> None:
    config = loaded()
    (flow,) = config.flows
    assert flow.records.transform_settings["answer"] == Secret("env:PEPPER")
    assert config.audit.spark["spark.hadoop.fs.s3a.secret.key"] == Secret("env:S3_KEY")
    # The name of this property ends with `.secret`. Its value is not a reference, so it is the value itself.
    assert config.audit.spark["spark.authenticate.secret"] == "in plain text"
    assert load_text(conf_toml(config), "conf.toml") == config
    # Other processes of the daemon receive the configuration in this form.
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=Config) == config


def test_paths_of_references_are_relative_to_the_file(tmp_path: Path) -> None:
    below = loaded("properties:p#key").below(tmp_path)
    assert below.flows[0].select_settings["answer"] == Secret(f"file:{tmp_path}/names")
    assert below.flows[0].records.transform_settings["answer"] == Secret(f"properties:{tmp_path}/p#key")
    assert below.audit.spark["spark.hadoop.fs.s3a.secret.key"] == Secret("env:S3_KEY")


def test_a_secret_that_is_no_reference_is_a_fault_and_is_not_shown() -> None:
    with pytest.raises(ConfigError, match=re.escape("conf.toml: 1 fault")) as fault:
        loaded("hunter2")
    assert "hunter2" not in str(fault.value)


def test_a_change_of_a_reference_is_reported() -> None:
    (change,) = compare(loaded(), loaded("env:OTHER")).flows
    assert change.restarts
    assert change.lines == ("records.transform_settings.answer: env:PEPPER -> env:OTHER",)


def test_a_policy_receives_the_secret(tmp_path: Path) -> None:
    (tmp_path / "names").write_text("because of this\n")
    (flow,) = loaded().below(tmp_path).flows
    assert leaving_of(flow).refusal("orders") == f'select "{flow.select}": because of this'
    with pytest.raises(ConfigError, match="the environment variable PEPPER is not set"):
        record_transform_of(flow)


def test_policies_with_different_references_are_different_policies(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "names").write_text(name)
        (flow,) = loaded().below(tmp_path / name).flows
        assert leaving_of(flow).refusal("orders") == f'select "{flow.select}": {name}'


def test_the_selection_in_the_ledger_contains_the_reference() -> None:
    config = loaded()
    text = FirstLook(config.flows[0], config.clusters["eu"])._selected.policy  # pyright: ignore[reportPrivateUsage]
    assert json.loads(text.partition(" ")[2]) == {"answer": "file:names"}


def test_a_secret_in_plain_text_is_a_weak_setting() -> None:
    lines = [line for line in weak_lines(loaded()) if "plain text" in line]
    assert len(lines) == 1
    assert lines[0].startswith("audit: spark.authenticate.secret is probably a secret")
    assert "in plain text;" in lines[0]
