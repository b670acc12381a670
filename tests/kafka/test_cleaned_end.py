"""A log whose last batches the cleaner has removed, on real brokers: the log end is above the last batch that is left.

The cleaner does not remove the last record of a key. However, an unclean election may remove the newer records for
which it has removed older ones.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import aclosing

import pytest

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.range_reader import Stretches
from mirrord.lab.cluster import Cluster
from mirrord.lab.server_properties import LabOptions
from mirrord.model.names import TopicId
from tests.fixtures.compacted import BROKER, STEP_MS, TOPIC
from tests.fixtures.lab_partition import LabPartition, LabTarget, lab_batch, until
from tests.fixtures.mirror import SECONDS, viewing
from tests.sim.contract import Batch


@pytest.fixture(scope="module")
def lab_cleaned() -> Generator[Cluster]:
    with Cluster(LabOptions(brokers=2, heap_mb=256, properties=BROKER)) as cluster:
        yield cluster


@pytest.fixture
async def two(lab_cleaned: Cluster) -> AsyncGenerator[LabTarget]:
    async with aclosing(LabTarget(lab_cleaned)) as found:
        yield found
    lab_cleaned.mend()


async def append(partition: LabPartition, keys: bytes, began_ms: int) -> None:
    """Append a batch, in a new segment, for each of the keys."""
    for at, key in enumerate(keys):
        data = lab_batch(Batch(-1, -1, 1, -1), began_ms + at * STEP_MS, bytes([key]))
        answer = await (await partition.begin(data))
        assert answer.error == 0


async def offsets(partition: LabPartition) -> list[int]:
    return [header.base_offset for header, _ in await partition.batches()]


async def test_a_read_ends_behind_the_last_batch_that_is_left(two: LabTarget) -> None:
    partition = await two.topic(TOPIC)
    former, began_ms = partition.leader, int(time.time() * 1000) - 60_000
    await append(partition, b"abb", began_ms)

    async def lost() -> None:
        await append(partition, b"bc", began_ms + 3 * STEP_MS)

        async def is_cleaned() -> bool:
            return await offsets(partition) == [0, 3, 4]

        await until(is_cleaned, "the cleaner leaves older records")

    await partition.elect_unclean(lost)
    assert await offsets(partition) == [0, 1, 2]
    await partition.elect()
    assert partition.leader == former
    assert await offsets(partition) == [0]
    assert (await partition.visible()).end == 3
    async with viewing(two.cluster) as view:
        where = PartitionId(partition.name, TopicId(partition.topic.id), 0)
        view.watch(where.topic, where.topic_id)

        async def has_leader() -> bool:
            return view.leader(where) is not None

        await until(has_leader, "no leader")
        stretches = Stretches(view, SECONDS)
        for committed in (False, True):
            for start, found in (0, [0]), (1, []):
                async with asyncio.timeout(SECONDS):
                    reading = stretches.read(where, start, 3, committed=committed)
                    assert [each.header.base_offset async for each in reading] == found
