"""The command line: exit codes, one message per error, tables, and help texts as golden files."""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import msgspec
import pytest
from rich.console import Console

from mirrord.cli import main as cli
from mirrord.cli import number_formats, reference_page, status_tables, status_watch
from mirrord.cli.verbs import move, start
from mirrord.config.loader import load_file
from mirrord.config.security import Secret
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.names import ClusterId
from mirrord.model.status import (
    ClusterStatus,
    FlowPhase,
    FlowStatus,
    Guarantee,
    LaneStatus,
    LeaseStatus,
    ReplicatorStatus,
    Status,
    Totals,
)

GOLDEN = Path(__file__).parents[2] / "golden" / "help"
WRITE = "MIRRORD_WRITE_GOLDEN"
"""Set it to 1 to rewrite the help texts; then review the difference before committing it."""

CONF = """
[clusters.eu]
bootstrap = "eu:9092"
[clusters.us]
bootstrap = "us:9092"
[[flows]]
from = "eu"
to = "us"
topics = ["orders"]
[[flows]]
from = "us"
to = "eu"
topics = ["orders"]
"""


def lane(partition: int, **known: object) -> LaneStatus:
    values = {"topic": "orders", "partition": partition, "target_topic": "eu.orders", "state": "copying"} | known
    return msgspec.convert(values, LaneStatus)


LANES = (
    lane(0, lag_records=1_234, lag_s=0.25, records_per_s=99.6, source_offset=10, source_end=1_244, protected=False),
    lane(1, lag_records=56_789, lag_s=3_700.0, host="replicator-1"),
    lane(
        2, state="halted", lag_records=1, lag_s=30.0, note="the target refused [7, 8)", verdict_offsets={"control": 3}
    ),
)


def flow(name: str, state: FlowPhase = "running") -> FlowStatus:
    return FlowStatus(
        name=name,
        source=ClusterStatus("eu", ClusterId("a"), True),
        target=ClusterStatus("us", None, False, 5, "connection refused"),
        state=state,
        lease=LeaseStatus("host-1", 4711, "mirrord", "http://127.0.0.1:8182", 3, 1_500),
        totals=Totals.of(LANES),
        lanes=LANES,
    )


STATUS = Status(
    version="0.1.0", instance="mirrord", at_ms=1, gathered="daemon", flows=(flow("eu-us"), flow("us-eu", "standby"))
)


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(status_watch, "gather_status", lambda _: STATUS)
    path = tmp_path / "conf.toml"
    path.write_text(CONF)
    return str(path)


def rendered(render: Callable[[Status], object], status: Status = STATUS) -> str:
    console = Console(width=180)
    with console.capture() as capture:
        console.print(render(status))
    return capture.get()


