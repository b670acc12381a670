"""The comparison of two checkouts: its arithmetic, and which code it runs."""

import sys
from pathlib import Path

import pytest

from bench.harness.copying import Cost
from bench.harness.instructions import Count, counted, per_batch
from bench.questions import paired
from bench.questions.paired import Comparison, Figures, Instructions, Pair
from bench.questions.throughput import HERE
from mirrord.model.errors import EnvironmentFault


def pairs(*cpu_s: tuple[float, float]) -> list[Pair]:
    return [Pair(Figures(base, 500.0), Figures(here, 400.0)) for base, here in cpu_s]


def test_a_copy_is_reported_by_stored_bytes() -> None:
    cost = Cost(
        copied_bytes=500_000_000, batches=1, records=1, cpu_s=0.6, wall_s=2.0, user_s=0.1, ticks={}, step_ticks=0,
        idle_bytes=0, peak_bytes=0,
    )  # fmt: skip
    assert paired.figures(cost) == pytest.approx(Figures(1.2, 250.0))


def test_the_median_of_the_ratios_decides_and_not_the_ratio_of_the_medians() -> None:
    # The machine gets slower from pair to pair: the medians alone (2.0 and 2.02) would show 1 %.
    comparison = Comparison("lz4", "64KiB", pairs((1.0, 1.05), (2.0, 2.1), (3.0, 2.02)))
    assert comparison.ratio == pytest.approx(1.05)
    assert paired.too_dear([comparison], 1.02) == [comparison]
    assert paired.too_dear([comparison], 1.06) == []


def test_a_ratio_at_the_limit_is_not_above_it() -> None:
    assert paired.too_dear([Comparison("none", "16KiB", pairs((1.0, 1.5)))], 1.5) == []


def test_the_table_has_both_sides() -> None:
    table = paired.table([Comparison("lz4", "64KiB", pairs((1.0, 1.1), (2.0, 1.8), (4.0, 4.0)))])
    assert table.rows == [
        ["lz4", "64KiB", "base", "1.000, 2.000, 4.000", "500, 500, 500", "", ""],
        ["lz4", "64KiB", "this", "1.100, 1.800, 4.000", "400, 400, 400", "0.900, 1.000, 1.100", "1.000"],
    ]


def test_only_a_checkout_is_compared_with(tmp_path: Path) -> None:
    with pytest.raises(EnvironmentFault, match=r"is not a checkout of mirrord: it has no mirrord/__init__\.py"):
        paired.other_checkout(tmp_path)


def test_a_checkout_without_an_interpreter_is_run_by_this_one_and_with_its_own_code(tmp_path: Path) -> None:
    for folder in ("mirrord", "bench"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").touch()
    (tmp_path / "bench" / "copying.py").touch()
    assert paired.other_checkout(tmp_path) == (tmp_path.resolve(), sys.executable)


def test_code_of_another_tree_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mirrord").symlink_to(HERE.folder / "mirrord")
    (tmp_path / "bench").symlink_to(HERE.folder / "bench")
    with pytest.raises(EnvironmentFault, match="which is not from"):
        paired.other_checkout(tmp_path)


def test_instructions_of_start_and_end_do_not_count() -> None:
    assert per_batch(Count(2_000, 5_000_000), Count(10_000, 13_000_000)) == 1_000
    with pytest.raises(ValueError, match="10 batches are not more than 10"):
        per_batch(Count(10, 1), Count(10, 2))


def test_counts_decide_as_times_do() -> None:
    counts = [Instructions(80_000, 84_000), Instructions(80_000, 80_800), Instructions(80_000, 80_000)]
    comparison = Comparison("lz4", "64KiB", (), counts)
    assert comparison.ratio == pytest.approx(1.01)
    assert paired.table_of_counts([comparison]).rows == [
        ["lz4", "64KiB", "80,000, 80,000, 80,000", "80,000, 80,800, 84,000", "1.000, 1.010, 1.050", "1.010"]
    ]


def test_without_valgrind_nothing_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(EnvironmentFault, match="valgrind, which is not on the PATH"):
        counted(lambda under: pytest.fail(f"copied under {under}"))
