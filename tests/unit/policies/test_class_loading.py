"""Third-party policies: what is refused while a file is read, and with which line."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path

import msgspec
import pytest

import mirrord.cli.main as cli
from mirrord.cli.arguments import load_conf
from mirrord.config.loader import load_text
from mirrord.config.schema import Config
from mirrord.config.writer import conf_toml
from mirrord.model.errors import ConfigError
from policies import flow_policies
from policies.flow_policies import naming_of
from policies.policy_trial import LOADING, policy_faults

SAMPLE = "tests.fixtures.sample_policies"
CONF = """[clusters.eu]
bootstrap = "eu:9092"
[clusters.us]
bootstrap = "us:9092"
[[flows]]
from = "eu"
to = "us"
topics = ["orders", "payments.*"]
"""


@pytest.fixture(autouse=True)
def forgetful(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flow_policies, "_made", {})


def conf(
    key: str = "naming",
    value: str = f"{SAMPLE}:SuffixNaming",
    given: Mapping[str, object] | None = None,
    **more: object,
) -> str:
    settings = {**(given or {}), **more}
    table = "flows.sync.filter_settings" if key == "filter_configs" else f"flows.{key}_settings"
    head = "[flows.sync]\n" if key == "filter_configs" else ""
    lines = "".join(f"{name} = {json.dumps(item)}\n" for name, item in settings.items())
    return f"{CONF}{head}{key} = {json.dumps(value)}\n" + (f"[{table}]\n{lines}" if settings else "")


def read(text: str) -> Config:
    return load_text(text, "conf.toml", LOADING)


def faults(text: str) -> str:
    with pytest.raises(ConfigError) as raised:
        read(text)
    return str(raised.value)


def offer(folder: Path, monkeypatch: pytest.MonkeyPatch, entry_points: str, name: str = "team-policies") -> None:
    """An installed package that offers these entry points."""
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    monkeypatch.syspath_prepend(str(folder))


def test_a_class_by_its_dotted_path() -> None:
    (flow,) = read(conf(between="_")).flows
    assert naming_of(flow).target_topic("orders") == "orders_eu"
    assert naming_of(flow).source_topic("orders_eu") == "orders"
    assert naming_of(flow) is naming_of(flow)


def test_a_name_that_a_package_offers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(tmp_path, monkeypatch, f"[mirrord.naming]\nsuffix = {SAMPLE}:SuffixNaming\nprefix = {SAMPLE}:NoMethods\n")
    (flow,) = read(conf(value="suffix")).flows
    assert naming_of(flow).target_topic("orders") == "orders-eu"
    (flow,) = read(conf(value="prefix")).flows
    assert naming_of(flow).target_topic("orders") == "eu.orders", "what is built in wins"
    line = 'conf.toml:9: flows[0].naming: found "sufix"; allowed: a template such as "dr-{topic}", "prefix", "identity"'
    assert f'{line}, "prefix", "suffix" or a class as "module:Class"; did you mean "suffix"?' in faults(
        conf(value="sufix")
    )


def test_a_name_that_two_packages_offer_or_that_is_no_class(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = f"[mirrord.selection]\ndrafts = {SAMPLE}:Without\nwithout = {SAMPLE}:Without\nodd = {SAMPLE}\n"
    offer(tmp_path, monkeypatch, ours)
    assert read(conf("select", "without")).flows[0].select == "without"
    assert "names " in faults(conf("select", "odd"))
    other = tmp_path / "other"
    other.mkdir()
    offer(other, monkeypatch, f"[mirrord.selection]\ndrafts = {SAMPLE}:Answers\n", "others")
    line = f"several packages offer it: {SAMPLE}:Answers, {SAMPLE}:Without; allowed: one of these paths"
    assert line in faults(conf("select", "drafts"))


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ("no_such_module:Naming", "there is no module no_such_module; allowed: one that is installed with mirrord"),
        ("mirrord_:Naming", 'whose folder is in PYTHONPATH; did you mean "mirrord"?'),
        ("tests.fixtures.sample_policy:Naming", 'PYTHONPATH; did you mean "sample_policies"?'),
        (f"{SAMPLE}:SufixNaming", f'{SAMPLE} has no SufixNaming; did you mean "SuffixNaming"?'),
        (f"{SAMPLE}:SuffixNaming.Inner", f"{SAMPLE} has no Inner"),
        (f"{SAMPLE}:function", "it is not a class but a function; allowed: a class with target_topic and source_topic"),
        (f"{SAMPLE}:TargetTopics", 'the class has no method target_topic; did you mean "target_topics"?'),
        (f"{SAMPLE}:NoMethods", "the class has no method source_topic"),
        (f"{SAMPLE}:TwoQuestions", "target_topic(source_topic: str, partition: int) -> str does not take one text"),
        (f"{SAMPLE}:Waits", "target_topic is async; allowed: an ordinary method"),
        (f"{SAMPLE}:TakesNothing", "does not accept the arguments that it is given: too many positional arguments"),
        (f"{SAMPLE}:CannotBeMade", "making an object of it raised OSError: no such file: teams.csv"),
        (f"{SAMPLE}:Ends", 'target_topic("orders") raised SystemExit: 3'),
        ("os:system", "it is not a class but a builtin_function_or_method"),
        ("module.Class", 'flows[0].naming: found "module.Class"; allowed: a template'),
        ("a b", 'flows[0].naming: found "a b"; allowed: a template'),
        ("module:", 'flows[0].naming: found "module:"; allowed: a template'),
    ],
)
def test_what_cannot_be_loaded_is_one_line(value: str, line: str) -> None:
    found = faults(conf(value=value))
    assert line in found
    assert found.startswith("conf.toml: 1 fault\n  conf.toml:9: flows[0].naming: ")
    assert len(found.splitlines()) == 2


def test_a_module_that_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "policy_that_raises.py").write_text("raise RuntimeError('no licence')\n")
    (tmp_path / "policy_with_a_typo.py").write_text("def f(:\n")
    (tmp_path / "policy_that_lacks.py").write_text("import no_such_library\n")
    (tmp_path / "policy_that_ends.py").write_text("import sys\nsys.exit(4)\n")
    for name, line in (
        ("policy_that_raises", "raised RuntimeError: no licence"),
        ("policy_with_a_typo", "raised SyntaxError: "),
        ("policy_that_lacks", "raised ModuleNotFoundError: No module named 'no_such_library'"),
        ("policy_that_ends", "raised SystemExit: 4"),
    ):
        assert f"importing {name} {line}" in faults(conf(value=f"{name}:Naming"))


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"answer": "a b"}, 'target_topic("orders") returned "a b" (3 characters); allowed: a topic: up to 249'),
        ({"answer": ""}, 'target_topic("orders") returned "" (0 characters); allowed: a topic'),
        ({"answer": "long"}, "(250 characters); allowed: a topic: up to 249"),
        ({"answer": "none"}, 'target_topic("orders") returned nothing; allowed: a topic'),
        ({"answer": 7}, 'target_topic("orders") returned 7; allowed: a topic'),
        ({"answer": ".."}, "Kafka accepts no such name"),
        ({"answer": "__consumer_offsets"}, "allowed: a name that does not belong to Kafka, MirrorMaker 2 or mirrord"),
        (
            {"answer": "x"},
            'source_topic("x") returned nothing; allowed: "orders": it must be the inverse of target_topic',
        ),
        ({"answer": "x", "back": "orders"}, 'hops("x") returned "x" (1 characters); allowed: a tuple or list of alia'),
        ({"anwser": "x"}, "got an unexpected keyword argument 'anwser'; did you mean \"answer\"?"),
    ],
)
def test_a_naming_that_answers_wrongly(settings: dict[str, object], line: str) -> None:
    assert line in faults(conf("naming", f"{SAMPLE}:Answers", settings))


@pytest.mark.parametrize(
    ("key", "settings", "line"),
    [
        ("select", {"answer": ""}, f'flows[0].select: select "{SAMPLE}:Answers": refusal("orders") returned ""'),
        ("select", {"answer": True}, "returned true; allowed: a reason as a string, or None"),
        ("filter_configs", {"answer": 1}, 'passes("cleanup.policy") returned 1; allowed: True or False'),
    ],
)
def test_other_policies_that_answer_wrongly(key: str, settings: dict[str, object], line: str) -> None:
    assert line in faults(conf(key, f"{SAMPLE}:Answers", settings))


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (conf("select", "drafts"), 'found "drafts"; allowed: a class as "module:Class", or the name of an installed'),
        (conf("filter_configs", f"{SAMPLE}:Without"), "the class has no method passes (allowed: a class with passes"),
        (conf("select", f"{SAMPLE}:Without", endings=[[1]]), "flows[0].select_settings: found a table; allowed"),
        (f'{CONF}[flows.naming_settings]\nteam = "x"\n', 'naming = "prefix" takes no settings'),
        (f'{CONF}[flows.select_settings]\nteam = "x"\n', "there is no select that takes them"),
        (f'{CONF}[flows.sync.filter_settings]\nteam = "x"\n', "there is no filter_configs that takes them"),
        (f"{CONF}naming_settings = 3\n", "found 3; allowed: a table of strings, numbers, true or false, and lists"),
        (f"{CONF}naming_settings = {{ a = inf }}\n", "allowed: a table of strings"),
        (f'{CONF}naming_settings = {{ "a b" = 1 }}\n', "the keys are names of arguments"),
        (f"{CONF}naming_settings = {{ a = 2026-01-31 }}\n", "allowed: a table of strings"),
    ],
)
def test_other_faults_of_keys(text: str, line: str) -> None:
    assert line in faults(text)


def test_a_policy_is_tried_only_with_topics_that_the_flow_takes() -> None:
    refuses = conf(value=f"{SAMPLE}:Answers", answer="a b").replace('"orders", "payments.*"', '"nothing-like.[0-9]+x"')
    assert read(refuses).flows
    both = conf(value=f"{SAMPLE}:Answers", answer="a b") + '[flows.select_settings]\nendings = ["s", "d", ".", ""]\n'
    both = both.replace("naming =", f'select = "{SAMPLE}:Without"\nnaming =')
    assert read(both).flows, "all are left out"


def test_without_a_loader_only_names_are_judged() -> None:
    assert load_text(conf(value="no_such_module:Naming"), "conf.toml").flows
    with pytest.raises(ConfigError, match='found "drafts"; allowed: a class as'):
        load_text(conf("select", "drafts"), "conf.toml")


def test_where_a_daemon_runs_it_is_tried_again() -> None:
    config = load_text(conf(value="no_such_module:Naming"), "conf.toml")
    (line,) = policy_faults(config)
    assert line.startswith('flow eu-us: naming: found "no_such_module:Naming"; there is no module no_such_module')
    assert policy_faults(read(conf())) == []


def test_a_configuration_with_policies_survives_being_printed() -> None:
    text = conf("select", f"{SAMPLE}:Without", endings=["a", "b"]).replace(
        "[flows.select_settings]",
        f'naming = "{SAMPLE}:SuffixNaming"\nnaming_settings = {{ between = "_" }}\n'
        f'sync = {{ filter_configs = "{SAMPLE}:Filter" }}\n[flows.select_settings]',
    )
    config = read(text)
    assert read(conf_toml(config)) == config
    odd = {"time_ms": 5, "yes": True, "share": 0.5, "words": ["a", 1], "none": [], "quoted": 'it\'s "so" \\d'}
    config = load_text(conf(value="module:Class", given=odd), "conf.toml")
    assert load_text(conf_toml(config), "conf.toml") == config
    # As it travels to daemons and actors.
    assert msgspec.json.decode(msgspec.json.encode(config), type=Config) == config
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=Config) == config


@pytest.mark.parametrize(
    ("naming", "allowed"),
    [("SuffixNamingWithHops", True), ("SuffixNaming", False), ("OwnHopsOnly", False), ("NoMethods", False)],
)
def test_a_ring_needs_a_naming_that_shows_where_topics_have_been(naming: str, allowed: bool) -> None:
    there = conf(value=f"{SAMPLE}:{naming}")
    back = there[there.index("[[flows]]") :].replace('"eu"', '"x"').replace('"us"', '"eu"').replace('"x"', '"us"')
    if allowed:
        assert len(read(there + back).flows) == 2
    else:
        assert f'naming = "{SAMPLE}:{naming}" in a ring (us -> eu -> us) would copy' in faults(there + back)


def test_a_ring_of_two_kinds_of_names_is_refused() -> None:
    there = conf(value=f"{SAMPLE}:SuffixNamingWithHops").replace("payments", "")
    back = '[[flows]]\nfrom = "us"\nto = "eu"\ntopics = ["orders.*"]\n'
    assert "would copy the same records around the ring forever" in faults(there + back)


def test_two_flows_of_one_naming_meet_where_that_can_be_seen() -> None:
    again = conf() + conf()[CONF.index("[[flows]]") :]
    assert "would both copy topics such as" in faults(again.replace("[[flows]]", '[[flows]]\nname = "a"', 1))


def test_every_verb_that_asks_policies_ends_with_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "conf.toml"
    path.write_text(conf(value=f"{SAMPLE}:SufixNaming"))
    for verb in ("start", "apply", "check", "plan", "topics"):
        assert cli.main([verb, str(path)]) == 2
        line = capsys.readouterr().err
        assert line.startswith(f"mirrord: {path}: 1 fault\n  {path}:9: flows[0].naming: found ")
        assert "Traceback" not in line


def test_a_daemon_can_be_seen_and_stopped_without_its_policies(tmp_path: Path) -> None:
    path = tmp_path / "conf.toml"
    path.write_text(conf(value="no_such_module:Naming"))
    assert load_conf(argparse.Namespace(conf=str(path))).flows[0].naming == "no_such_module:Naming"
    path.write_text(conf(value="a b"))
    with pytest.raises(ConfigError, match="naming: found"):
        load_conf(argparse.Namespace(conf=str(path)))
