"""What the questions about fairness and growth calculate."""

import pytest

from bench.questions.fairness import Fairness, jain
from bench.questions.soak import LIMITS, WARM_UP, grown
from bench.report import tables, tables_soak
from bench.report.slopes import slope, thinned


@pytest.mark.parametrize(
    ("values", "index"), [([5, 5, 5, 5], 1.0), ([8, 0, 0, 0], 0.25), ([], 1.0), ([0, 0], 1.0), ([1, 3], 0.8)]
)
def test_jains_index(values: list[float], index: float) -> None:
    assert jain(values) == pytest.approx(index)


def builtins(struct: Fairness) -> dict[str, object]:
    return {name: getattr(struct, name) for name in struct.__struct_fields__}


def test_both_have_tables() -> None:
    window = Fairness(
        engine="ray",
        what="traffic alone",
        partitions=2_000,
        seconds=30,
        jain=0.97,
        least_share=0.8,
        lag_s=1.2,
        backlog_bytes_per_s=5e6,
    )
    points = [(float(minute), 100.0 * (1 << 20)) for minute in range(3)]
    memory = {"name": "resident_bytes", "begin": 100.0 * (1 << 20), "end": 110.0 * (1 << 20)}
    memory |= {"per_day": 0.0, "after_30_days": 140.0 * (1 << 20), "points": points}
    kind = {"engine": "ray", "process": "raylet", "minutes": 120.0, "rounds": 120, "kills": 7, "values": [memory]}
    (fair,) = tables.TABLES["fairness"]([builtins(window)])
    (soak,) = tables.TABLES["soak"]([kind])
    assert fair.rows[0][2:4] == ["0.970", "0.9"]
    assert soak.rows[0][1:] == ["memory, MiB", "100", "110", "0", "140"]
    assert list(tables_soak.soak_plots([kind])) == ["soak-ray.svg"]
    for table in (fair, soak):
        assert all(len(row) == len(table.head) for row in table.rows)


def test_a_slope_ignores_outliers() -> None:
    samples = [(float(at), 3.0 * at + (1_000.0 if at == 4 else 0.0)) for at in range(20)]
    assert slope(samples) == pytest.approx(3.0)
    assert slope(samples[:1]) == 0.0


def test_thinned_samples_span_the_whole_time() -> None:
    samples = [(float(at), 1.0) for at in range(1_000)]
    few = thinned(samples, 10)
    assert len(few) == 10
    assert few[0][0] < 100
    assert few[-1][0] > 900
    assert thinned(samples[:10], 10) == samples[:10]


def test_growth_counts_after_the_warm_up() -> None:
    warm = 100 * WARM_UP
    flat = grown("resident_bytes", [(float(at), 1e8 * min(at / warm, 1.0)) for at in range(101)])
    assert flat.per_day == pytest.approx(0.0)
    assert flat.is_within_limit
    growing = grown("files", [(float(at), float(at)) for at in range(101)])
    assert growing.per_day == pytest.approx(24 * 60)
    assert growing.after_30_days > LIMITS["files"]
    assert not growing.is_within_limit