def test_status_shows_flows_and_what_needs_attention(conf: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", conf]) == 0
    text = capsys.readouterr().out
    assert "2 copying, 1 halted" in text
    assert "58,024" in text
    assert "1 h 01 min" in text
    assert "eu-us: us is unreachable: connection refused" in text
    assert "eu-us: halted orders-2: the target refused [7, 8)" in text
    assert "eu-us: 3 source offsets not copied: control" in text
    assert "us-eu: the lease is held by host-1 pid 4711 (http://127.0.0.1:8182), renewed 1.5 s ago" in text


def test_a_weaker_or_uncertain_guarantee_is_reported() -> None:
    def lines_of(guarantee: Guarantee | None, note: str) -> str:
        shown = msgspec.structs.replace(flow("eu-us"), guarantee=guarantee, guarantee_note=note)
        return rendered(status_tables.status_table, msgspec.structs.replace(STATUS, flows=(shown,)))

    assert "AT LEAST ONCE, records may be duplicated: not met: [gap]" in lines_of("at-least-once", "not met: [gap]")
    assert "eu-us: not probed: no right" in lines_of("exactly-once", "not probed: no right")
    assert "nce" not in lines_of("exactly-once", "").replace("instance", "")


def test_the_nodes_of_replicators_are_shown_if_there_are_several() -> None:
    def lines_of(*nodes: str, **more: object) -> str:
        known = {"pid": 1, "lanes": 2, "cpu_seconds": 1.0, "rss_bytes": 1, "loop_age_ms": 0.0} | more
        made = [
            msgspec.convert({"name": f"replicator-{slot}", "host": "[m]", "node": node} | known, ReplicatorStatus)
            for slot, node in enumerate(nodes)
        ]
        shown = msgspec.structs.replace(flow("eu-us"), replicators=tuple(made))
        return rendered(status_tables.status_table, msgspec.structs.replace(STATUS, flows=(shown,)))

    assert "eu-us: replicators by node: 2 on aaaaaaaa ([m]), 1 on bbbbbbbb ([m])" in lines_of(
        "a" * 56, "b" * 56, "a" * 56
    )
    assert "by node" not in lines_of("a" * 56, "a" * 56)
    assert "eu-us: replicator-0 cannot be reached; it may continue to copy" in lines_of("a" * 56, state="unknown")


def test_lag_shows_the_halted_then_the_furthest_behind(conf: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["lag", conf, "--flow", "eu-us"]) == 0
    text = capsys.readouterr().out
    assert "us-eu" not in text
    rows = [line for line in text.splitlines() if line.startswith("eu-us ")]
    assert [row.split()[1] for row in rows] == ["orders-2", "orders-1", "orders-0"]


@pytest.mark.parametrize("verb", ["status", "lag"])
def test_json_is_the_document(conf: str, capsys: pytest.CaptureFixture[str], verb: str) -> None:
    assert cli.main([verb, conf, "--json", "--flow", "us-eu"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["name"] for each in document["flows"]] == ["us-eu"]


def test_words_of_other_people_are_not_markup() -> None:
    odd = LaneStatus(topic="[red]x[/]", partition=0, target_topic="[b]y", state="halted", note="[/oops]")
    whole = FlowStatus(
        name="f", source=STATUS.flows[0].source, target=STATUS.flows[0].target, state="running", lease=None,
        totals=Totals.of([odd]), lanes=(odd,),
    )  # fmt: skip
    status = Status(version="0", instance="[i]", at_ms=0, gathered="target", flows=(whole,))
    assert "[red]x[/]-0: [/oops]" in rendered(status_tables.status_table, status)
    assert "[b]y" in rendered(status_tables.lag_table, status)
    assert "read from the target alone ([i])" in rendered(status_tables.lag_table, status)


def test_watching_continues_when_nothing_answers(
    conf: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([STATUS, EnvironmentFault("us: connection refused"), STATUS])

    def gather(config: object) -> Status:
        answer = next(answers, None)
        if answer is None:
            raise KeyboardInterrupt
        if isinstance(answer, EnvironmentFault):
            raise answer
        return answer

    monkeypatch.setattr(status_watch, "gather_status", gather)
    monkeypatch.setattr(status_watch.time, "sleep", lambda _: None)
    assert cli.main(["status", conf, "--json", "--watch"]) == 0
    first, second, third = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert second == {"error": "us: connection refused"}
    assert first == third
    answers = iter([EnvironmentFault("us: [connection] refused")])
    assert cli.main(["status", conf, "--watch"]) == 0
    assert "us: [connection] refused" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "-"),
        (0.0, "0 s"),
        (0.85, "850 ms"),
        (12.51, "12.5 s"),
        (200.0, "3 min 20 s"),
        (7_500.0, "2 h 05 min"),
        (878_400.0, "10 d 4 h"),
    ],
)
def test_durations_for_people(seconds: float | None, text: str) -> None:
    assert number_formats.duration(seconds) == text


def test_figures_for_people() -> None:
    assert [number_formats.size(number) for number in (None, 999, 12_345, 2.5e9, 7e12)] == [
        "-",
        "999 B",
        "12.3 kB",
        "2.5 GB",
        "7.0 TB",
    ]
    assert [number_formats.share(part) for part in (None, 1.0, 0.99999, 0.5)] == ["-", "100 %", "99.9 %", "50.0 %"]


def test_an_unknown_verb_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["statsu"]) == 2
    assert 'mirrord: no verb "statsu"; did you mean "status"? (verbs: ' in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [[], ["status", "--no-such-option"], ["status", "a", "b"]])
