"""`mirrord ledger`: what is printed if something is wrong, and how `tail` follows."""

import asyncio
import json
from pathlib import Path

import pytest

from mirrord.cli.main import main
from mirrord.cli.verbs import ledger as verb
from mirrord.ledger.codec import VERSION, encode_entry
from mirrord.ledger.errors import LedgerMissing
from mirrord.ledger.facts.core import LaneTaken, LeaseTaken, SourceRun, Verdict
from mirrord.ledger.state_topic_records import LEASE_KEY
from mirrord.ledger.store.log_interface import StateRow
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.ledger.store.store import LedgerStore
from mirrord.model.runs import Run
from mirrord.runtime.clock import SystemClock
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened
from tests.fixtures.ledger_contract import LANE, start_flow

FLOWS = '[[flows]]\nfrom = "eu"\nto = "us"\ntopics = [".*"]\n'
SEVERAL = FLOWS + '[[flows]]\nname = "back"\nfrom = "us"\nto = "eu"\ntopics = [".*"]\n'


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> MemoryLedger:
    facts = [
        entry(FLOW, epoch=0),
        entry(LeaseTaken(1, HOLDER, 6000)),
        entry(opened(0), opened(1), LaneTaken(LANE, 1, "r1")),
    ]
    memory = MemoryLedger(entries=[encode_entry(one) for one in facts])
    monkeypatch.setattr(verb, "KafkaLog", lambda *_: MemoryLog(memory))
    return memory


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    path = tmp_path / "conf.toml"
    write(path, FLOWS)
    return path


def write(path: Path, flows: str) -> None:
    path.write_text(f'[clusters.eu]\nbootstrap = "eu:1"\n[clusters.us]\nbootstrap = "us:1"\n{flows}')


