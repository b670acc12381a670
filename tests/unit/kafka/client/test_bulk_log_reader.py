"""A job's reader of a log, without a broker: temporary errors are retried, all others are raised."""

# ruff: noqa: ARG002 - the stubs are called like what they stand for

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, cast

import pytest

from mirrord.kafka.client import bulk_log_reader
from mirrord.kafka.client.bulk_log_reader import LogReader, RangeGone
from mirrord.kafka.client.cluster_metadata import ClusterView, PartitionId
from mirrord.kafka.client.range_reader import LogDiverged, ReadBatch, ReadFailed
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.record_batch import Header
from mirrord.kafka.rules.topic import Topic
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import TopicId, TopicPartition

ORDERS = TopicPartition("orders", 0)
PATIENCE_S = 60.0


class View:
    """A cluster with a leader for every partition."""

    error = ""

    def __init__(self) -> None:
        self.on_change: list[Callable[[], None]] = []

    def watch(self, name: str, topic_id: str) -> None: ...
    def refresh(self) -> None: ...
    def leader(self, partition: PartitionId) -> str:
        return "leader"


class Log:
    """Ten offsets in batches of one, of leader epoch 4; at some of them, once each, reading fails with an error."""

    def __init__(self, failures: dict[int, ErrorCode]) -> None:
        self.failures = failures
        self.last_epochs: list[int] = []

    async def read(
        self, partition: PartitionId, start: int, end: int, *, committed: bool, last_epoch: int
    ) -> AsyncGenerator[ReadBatch, None]:
        self.last_epochs.append(last_epoch)
        for offset in range(start, end):
            await asyncio.sleep(0)
            if failure := self.failures.pop(offset, None):
                raise LogDiverged if failure == ErrorCode.FENCED_LEADER_EPOCH else ReadFailed(int(failure))
            yield ReadBatch(Header(offset, 0, 4, 2, 0, 0, 0, 0, 0, -1, -1, -1, 1), b"", 0, 0)


def reader_of(monkeypatch: pytest.MonkeyPatch, *asked: ErrorCode, failures: dict[int, ErrorCode] | None = None) -> Any:
    """A reader of a log that begins at 3 and ends at 10; requests for those offsets fail with these errors first."""
    errors = list(asked)

    async def bounds(asks: object, partition: PartitionId) -> tuple[int, int]:
        if errors:
            raise ReadFailed(int(errors.pop(0)))
        return 10, 3

    monkeypatch.setattr(bulk_log_reader, "bounds", bounds)
    topics = {"orders": Topic("orders", TopicId("orders-id"), 1, 1)}
    reader: Any = LogReader(cast(ClusterView, View()), topics, PATIENCE_S)
    reader._stretches = Log(failures or {})
    return reader


PASSING: Sequence[ErrorCode] = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.NETWORK_EXCEPTION,
)


async def test_a_leader_that_moves_is_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = reader_of(monkeypatch, *PASSING, failures=dict(zip((3, 5, 6, 9), PASSING, strict=True)))
    assert await reader.bounds(ORDERS, committed=False) == (3, 10)
    read = [batch.header.base_offset async for batch in reader.read(ORDERS, 3, 10, committed=True)]
    assert read == list(range(3, 10))
    assert reader._stretches.last_epochs == [-1, -1, 4, 4, 4]


async def test_what_does_not_pass_is_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    denied = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    reader = reader_of(monkeypatch, denied, failures={4: denied})
    with pytest.raises(EnvironmentFault, match="orders-0 cannot be read: TOPIC_AUTHORIZATION_FAILED"):
        await reader.bounds(ORDERS, committed=False)
    with pytest.raises(EnvironmentFault, match="orders-0 cannot be read: TOPIC_AUTHORIZATION_FAILED"):
        async for _ in reader.read(ORDERS, 3, 10, committed=True):
            pass


async def test_retention_while_it_is_read_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = reader_of(monkeypatch, failures={1: ErrorCode.OFFSET_OUT_OF_RANGE})
    with pytest.raises(RangeGone, match="orders-0: the offsets 1 to 2 no longer exist; the log begins at 3"):
        async for _ in reader.read(ORDERS, 0, 10, committed=True):
            pass


async def test_a_log_that_loses_what_was_read_is_read_again_by_the_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    reader = reader_of(monkeypatch, failures={6: ErrorCode.FENCED_LEADER_EPOCH})
    with pytest.raises(RangeGone, match="orders-0: the log lost its last records while it was being read"):
        async for _ in reader.read(ORDERS, 3, 10, committed=True):
            pass