def test_wrong_usage_ends_with_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(arguments)
    assert ended.value.code == 2
    assert "usage: mirrord" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--vrsion", 'mirrord: error: no option "--vrsion"; did you mean "--version"?'),
        ("status --jsn", 'mirrord status: error: no option "--jsn"; did you mean "--json"?'),
        ("status --nonsense=3 --json", 'error: no option "--nonsense"\n'),
        ("gaps --sinse 1h a.toml", 'error: no option "--sinse"; did you mean "--since"?'),
        # Because of this fault another option is missing.
        ("quarantine skip orders-0 5 --wy text", 'error: no option "--wy"; did you mean "--why"?'),
        ("quarantine --flw x list", 'mirrord quarantine: error: no option "--flw"'),
        (
            "quarantine lst",
            'error: argument VERB: found "lst"; allowed: list, show, skip, replay; did you mean "list"?',
        ),
        ("audit --level diggest", 'error: argument --level: found "diggest"; allowed: '),
        ("quarantine skip orders-0 5 c.toml", "the following arguments are required: --why"),
    ],
)
def test_a_mistyped_word_names_the_nearest(words: str, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words.split())
    assert ended.value.code == 2
    assert line in capsys.readouterr().err


def test_a_wrong_configuration_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "conf.toml"
    path.write_text(CONF.replace('"eu:9092"', '"eu"').replace('to = "us"', 'to = "su"'))
    assert cli.main(["status", str(path)]) == 2
    error = capsys.readouterr().err
    assert f"{path}: 2 faults" in error
    assert "Traceback" not in error
    assert cli.main(["lag", str(tmp_path / "none.toml")]) == 2
    assert "no such file" in capsys.readouterr().err


