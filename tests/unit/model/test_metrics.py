"""The catalogue of metrics, its page, and what is exported of it."""

from pathlib import Path

from mirrord.daemon.prometheus import samples
from mirrord.model.metrics import BY_NAME, CATALOGUE, page
from tests.fixtures.full_status import FULL

ROOT = Path(__file__).parents[3]


def test_the_page_is_made_from_the_catalogue() -> None:
    assert (ROOT / "docs" / "reference" / "metrics.md").read_text() == page(), (
        "python -m mirrord.model.metrics > docs/reference/metrics.md"
    )


def test_names_and_units_agree() -> None:
    assert len(BY_NAME) == len(CATALOGUE)
    for metric in CATALOGUE:
        assert metric.name.startswith("mirrord")
        assert not metric.name.endswith(("_total", "_info")), "the text form adds it"
        for unit in ("seconds", "bytes", "records"):
            if metric.name.endswith(f"_{unit}"):
                assert metric.unit in {unit, "offsets"}, metric.name


def test_few_metrics_have_a_partition() -> None:
    assert {metric.name for metric in CATALOGUE if "partition" in metric.labels} == {
        "mirrord_lag_records",
        "mirrord_lag_seconds",
        "mirrord_retention_headroom_records",
        "mirrord_retention_headroom_seconds",
        "mirrord_open_transaction_seconds",
        "mirrord_proven_offset",
        "mirrord_proven_timestamp_seconds",
        "mirrord_lane_state",
    }


def test_every_sample_is_in_the_catalogue_with_its_labels() -> None:
    found = list(samples(FULL))
    for sample in found:
        assert len(sample.labels) == len(BY_NAME[sample.metric].labels), sample
    assert len({(sample.metric, sample.labels) for sample in found}) == len(found)
    assert {sample.metric for sample in found} == set(BY_NAME)
