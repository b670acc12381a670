"""Whether the outcome of a scan of the target depends on whether the topic is compacted."""

import pytest

from mirrord.replication.host.own_batch_scan import scan
from mirrord.replication.lane.signals import AskScan, ScanAnswer, ScanPurpose
from tests.fixtures.fake_pipe import as_any
from tests.sim.log_readers import PARTITION, TargetReader, at_once
from tests.sim.target import FakeTarget, Stored
from tests.sim.transactions import TransactionalTarget, producer_id

PRODUCER = 501


def scanned(
    *ordinals: int, purpose: ScanPurpose = "resume", expected: int = 0, end: int = -1, until: int = 0
) -> ScanAnswer:
    """Scan a compacted topic in which the lane has batches of two records, which begin with these ordinals. Other
    clients wrote those that begin with -1."""
    target = FakeTarget()
    for at, first in enumerate(ordinals):
        producer = PRODUCER if first >= 0 else -1
        target.brokers[0].append(Stored(2 * at, 2, producer, 0, first, 1, (at + 1, at + 1), 1))
    target.high_watermark = target.end

    async def compacts() -> bool:
        return True

    asked = AskScan(1, purpose, PRODUCER, 0, target.end if end < 0 else end, expected, until)
    return at_once(scan(as_any(TargetReader(target)), PARTITION, asked, compacts))


@pytest.mark.parametrize(
    ("ordinals", "expected", "depends"),
    [
        ((0, 2, 4), 0, False),
        ((8, 10), 10, False),
        ((8, 10), 9, False),
        ((8, 10), 8, False),
        ((8, 10), 7, True),
        ((0, 4), 0, True),
        ((-1, 0), 0, True),
        ((-1,), 0, True),
    ],
)
def test_the_policy_matters_if_records_may_be_missing(
    ordinals: tuple[int, ...], expected: int, *, depends: bool
) -> None:
    assert scanned(*ordinals, expected=expected).compacts is depends


@pytest.mark.parametrize(("until", "depends"), [(11, False), (12, False), (13, True)])
def test_the_policy_matters_if_acknowledged_records_are_missing_at_the_end(until: int, *, depends: bool) -> None:
    """ORDER. The lane did not look up the lost records, and put them over newer ones."""
    assert scanned(8, 10, expected=9, until=until).compacts is depends


def test_the_policy_matters_if_the_log_is_read_again_because_it_may_have_lost_records() -> None:
    """The remaining batches may be newer than those that are lost."""
    assert scanned(12, 14, purpose="verify").compacts


def test_the_newest_leader_epoch_of_the_range_is_reported() -> None:
    """Other clients' batches count as well. Batches outside the range do not."""
    target = FakeTarget()
    for at, (producer, epoch) in enumerate(((PRODUCER, 1), (-1, 3), (PRODUCER, 3), (-1, 4))):
        target.brokers[0].append(Stored(at, 1, producer, 0, at, 1, (at + 1,), epoch))
    target.high_watermark = target.end

    async def compacts() -> bool:
        return False

    found = [
        at_once(scan(as_any(TargetReader(target)), PARTITION, AskScan(1, "resume", PRODUCER, 0, end), compacts))
        for end in (0, 1, 2, 3)
    ]
    assert [each.leader_epoch for each in found] == [-1, 1, 3, 3]


def test_a_marker_with_the_producer_id_of_the_lane_is_not_one_of_its_batches() -> None:
    """An operator may write a marker for any producer id. A marker has no sequence."""
    target = TransactionalTarget()
    client = target.clients[0]
    lanes = producer_id(client.producer)
    target.brokers[0].append(Stored(0, 2, lanes, 0, 0, 1, (1, 2), 1))
    target.end_transaction(client, "abort", 1)
    target.brokers[0].append(Stored(3, 2, lanes, 0, 2, 1, (3, 4), 1))
    target.high_watermark = target.end
    asked = AskScan(1, "resume", lanes, 0, target.end, 0)
    answer = at_once(scan(as_any(TargetReader(target)), PARTITION, asked, compacts=no_topic_is_compacted))
    assert [(each.base_offset, each.base_sequence) for each in answer.own] == [(0, 0), (3, 2)]
    assert answer.others == ((2, 3),)


async def no_topic_is_compacted() -> bool:
    return False