def test_an_unknown_flow_ends_with_2(conf: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["status", conf, "--flow", "eu-su"]) == 2
    assert 'no flow "eu-su" in the configuration; there are: eu-us, us-eu.' in capsys.readouterr().err


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[BaseException], int]:
    """Runs a command that raises."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    module = ModuleType("failing")
    raised: list[BaseException] = []

    def run(arguments: argparse.Namespace) -> int:
        raise raised[0]

    vars(module).update(register=lambda verbs: verbs.add_parser("fail"), run=run)
    monkeypatch.setitem(sys.modules, "failing", module)
    monkeypatch.setitem(cli.VERBS, "fail", "failing")

    def call(error: BaseException) -> int:
        raised[:] = [error]
        return cli.main(["fail"])

    return call


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ConfigError("conf.toml: wrong"), 2, "mirrord: conf.toml: wrong\n"),
        (EnvironmentFault("us: refused"), 1, "mirrord: us: refused\n"),
        (KeyboardInterrupt(), 130, ""),
    ],
)
def test_errors_become_messages_and_codes(
    failing: Callable[[BaseException], int],
    capsys: pytest.CaptureFixture[str],
    error: Exception,
    code: int,
    message: str,
) -> None:
    assert failing(error) == code
    assert capsys.readouterr().err == message


def test_an_internal_error_leaves_its_traceback_in_a_file(
    failing: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert failing(RuntimeError("broken")) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("mirrord: internal error: RuntimeError: broken; details in ")
    assert "Traceback" in Path(line.rpartition(" in ")[2]).read_text()


def test_an_internal_error_shows_no_secret(
    failing: Callable[[BaseException], int], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRRORD_TEST_SECRET", "swordfish-1")
    Secret.parse("env:MIRRORD_TEST_SECRET").resolve()
    assert failing(RuntimeError("refused: user=u password=swordfish-1")) == 1
    line = capsys.readouterr().err
    assert "RuntimeError: refused: user=u password=***; details in" in line
    assert "swordfish-1" not in line + Path(line.strip().rpartition(" in ")[2]).read_text()


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path: Path) -> None:
    command = (
        "import sys, types; from mirrord.cli import main as cli; verb = types.ModuleType('verb');"
        "verb.register = lambda verbs: verbs.add_parser('talk');"
        "verb.run = lambda arguments: [print('x' * 1000) for _ in range(1000)] and 0;"
        "sys.modules['verb'] = verb; cli.VERBS['talk'] = 'verb'; sys.exit(cli.main(['talk']))"
    )
    talker = subprocess.Popen([sys.executable, "-c", command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert talker.stdout is not None
    assert talker.stderr is not None
    talker.stdout.read(1)
    talker.stdout.close()
    errors = talker.stderr.read()
    talker.stderr.close()
    assert (talker.wait(), errors) == (0, b"")


MM2 = """
clusters = eu, us
eu.bootstrap.servers = eu:9092
us.bootstrap.servers = us:9092
eu->us.enabled = true
us->eu.enabled = true
eu->us.topcs = orders
us.security.protocol = SASL_PLAINTEXT
us.sasl.mechanism = PLAIN
us.sasl.jaas.config = org.apache.kafka.common.security.plain.PlainLoginModule required username="me" password="hunter2";
"""


@pytest.fixture
def mm2(tmp_path: Path) -> str:
    path = tmp_path / "mm2.properties"
    path.write_text(MM2)
    return str(path)


def test_a_file_of_mirrormaker_is_converted(mm2: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["convert", mm2]) == 0
    printed = capsys.readouterr().out
    assert f"# {mm2}:7: eu->us.topcs: unknown; did you mean" in printed
    assert "hunter2" not in printed
    path = tmp_path / "conf.toml"
    path.write_text(printed)
    assert load_file(str(path)).config == load_file(mm2).config
    assert cli.main(["convert", mm2, "--clusters", "us"]) == 0
    assert capsys.readouterr().out.count("[[flows]]") == 1
    assert cli.main(["convert", mm2, "--clusters", "usa"]) == 2
    assert 'no cluster "usa" has a flow; there are: eu, us. Did you mean "us"?' in capsys.readouterr().err


def test_a_file_of_mirrormaker_with_a_java_class_is_refused(mm2: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path(mm2).write_text(MM2 + "replication.policy.class = com.example.Mine\n")
    for verb in ("convert", "status", "start"):
        assert cli.main([verb, mm2]) == 2
        assert "Use instead: the policy naming" in capsys.readouterr().err
    assert cli.main(["convert", f"{mm2}.properties"]) == 2
    assert "no such file" in capsys.readouterr().err


def test_reading_verbs_take_a_file_of_mirrormaker(
    mm2: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(status_watch, "gather_status", lambda _: STATUS)
    assert cli.main(["status", mm2]) == 0
    assert "eu-us" in capsys.readouterr().out


def test_a_start_reports_what_is_not_translated(
    mm2: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(start, "start_detached", lambda conf, options: started.append([conf, *options]) or 0)
    assert cli.main(["start", mm2, "--clusters", "us", "--detach", "--flow", "eu-us"]) == 0
    assert started == [[mm2, "--flow", "eu-us", "--clusters", "us"]]
    assert f"mirrord: {mm2}:7: eu->us.topcs: unknown; did you mean" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words",
    ["orders-0 --to r1 a.toml", "--to r1 orders-0 a.toml", "orders-0 a.toml --to r1", "--json orders-0 --to r1 a.toml"],
)
def test_options_may_stand_anywhere(words: str) -> None:
    parsed = cli.parser({"move": move}).parse_args(["move", *words.split()])
    assert (parsed.conf, parsed.to, parsed.name) == ("a.toml", "r1", "orders-0")


def help_text(arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as ended:
        cli.main([*arguments, "--help"])
    assert ended.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("verb", ["", *cli.VERBS])
def test_help_texts_are_golden(verb: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    text = help_text([verb] if verb else [], monkeypatch, capsys)
    path = GOLDEN / f"{verb or 'mirrord'}.txt"
    if os.environ.get(WRITE) == "1":
        path.write_text(text)
    assert path.is_file(), f"no golden help text; {WRITE}=1 writes it"
    assert text == path.read_text(), f"{WRITE}=1 writes it anew"


def test_no_golden_help_text_is_left_over() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == {"mirrord", *cli.VERBS}


def test_the_reference_page_has_the_golden_help_texts() -> None:
    texts = {verb: (GOLDEN / f"{verb or 'mirrord'}.txt").read_text() for verb in ("", *cli.VERBS)}
    written = (GOLDEN.parents[2] / "docs" / "reference" / "cli.md").read_text()
    assert written == reference_page.page(texts), "python -m mirrord.cli.reference_page > docs/reference/cli.md"


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("mirrord 0.")


def test_messages_show_no_control_characters(capsys: pytest.CaptureFixture[str]) -> None:
    """Names from a ledger or a broker could otherwise clear the terminal, or write lines that mirrord never wrote."""
    assert cli.main(["\x1b[2Jverb\r"]) == 2
    assert 'mirrord: no verb "?[2Jverb?"' in capsys.readouterr().err
