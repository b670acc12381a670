"""What the question about a hostile source calculates, and its tables."""

from array import array
from pathlib import Path

import msgspec
import pytest

from bench.faults.hostile.broker import Received
from bench.faults.hostile.rotation import Phase
from bench.questions.hostile import Delay, Hostile, Peak, added, by_attack, delay, summed, tracebacks
from bench.questions.run import MINUTES, Order
from bench.report import pages, tables
from mirrord.model.errors import EnvironmentFault

QUIET = Delay(records=60_000, p50_ms=2.0, p99_ms=5.0, p999_ms=9.0, max_ms=20.0)


def result(p99_ms: float = 9.0, **changed: object) -> Hostile:
    whole = Hostile(
        engine="process",
        minutes=10.0,
        quiet=QUIET,
        attack=Delay(records=600_000, p50_ms=2.0, p99_ms=p99_ms, p999_ms=30.0, max_ms=90.0),
        records=700_000,
        differences={"missing": 0, "doubled": 0},
        same_daemon=True,
        healthy_lanes={"copying": 4},
        replicators_ended=0,
        tracebacks=0,
        peaks=[Peak(process="mirrord start", quiet_bytes=150_000_000, attack_bytes=420_000_000)],
        attacks=[Received(attack="zstd bomb", seconds=30.0, connections=2, requests=80, hits=12)],
        p99_by_attack_ms={"zstd bomb": 8.25},
    )
    return msgspec.structs.replace(whole, **changed)


def test_a_healthy_flow_that_is_unharmed_has_no_faults() -> None:
    assert result().faults == []


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        (result(10.5), "the p99 is 2.1 times the quiet one; allowed: 2"),
        (
            result(quiet_before=QUIET, quiet_after=msgspec.structs.replace(QUIET, p99_ms=20.0)),
            "the p99 of one quiet period is 4.0 times that of the other one: the machine was not quiet; allowed: 3",
        ),
        (result(differences={"missing": 3, "doubled": 0}), "3 records of the healthy topic are missing"),
        (result(differences={"missing": 0, "doubled": 1}), "1 records of the healthy topic are doubled"),
        (result(same_daemon=False), "the daemon has ended"),
        (
            result(healthy_lanes={"copying": 3, "halted": 1}),
            "the healthy flow does not copy all partitions: {'copying': 3, 'halted': 1}",
        ),
        (result(healthy_lanes={}), "the healthy flow does not copy all partitions: {}"),
        (
            result(attacks=[Received(attack="1 iteration", seconds=3.0, hits=2, proofs=2)]),
            "2 proofs of the password followed 1 iteration",
        ),
        (
            result(attacks=[Received(attack="zstd bomb", seconds=30.0, requests=80)]),
            "no answer with zstd bomb was sent",
        ),
        (result(tracebacks=2), "there are 2 tracebacks in the logs"),
    ],
)
def test_each_harm_is_one_fault(bad: Hostile, fault: str) -> None:
    assert bad.faults == [fault]


def test_a_period_contains_the_records_that_were_sent_in_it() -> None:
    sent, source, target = array("q", [0, 10, 20]), array("q", [1, 11, 21]), array("q", [1, 2_000_011, 21])
    assert added((sent, source, target), 10, 20) == [2.0]


def test_each_record_belongs_to_the_attack_during_which_it_was_sent() -> None:
    sent = array("q", range(0, 4_000_000_000, 1_000_000))
    target = array("q", [at + (5_000_000 if 1_000_000_000 <= at < 2_000_000_000 else 1_000_000) for at in sent])
    phases = [Phase(0, "silence", 3, 1.0), Phase(1, "zstd bomb", 3, 1.0), Phase(2, "silence", 3, 1.0)]
    assert by_attack((sent, sent, target), phases, 0) == {"silence": 1.0, "zstd bomb": 5.0}
    assert by_attack((sent, sent, target), phases, 4_000_000_000) == {}


def test_percentiles_need_enough_records() -> None:
    found = delay([float(at) for at in range(1, 10_001)])
    assert (found.p50_ms, found.p99_ms, found.p999_ms) == pytest.approx((5_000.5, 9_900.99, 9_990.999))
    assert found.max_ms == 10_000.0
    with pytest.raises(EnvironmentFault, match="10 records arrived in one period"):
        delay([1.0] * 10)


def test_phases_of_one_attack_are_added_up() -> None:
    phases = [
        Received(attack=name, seconds=1.5, connections=1, requests=2, hits=3)
        for name in ("silence", "random", "silence")
    ]
    assert summed(phases) == [
        Received(attack="silence", seconds=3.0, connections=2, requests=4, hits=6),
        phases[1],
    ]


def test_a_traceback_in_log_and_output_counts_once(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    assert not tracebacks(tmp_path)
    for path in (logs / "daemon.log", tmp_path / "bench.out"):
        path.write_text(
            '{"exception": "Traceback (most recent call last):\\n  File \\"x.py\\"\\n    x()\\nKeyError: 7"}\n'
        )
    assert dict(tracebacks(tmp_path)) == {'KeyError: 7"}': 1}
    (logs / "worker.log").write_text("Traceback (most recent call last):\n  File\nOSError: no\n\nlater\n")
    assert tracebacks(tmp_path)["OSError: no"] == 1


def test_the_tables_show_both_periods_and_every_attack() -> None:
    found = tables.TABLES["hostile"](msgspec.to_builtins([result()]))
    assert all(len(row) == len(table.head) for table in found for row in table.rows)
    delays, states, peaks, attacks = (table.rows for table in found)
    assert delays[0] == ["process, quiet", "60,000", "2.0", "5.0", "9.0", "20.0", "1.00"]
    assert delays[1] == ["process, attack", "600,000", "2.0", "9.0", "30.0", "90.0", "1.80"]
    assert states == [["process", "700,000", "none", "yes", "0", "0"]]
    assert peaks == [["process: mirrord start", "150", "420"]]
    assert attacks == [["process: zstd bomb", "30", "2", "80", "12", "8.2"]]


def test_the_page_names_the_command() -> None:
    last = {
        "at": "2026-11-29", "commit": "c", "machine": "2 cores", "versions": {"kafka": "4"}, "share": 1.0, "seed": 7,
        "load": 0.1, "results": msgspec.to_builtins([result()]),
    }  # fmt: skip
    section = pages._question("hostile", [last])
    assert section.startswith("## A hostile source next to a healthy flow\n")
    assert "`python -m bench.run --question hostile`" in section


def test_each_question_has_its_own_usual_duration() -> None:
    order = Order(engines=("process",), share=1.0, seed=1)
    assert {name: order.minutes_of(name) for name in MINUTES} == {"soak": 120.0, "hostile": 10.0}
    assert order._replace(minutes=3.0).minutes_of("hostile") == 3.0
