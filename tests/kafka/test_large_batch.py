"""A source batch that is larger than a connection accepts stops its own partition; the others of its broker copy on."""

import asyncio
from functools import partial

import pytest

from mirrord.kafka.client import connection
from mirrord.kafka.client.request_pipeline import FramePipe
from mirrord.replication.host.flow_control import oversized_fetch
from tests.fixtures.lab import LabPair
from tests.fixtures.mirror import Written, copy_of, ends, mirror, until, until_ends, write

FRAME = 2 << 20
LARGE = 3 << 20


def numbered(partition: int, count: int) -> list[Written]:
    return [Written(b"%d" % number, b"v", partition=partition) for number in range(count)]


async def test_the_other_partitions_of_its_broker_copy_on(lab_pair: LabPair, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 4 << 20
    room = {"max_message_bytes": str(most)}
    monkeypatch.setattr(oversized_fetch, "RETRY_S", 0.5)
    limit = FRAME

    def pipe(peer: str, client_id: str, pool: connection.BufferPool, timeout_s: float, _limit: int) -> FramePipe:
        return FramePipe(peer, client_id, pool, timeout_s, limit)

    monkeypatch.setattr(connection, "FramePipe", pipe)
    # A quarter of a frame's bytes for each request.
    async with mirror(lab_pair.source, lab_pair.target, in_flight_bytes=4 << 20) as flow:
        topic = flow.topic(partitions=4, target_configs=room, **room)
        put = partial(write, flow.source, topic, message_max_bytes=most)
        await asyncio.to_thread(put, [Written(None, bytes(LARGE), partition=1)], batch_size=most)
        for each in (0, 2, 3):
            await asyncio.to_thread(put, numbered(each, 100))
        replicator = await flow.copying()
        await until_ends(flow.target, copy_of(topic), {0: 100, 2: 100, 3: 100})

        def noted() -> set[int]:
            return {lane.partition for lane in replicator.report().lanes if "too large to be fetched" in lane.note}

        await until(lambda: noted() == {1})
        for each in (0, 2, 3):
            await asyncio.to_thread(put, numbered(each, 100))
        await until_ends(flow.target, copy_of(topic), {0: 200, 2: 200, 3: 200})
        assert (await asyncio.to_thread(ends, flow.target, copy_of(topic)))[1] == 0
        # Once it can be fetched, it is copied; nothing is lost or duplicated by then.
        limit = most + FRAME
        for link in replicator._source._links.values():  # type: ignore[union-attr]
            if link.connection is not None:
                link.connection.close()
        await flow.caught_up(replicator)
        assert noted() == set()
        await flow.assert_same(records=601)
