"""`mirrord compact` on the command line, without brokers and Spark: what is refused before anything begins."""

from pathlib import Path

import pytest

from mirrord.cli.main import main
from mirrord.config.loader import load_text
from mirrord.config.writer import conf_toml
from mirrord.jobs import session
from mirrord.ledger.codec import decode_entry
from mirrord.ledger.facts.archive import CompactionBegan
from mirrord.ledger.store import cluster_access
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.model.errors import EnvironmentFault
from tests.fixtures.long_ledger import long_ledger

CONF = (
    '[clusters.eu]\nbootstrap = "127.0.0.1:1"\n[clusters.us]\nbootstrap = "127.0.0.1:1"\n'
    '[[flows]]\nfrom = "eu"\nto = "us"\ntopics = [".*"]\n'
)


@pytest.fixture
def conf(tmp_path: Path) -> str:
    path = tmp_path / "conf.toml"
    path.write_text(f'{CONF}[compact]\npath = "maps"\n')
    return str(path)


def use(ledger: MemoryLedger, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_access, "KafkaLog", lambda *_, **__: MemoryLog(ledger))


def begun(ledger: MemoryLedger) -> int:
    facts = [fact for row in ledger.entries if row for fact in decode_entry(row).facts]
    return sum(isinstance(fact, CompactionBegan) for fact in facts)


def refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    assert main(["compact", *words]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("mirrord: ")
    assert len(errors.splitlines()) == 1
    return errors


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--least", "0"], "--least: found 0; allowed: a whole number from 1 on"),
        (["--topics", "a("], '--topics: found "a("; allowed: a regular expression'),
        (["--topics", "(a+)+b"], '--topics: found "(a+)+b"; allowed: a regular expression'),
        (["--spark", "master=local"], '--spark: found "master=local"; allowed: a setting such as spark.master='),
        (["--spark", "spark.master=foo"], '--spark spark.master: found "foo"; allowed: such as local[2], spark://'),
        (["--flow", "eu-uss"], 'no flow "eu-uss" in the configuration'),
    ],
)
def test_what_is_refused(options: list[str], line: str, conf: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert line in refused([*options, conf], capsys)


def test_a_folder_is_needed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "conf.toml"
    path.write_text(CONF)
    assert "[compact] path is missing" in refused([str(path)], capsys)


def test_a_folder_that_cannot_be_written_to(
    conf: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use(long_ledger(30_000), monkeypatch)
    (tmp_path / "maps").write_text("a file")
    assert "[compact] path: nothing can be written to" in refused([conf], capsys)


def test_without_spark_nothing_is_begun(
    conf: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = long_ledger(30_000)
    use(ledger, monkeypatch)

    def no_java(why: str) -> None:
        raise EnvironmentFault(f"{why}; there is none")

    monkeypatch.setattr(session, "find_java", no_java)
    rows = len(ledger.rows)
    assert "Java" in refused([conf, "--least", "8192"], capsys)
    assert (begun(ledger), len(ledger.rows)) == (0, rows)
    assert list((tmp_path / "maps").iterdir()) == []


def test_without_enough_to_be_moved_spark_is_not_needed(
    conf: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = long_ledger(30_000)
    use(ledger, monkeypatch)
    assert main(["compact", conf, "--json"]) == 0
    assert '"generation":null,"runs":0' in capsys.readouterr().out
    assert begun(ledger) == 0


def test_the_folder_stands_in_the_configuration() -> None:
    config = load_text(f'{CONF}[compact]\npath = "maps"\n', "conf.toml")
    assert (config.compact.path, config.flows[0].archive) == ("maps", "maps")
    below = config.below(Path("/srv"))
    assert (below.compact.path, below.flows[0].archive) == ("/srv/maps", "/srv/maps")
    assert load_text(conf_toml(below), "conf.toml") == below
    assert load_text(CONF, "conf.toml").flows[0].archive is None
