"""How long a busy topic is stopped, as `make bench` counts it, and the pages about new topics and about a thousand."""

import time
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from bench.harness.arrivals import largest_gap_ms
from bench.questions import discovery, topics
from bench.questions.discovery import Cost, Kept, Rest
from bench.questions.kills import Kills
from bench.questions.move_phases import PHASES, Move, phases_of
from bench.questions.moves import Moves
from bench.questions.topics import Gap, Topics
from bench.report import tables

MS = 1_000_000


def test_the_largest_gap_is_that_of_the_worst_partition_and_counts_whole_across_the_ends() -> None:
    steady = [at * MS for at in range(0, 100, 10)]
    stands = [0, 10 * MS, 60 * MS, 70 * MS]
    assert largest_gap_ms([steady], 0, 90 * MS) == 10
    assert largest_gap_ms([steady, stands], 0, 70 * MS) == 50
    assert largest_gap_ms([steady, stands], 30 * MS, 40 * MS) == 50
    assert largest_gap_ms([steady, stands], 60 * MS, 70 * MS) == 10
    assert largest_gap_ms([[]], 0, 7 * MS) == 7


def test_each_kind_of_window_is_compared_with_quiet_ones() -> None:
    gaps = [Gap(what=what, target_ms=[20.0, 10.0 + at], source_ms=[5.0]) for at, what in enumerate((topics.QUIET, "x"))]
    found = Topics(
        engine="process", records_per_s=1_000, window_s=10.0, gaps=gaps, new_topic_s=[1.0, 2.0, 6.0], all_new_s=[7.0]
    )
    stands, waits = tables.TABLES["topics"](msgspec.to_builtins([found]))
    assert stands.rows[0] == [f"process: {topics.QUIET}", "2", "10, 15, 20", "1.00", "5, 5, 5"]
    assert stands.rows[1][2:4] == ["11, 16, 20", "1.03"]
    assert waits.rows[0] == ["process: one new topic", "1.00", "2.00", "6.00", "6", "3"]


def test_a_move_is_shown_next_to_the_others_and_the_source() -> None:
    found = Moves(
        engine="ray",
        records_per_s=1_000,
        moved_ms=[float(at) for at in range(1, 101)],
        others_ms=[5.0],
        quiet_ms=[4.0],
        source_ms=[3.0],
        phases=[
            Move(gap_ms=100.0, phases=dict.fromkeys(PHASES, 2.0)),
            Move(gap_ms=50.0, phases={}),
            Move(gap_ms=7.0, phases=dict.fromkeys(PHASES, 1.0)),
        ],
        records=1_234,
        difference="",
    )
    stands, phases, copies = tables.TABLES["moves"](msgspec.to_builtins([found]))
    assert stands.rows[0] == ["ray: the moved partition", "100", "50", "99", "100", "250"]
    assert stands.rows[1][1:] == ["1", "5", "5", "5", "-"]
    assert copies.rows == [["ray", "1,234", "none"]]
    shown = [(row[0], row[1], set(row[2:])) for row in phases.rows]
    slow = [("ray: slow", "100", {"2.0"}), ("ray: slow", "7", {"1.0"})]
    assert shown == [("ray: p50", "7", {"1.0"}), ("ray: p99", "100", {"2.0"}), *slow]


def test_a_kill_is_compared_with_twice_the_worst_result_without_one() -> None:
    found = Kills(
        engine="ray",
        records_per_s=1_000,
        window_s=5.0,
        killed_ms=[900.0, 1_100.0],
        others_ms=[20.0, 30.0],
        resized_ms=[25.0],
        quiet_ms=[15.0, 140.0],
        source_ms=[3.0],
        records=1_234,
        difference="",
    )
    stands, copies = tables.TABLES["kills"](msgspec.to_builtins([found]))
    assert stands.rows[0][1:] == ["2", "1000", "1100", "1100", "5,000"]
    assert stands.rows[1][1:] == ["2", "25", "30", "30", "280"]
    assert copies.rows == [["ray", "1,234", "none"]]


def test_what_a_move_waited_for_is_read_from_the_logs(tmp_path: Path) -> None:
    began_ns = time.monotonic_ns()
    ahead_ms = (time.time_ns() - time.monotonic_ns()) / 1e6

    def line(event: str, after_ms: float, **more: float) -> bytes:
        at = datetime.fromtimestamp((began_ns / 1e6 + ahead_ms + after_ms) / 1000, UTC)
        return msgspec.json.encode({"event": event, "lane": "x", "timestamp": at.isoformat(), **more}) + b"\n"

    moved = {"ledger_ms": 1.0, "grant_ms": 6.0, "fetch_ms": 4.0, "target_ms": 7.0, "produce_ms": 20.0}
    (tmp_path / "one.log").write_bytes(line("lane_left", 50, drain_ms=10.0) + line("another", 51))
    (tmp_path / "two.log").write_bytes(line("lane_moved", 5, **moved) + line("lane_moved", 80, **moved))
    (move,) = phases_of(tmp_path, [(began_ns, began_ns + 100 * MS)], [33.0])
    expected = [40, 10, 10, 1, 5, 1, 0, 13]
    assert list(move.phases) == list(PHASES)
    assert [move.phases[phase] for phase in PHASES] == pytest.approx(expected, abs=0.5)
    assert phases_of(tmp_path, [(began_ns + 60 * MS, began_ns + 100 * MS)], [1.0])[0].phases == {}


def test_rounds_and_rest_are_shown_next_to_their_goals() -> None:
    costs = [Cost(what=discovery.AT_REST, rounds=10, median_s=0.02, greatest_s=0.03)]
    found = Kept(
        topics=1_000, partitions=3, costs=costs, rests=[Rest(what=discovery.STEADY, seconds=60.0, core_share=0.021)]
    )
    rounds, rest = tables.TABLES["discovery"](msgspec.to_builtins([found]))
    assert "1,000 topics of 3 partitions" in rounds.title
    assert rounds.rows == [[discovery.AT_REST, "10", "0.020", "0.030", "1"]]
    assert rest.rows == [[discovery.STEADY, "2.1%", "5 %", "60"]]
