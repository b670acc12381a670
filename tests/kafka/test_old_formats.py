"""Messages of the formats 0 and 1, as an old segment on a broker's disk holds them, through a whole lane.

No broker of today writes them, but every one serves what it finds: the test writes them while the broker is down.
"""

import asyncio
import random
import time
from collections.abc import Generator, Sequence

import pytest

from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.range_reader import Stretches
from mirrord.kafka.records.record_decoding import decode
from mirrord.lab.cluster import Cluster
from mirrord.replication.host.batch_verification import BatchVerification
from mirrord.replication.lane.signals import AskCheck
from mirrord.replication.lane.target.batch_compare import BatchFinding
from tests.fixtures.lab import LabPair
from tests.fixtures.log_files import LogFile, lay_down
from tests.fixtures.mirror import SECONDS, Mirror, Written, copy_of, ends, mirror, until, viewing, write
from tests.fixtures.old_messages import Magic, Message, lz4_of_format_0, messages

NOW_MS = int(time.time() * 1000)
Seen = tuple[int, bytes | None, bytes | None]
"""Time, key, value."""


class Section:
    """A log of old messages that grows, and what a reader must see of it."""

    def __init__(self, chance: random.Random) -> None:
        self.data = b""
        self.seen: list[Seen] = []
        self.offset = 0
        self._chance = chance

    def add(self, magic: Magic, count: int, codec: int = 0, *, hole: int = 0, append_ms: int | None = None) -> None:
        """This many records, with a hole before the first one, and another hole in the middle."""
        self.offset += hole
        records: list[Message] = []
        for number in range(count):
            self.offset += hole if number == count // 2 else 0
            key = self._chance.choice([None, b"", b"key-%d" % self.offset])
            value = self._chance.choice([None, b"", self._chance.randbytes(20) * self._chance.randrange(1, 30)])
            records.append(Message(self.offset, NOW_MS - self._chance.randrange(10**6), key, value))
            self.offset += 1
        self.data += messages(magic, records, codec, append_ms=append_ms)
        for record in records:
            time_ms = -1 if magic == 0 else record.time_ms if append_ms is None else append_ms
            self.seen.append((time_ms, record.key, record.value))


def everything(chance: random.Random) -> Section:
    """Both formats, every codec, holes, append times."""
    section = Section(chance)
    formats: tuple[tuple[Magic, tuple[int, ...]], ...] = ((0, (0, 1, 2)), (1, (0, 1, 2, 3)))
    for magic, codecs in formats:
        for codec in codecs:
            for count, hole in ((1, 0), (300, 0), (20, 3)):
                section.add(magic, count, codec, hole=hole)
                if magic:
                    section.add(magic, count, codec, append_ms=NOW_MS - 5)
    section.add(0, 4)
    section.add(1, 4)  # a batch that begins with records without a time
    return section


async def copies(flow: Mirror, topic: str) -> list[Seen]:
    """The records in the target topic, in order."""
    _, stored = await flow.batches(topic)
    return [
        (record.time_ms, record.key, record.value)
        for batch in stored
        for record in decode(batch.buffer, batch.start, batch.end)
    ]


def newest(seen: Sequence[Written]) -> list[Seen]:
    return [(record.time_ms, record.key, record.value) for record in seen]


@pytest.fixture(scope="module")
def source() -> Generator[Cluster]:
    """A cluster whose files are changed while it is down."""
    with Cluster() as cluster:
        yield cluster


async def test_old_segments_are_copied_record_by_record(source: Cluster, lab_pair: LabPair, seed: int) -> None:
    old = everything(random.Random(seed))
    async with mirror(source, lab_pair.target) as flow:
        topic = flow.topic()
        await lay_down(source, topic, {0: LogFile(old.data, old.offset)})
        first = await flow.copying()
        (report,) = await flow.caught_up(first)
        assert report.rebuilt.keys() == {"old-format"}
        assert report.copied_records == len(old.seen)
        assert await copies(flow, topic) == old.seen
        lane = flow.lane()
        assert lane.verdicts.counts["compacted"] == old.offset - len(old.seen)
        # New records after the old ones are copied raw.
        later = [Written(b"%d" % number, b"new", time_ms=NOW_MS + number) for number in range(500)]
        await asyncio.to_thread(write, source, topic, later, batch_num_messages=50)
        (report,) = await flow.caught_up(first)
        assert report.raw_batches > 0
        assert await copies(flow, topic) == old.seen + newest(later)
        copied = len(old.seen) + len(later)
        assert await compared(flow, topic) == BatchFinding("equal", equal_until=copied)


async def compared(flow: Mirror, topic: str) -> BatchFinding:
    """What a takeover finds when it compares all that the lane has written."""
    lane, target_end = flow.lane(), (await asyncio.to_thread(ends, flow.target, copy_of(topic)))[0]
    (assigned,) = await flow.lanes()
    async with viewing(flow.source) as source, viewing(flow.target) as target:
        sides: list[tuple[Stretches, PartitionId]] = []
        key = assigned.key
        for view, name, topic_id in (
            (source, topic, key.source_topic_id),
            (target, copy_of(topic), key.target_topic_id),
        ):
            where = PartitionId(name, topic_id, 0)
            view.watch(name, topic_id)
            await until(lambda view=view, where=where: view.leader(where) is not None)
            sides.append((Stretches(view, SECONDS), where))
        (source_side, source_partition), (target_side, target_partition) = sides
        wanted = AskCheck(0, lane.producer_id, 0, target_end - 1, 0, target_end)
        partitions = (source_partition, target_partition)
        return await BatchVerification(source_side, target_side, *partitions, lane, wanted).run()


async def test_an_old_message_that_cannot_be_read_halts_its_lane_alone(source: Cluster, lab_pair: LabPair) -> None:
    section = Section(random.Random(1))
    section.add(1, 10)
    data = section.data + lz4_of_format_0([Message(offset, 0, b"k", b"v" * 50) for offset in range(10, 20)])
    async with mirror(source, lab_pair.target) as flow:
        topic, other = flow.topic(), flow.topic()
        await asyncio.to_thread(write, source, other, [Written(b"k", b"v")])
        await lay_down(source, topic, {0: LogFile(data, 20)})
        replicator = await flow.copying()

        def phases() -> dict[str, str]:
            return {lane.source_topic: lane.phase for lane in replicator.report().lanes}

        await until(lambda: phases()[topic] == "halted")
        (note,) = (lane.note for lane in replicator.report().lanes if lane.source_topic == topic)
        assert "source offsets [10, 20) hold a batch whose records cannot be read (LZ4 in a message of format 0" in note
        assert await copies(flow, topic) == section.seen
        await until(lambda: phases()[other] == "copying")
        await until(lambda: any(lane.copied_records == 1 for lane in replicator.report().lanes))
