"""What the questions about fairness and growth calculate."""

import pytest

from bench.questions.fairness import Fairness, jain
from bench.questions.soak import Soak
from bench.report import tables


@pytest.mark.parametrize(
    ("values", "index"), [([5, 5, 5, 5], 1.0), ([8, 0, 0, 0], 0.25), ([], 1.0), ([0, 0], 1.0), ([1, 3], 0.8)]
)
def test_jains_index(values: list[float], index: float) -> None:
    assert jain(values) == pytest.approx(index)


def builtins(struct: Fairness | Soak) -> dict[str, object]:
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
    kind = Soak(
        engine="ray",
        process="ReplicatorActor",
        minutes=30,
        start_bytes=100 << 20,
        middle_bytes=110 << 20,
        end_bytes=140 << 20,
        files=3,
        rounds=30,
        flat=False,
    )
    (fair,) = tables.TABLES["fairness"]([builtins(window)])
    (soak,) = tables.TABLES["soak"]([builtins(kind)])
    assert fair.rows[0][2:4] == ["0.970", "0.9"]
    assert soak.rows[0][1:5] == ["100", "110", "140", "GROWS"]
    for table in (fair, soak):
        assert all(len(row) == len(table.head) for row in table.rows)
