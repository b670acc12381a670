"""The comparison of two clusters sees what it must see on real brokers."""

from collections.abc import Sequence
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from mirrord.lab.cluster import Cluster
from mirrord.lab.copy_checker import DifferenceCounts, TopicPair, compare, compare_partition
from tests.fixtures.daemon import unique
from tests.fixtures.lab import LabPair


class Row(NamedTuple):
    """A record."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    time_ms: int = 1_700_000_000_000


ROWS = (
    Row(b"a", b"1"),
    Row(None, b"2"),
    Row(b"", b""),
    Row(b"d", None, (("h", None), ("h", b""), ("i", b"x"))),
    Row(b"e", b"5"),
)


def write(cluster: Cluster, topic: str, rows: Sequence[Row]) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(30)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for row in rows:
        producer.produce(topic, row.value, row.key, timestamp=row.time_ms, headers=list(row.headers))
    assert producer.flush(30) == 0


CASES = {
    "same": (ROWS, DifferenceCounts()),
    "end is missing": (ROWS[:-1], DifferenceCounts(missing=1)),
    "one is doubled": (ROWS[:2] + ROWS[1:], DifferenceCounts(doubled=1)),
    "two changed places": (ROWS[1::-1] + ROWS[2:], DifferenceCounts(out_of_order=1)),
    "null became empty": ((*ROWS[:1], ROWS[1]._replace(key=b""), *ROWS[2:]), DifferenceCounts(altered=1)),
    "headers changed places": (
        (*ROWS[:3], ROWS[3]._replace(headers=ROWS[3].headers[::-1]), *ROWS[4:]),
        DifferenceCounts(altered=1),
    ),
    "another time": ((*ROWS[:4], ROWS[4]._replace(time_ms=5)), DifferenceCounts(altered=1)),
}


@pytest.mark.parametrize("name", CASES)
def test_one_partition(lab_pair: LabPair, name: str) -> None:
    rows, expected = CASES[name]
    topic = unique("checker")
    write(lab_pair.source, topic, ROWS)
    write(lab_pair.target, topic, rows)
    result = compare_partition(lab_pair.source.bootstrap, lab_pair.target.bootstrap, TopicPair(topic, topic), 0)
    assert (result.records, result.difference) == (len(ROWS), expected)
    assert bool(result.where) == (name != "same")


def test_aborted_records_are_not_wanted_and_whole_topics_are_compared(lab_pair: LabPair) -> None:
    topic = unique("checker")
    write(lab_pair.source, topic, ROWS)
    write(lab_pair.target, topic, ROWS)
    producer = Producer({"bootstrap.servers": lab_pair.source.bootstrap, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"aborted")
    producer.flush(30)
    producer.abort_transaction(30)
    pair = TopicPair(topic, topic)
    comparison = compare(lab_pair.source.bootstrap, lab_pair.target.bootstrap, [pair])
    assert comparison.is_exact
    assert comparison.records == len(ROWS)
    back = compare(lab_pair.target.bootstrap, lab_pair.source.bootstrap, [pair])
    assert back.difference == DifferenceCounts(foreign=1)
    assert "1 foreign" in back.describe()
