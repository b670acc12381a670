"""Reading the batches of ended lanes in the target's logs."""

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest

from mirrord.config.schema import ClusterConfig
from mirrord.config.security import Security
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import Alias, TopicId, TopicPartition
from mirrord.supervision import unrecorded_copies
from mirrord.supervision.rules.unrecorded_copies import Written, WrittenBatch
from mirrord.supervision.unrecorded_copies import BatchQuestion, find_written
from tests.fixtures.ledger import lane_id

OWN, OTHER = 7, 8


class Logs:
    """The logs of `eu.orders`. Partition 1 has no leader."""

    def __init__(self, *batches: tuple[int, int, int, int], start: int = 0, end: int, leader_end: int = -1) -> None:
        """A batch is (base offset, last offset, producer id, base sequence)."""
        self.batches, self.first, self.end = batches, start, end
        self.last = max(leader_end, end)
        self.topics = {"eu.orders": SimpleNamespace(topic_id="T")}

    async def bounds(self, named: TopicPartition, *, committed: bool) -> tuple[int, int]:
        assert not committed
        if named.partition == 1:
            raise EnvironmentFault("it has no leader")
        return self.first, self.end

    async def leader_end(self, _: TopicPartition) -> int:
        return self.last

    async def read(
        self, _: TopicPartition, start: int, end: int, *, committed: bool
    ) -> AsyncGenerator[SimpleNamespace]:
        assert not committed
        for base, last, producer, sequence in self.batches:
            if start <= last and base < end:
                delta = last - base
                header = SimpleNamespace(
                    base_offset=base, last_offset=last, last_offset_delta=delta, producer_id=producer,
                    base_sequence=sequence,
                )  # fmt: skip
                yield SimpleNamespace(header=header)


def question(partition: int = 0, start: int = 10, topic_id: str = "T") -> BatchQuestion:
    where = TopicPartition("eu.orders", partition), TopicId(topic_id)
    return BatchQuestion(lane_id(partition), *where, OWN, start)


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> "Ask":
    return Ask(monkeypatch)


class Ask:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        monkeypatch.setattr(unrecorded_copies, "is_own", lambda header, producer: header.producer_id == producer)

    async def __call__(self, logs: Logs, *asked: BatchQuestion) -> dict[int, Written | None]:
        @asynccontextmanager
        async def open_logs(*_: object, patience_s: float) -> AsyncGenerator[Logs]:
            assert patience_s > 0
            yield logs

        self.monkeypatch.setattr(unrecorded_copies, "open_logs", open_logs)
        found = await find_written(Alias("us"), ClusterConfig(("h:1",), Security()), asked)
        return {number(each, asked): written for each, written in found.items()}


def number(lane: str, asked: Collection[BatchQuestion]) -> int:
    return next(each.target.partition for each in asked if each.lane == lane)


async def test_own_batches_and_the_offsets_without_any_batch(ask: Ask) -> None:
    logs = Logs((12, 14, OWN, 40), (15, 15, OTHER, 0), (18, 19, OWN, 45), (20, 20, OTHER, 1), start=11, end=23)
    found = await ask(logs, question())
    assert found == {0: Written((WrittenBatch(40, 3, 2, 12), WrittenBatch(45, 2, 2, 18)), empty=2)}


async def test_a_batch_before_the_position_does_not_count(ask: Ask) -> None:
    logs = Logs((8, 11, OTHER, 0), (12, 14, OWN, 40), end=15)
    assert await ask(logs, question()) == {0: Written((WrittenBatch(40, 3, base_offset=12),))}


async def test_a_partition_that_cannot_be_read_does_not_delay_the_others(ask: Ask) -> None:
    """NO VERDICT, for as long as one partition of the target was offline."""
    logs = Logs((10, 11, OWN, 40), end=12)
    assert await ask(logs, question(1), question(0)) == {1: None, 0: Written((WrittenBatch(40, 2, base_offset=10),))}


async def test_reading_many_partitions_is_interrupted(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unrecorded_copies, "BUDGET_S", -1.0)
    assert set(await ask(Logs(end=10), question(0), question(2))) == {0}


async def test_records_above_the_high_watermark_may_still_be_committed(ask: Ask) -> None:
    """FALSE LOSS. A follower is dead, but still in sync, so the leader's last batches cannot be read yet."""
    assert await ask(Logs((10, 11, OWN, 40), end=10, leader_end=12), question()) == {0: None}


async def test_a_topic_that_was_created_again_is_another_one(ask: Ask) -> None:
    assert await ask(Logs(end=10), question(topic_id="former")) == {0: None}
