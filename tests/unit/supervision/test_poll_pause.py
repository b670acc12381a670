"""How often the replicators report, and when a log end that fell counts as confirmed."""

import pytest

from mirrord.ledger.source_ends import SourcePartition
from mirrord.model.names import TopicId
from mirrord.supervision.unfetched_partition_ends import confirmed_since, poll_pause_s

WHERE = SourcePartition("orders", TopicId("source-topic"), 0)


@pytest.mark.parametrize(("lanes", "pause_s"), [(0, 0.4), (8, 0.4), (700, 0.7), (5_000, 1.0)])
def test_large_reports_are_requested_less_often_but_every_second(lanes: int, pause_s: float) -> None:
    assert poll_pause_s(0.4, lanes) == pytest.approx(pause_s)


def test_a_log_end_counts_from_the_time_it_was_first_seen() -> None:
    first = confirmed_since({}, {WHERE: 7}, 1.0)
    assert first == {WHERE: (7, 1.0)}
    assert confirmed_since(first, {WHERE: 7}, 1.4) == {WHERE: (7, 1.0)}
    assert confirmed_since(first, {WHERE: 9}, 1.4) == {WHERE: (9, 1.4)}
    assert confirmed_since(first, {}, 1.4) == {}