def test_a_lane_is_chosen_by_name_or_id(ledger: MemoryLedger, conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("orders-0", LANE):
        assert main(["ledger", "show", "--lane", name, str(conf)]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert [line.split()[4] for line in lines] == ["lane_opened", "lane_taken"]


def test_an_unknown_lane_is_named(ledger: MemoryLedger, conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["ledger", "show", "--lane", "order-0", str(conf)]) == 2
    errors = capsys.readouterr().err
    assert errors == 'mirrord: the ledger of eu-us has no lane "order-0"; did you mean "orders-0"?\n'


def test_of_several_flows_one_is_chosen(ledger: MemoryLedger, conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(conf, SEVERAL)
    assert main(["ledger", "show", str(conf)]) == 2
    assert "there are several flows: choose one with --flow (eu-us, back)" in capsys.readouterr().err
    assert main(["ledger", "show", "--flow", "back", str(conf)]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 5


def test_a_flow_without_a_ledger_is_said(
    conf: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Missing(MemoryLog):
        async def open(self, *, create: bool) -> None:
            assert not create
            raise LedgerMissing("there is no flow eu-us on this cluster")

    monkeypatch.setattr(verb, "KafkaLog", lambda *_: Missing(MemoryLedger()))
    assert main(["ledger", "show", str(conf)]) == 1
    assert capsys.readouterr().err == "mirrord: there is no flow eu-us on this cluster\n"


def test_what_cannot_be_read_is_shown_in_its_place(
    ledger: MemoryLedger, conf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.entries.insert(2, bytes([VERSION + 1]) + b"\x90")
    assert main(["ledger", "show", str(conf)]) == 0
    line = f"       2  a ledger record has version {VERSION + 1}, but this program knows only versions 1 to {VERSION}\n"
    assert line in capsys.readouterr().out
    assert main(["ledger", "show", "--json", str(conf)]) == 0
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert "error" in documents[2]


def test_long_facts_are_cut_short(ledger: MemoryLedger, conf: Path, capsys: pytest.CaptureFixture[str]) -> None:
    runs = tuple(Run(number, number * 3) for number in range(10))
    verdicts = tuple(Verdict(number * 3 + 1, number * 3 + 3, "control") for number in range(9))
    ledger.entries.append(encode_entry(entry(SourceRun(LANE, 1, runs, verdicts))))
    assert main(["ledger", "show", str(conf)]) == 0
    assert (
        capsys.readouterr()
        .out.splitlines()[-1]
        .endswith(
            "orders-0: will write ordinal 0 from source offset 0, ordinal 1 from source offset 3, "
            "ordinal 2 from source offset 6, and 7 more runs; not copied: control [1, 3) [4, 6) [7, 9) and 6 more"
        )
    )


async def test_of_a_trimmed_ledger_the_rest_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    ledger = MemoryLedger()
    store = LedgerStore(MemoryLog(ledger), SystemClock())
    await store.open()
    await start_flow(store)
    await store.trim(kept_entries=1)
    await store.append(1, [LaneTaken(LANE, 5, "r5")])
    reading = verb.LedgerReading(MemoryLog(ledger))
    reads = [read async for read in reading.entries(follow=False)]
    # What the entry below the trimmed part bound is no longer known.
    assert [(read.offset, read.bound) for read in reads] == [(2, None), (3, (False,))]
    await store.close()


async def test_tail_shows_the_last_facts_and_follows(capsys: pytest.CaptureFixture[str]) -> None:
    ledger = MemoryLedger()
    store = LedgerStore(MemoryLog(ledger), SystemClock())
    await store.open()
    await start_flow(store, lanes=6)
    reading = verb.LedgerReading(MemoryLog(ledger))
    printer = verb._Printer("eu-us", reading, None, as_json=False)  # pyright: ignore[reportPrivateUsage]
    tail = asyncio.create_task(verb._tail(reading, printer))  # pyright: ignore[reportPrivateUsage]
    lines: list[str] = []
    async with asyncio.timeout(20):
        while len(lines) < 10:
            await asyncio.sleep(0)
            lines += capsys.readouterr().out.splitlines()
        assert "orders-1: opened" in lines[0]
        await store.append(1, [LaneTaken(lane_id(3), 2, "r9")])
        while len(lines) < 11:
            await asyncio.sleep(0)
            lines += capsys.readouterr().out.splitlines()
    assert lines[10].endswith("orders-3: grant 2 taken by r9")
    tail.cancel()
    await store.close()


def test_skipping_a_record_is_recorded_with_author_and_reason(
    ledger: MemoryLedger, conf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.entries.insert(2, b"\x09\x94")
    why = ["--reason", "a tool wrote it"]
    assert main(["ledger", "skip", "--offset", "2", *why, str(conf)]) == 0
    assert capsys.readouterr().out == ("eu-us: ordered: all readers skip the record at offset 2 of memory.ledger\n")
    assert main(["ledger", "show", str(conf)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].startswith("       2  a ledger record cannot be read")
    assert lines[2].endswith("(skipped)")
    assert "record_skipped    the record at ledger offset 2 is skipped, by" in lines[-1]
    assert lines[-1].endswith(": a tool wrote it")


def test_a_record_of_the_state_topic_is_skipped(
    ledger: MemoryLedger, conf: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ledger.rows.append(StateRow(LEASE_KEY, b"\x09\x94"))
    assert main(["ledger", "show", str(conf)]) == 1
    assert "`mirrord ledger skip --state --offset 0` skips exactly this record" in capsys.readouterr().err
    order = ["ledger", "skip", "--state", "--reason", "a disk was damaged", "--offset"]
    assert main([*order, "1", str(conf)]) == 2
    assert capsys.readouterr().err == "mirrord: --offset: memory.state has no record at offset 1\n"
    assert main([*order, "0", str(conf)]) == 0
    assert capsys.readouterr().out == (
        "eu-us: done: the record at offset 0 of memory.state is no longer in force, and is removed (its key: 'lease')\n"
    )
    assert main(["ledger", "show", str(conf)]) == 0
    line = capsys.readouterr().out.splitlines()[-1]
    assert "the record 'lease' at offset 0 of the state topic is skipped, by" in line
    assert line.endswith(": a disk was damaged")


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        (["--offset", "1", "--reason", "x"], "can be read; only records that cannot be read may be skipped"),
        (["--offset", "9", "--reason", "x"], "memory.ledger has no offset 9; it has the offsets 0 to 2"),
        (["--offset", "1", "--reason", "a\nb"], "--reason: one line"),
        (["--offset", "1", "--reason", " "], "--reason: it is empty"),
    ],
)
def test_what_cannot_be_skipped_is_named(
    ledger: MemoryLedger, conf: Path, capsys: pytest.CaptureFixture[str], options: list[str], fault: str
) -> None:
    assert main(["ledger", "skip", *options, str(conf)]) == 2
    assert fault in capsys.readouterr().err
    assert ledger.end == 3
