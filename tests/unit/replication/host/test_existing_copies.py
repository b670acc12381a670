"""Copied records that the ledger does not know: found wherever a lane would copy them once more, and only there."""

import random
from collections.abc import AsyncGenerator, Callable, Collection, Sequence

import msgspec
import pytest

from mirrord.config.flow_features import RecordsConfig
from mirrord.config.schema import FlowConfig
from mirrord.kafka.client.cluster_metadata import PartitionId
from mirrord.kafka.client.range_reader import ReadBatch, ReadFailed
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.kafka.protocol.record_batch import HEADER, Header, HeaderTuple
from mirrord.model.names import LaneId, TopicId
from mirrord.replication.host import existing_copies
from mirrord.replication.host.existing_copies import ExistingCopies
from mirrord.replication.host.mm2_takeover import Sides
from tests.fixtures.copied_log import CopiedLog
from tests.fixtures.fake_pipe import as_any
from tests.fixtures.reference_log import APPEND_TIME, TRANSACTIONAL, Batch, LogByChance, committed, decode, encode

SOURCE = PartitionId("orders", TopicId("s"), 0)
TARGET = PartitionId("eu.orders", TopicId("t"), 0)
FLOW = FlowConfig(name="eu-us", source="eu", target="us", topics=(".*",))
LANE = LaneId("lane")
SEEDS = range(16)


class Log:
    """A fake partition for requests and reads."""

    def __init__(self, batches: Sequence[Batch], start: int = 0) -> None:
        self.batches = decode(b"".join(map(encode, batches)))
        self.log_start = start
        self.reads = 0
        self.fails: ErrorCode | None = None

    @property
    def end(self) -> int:
        return self.batches[-1].last + 1 if self.batches else self.log_start

    def bounds(self, partition: PartitionId, epoch: int, tell: Callable[[int, int, int], None]) -> None:
        del partition, epoch
        tell(0, self.end, self.log_start)

    def start(self, partition: PartitionId, start: int, tell: Callable[[int, int], None]) -> None:
        del partition
        rows = [row for batch in self.batches for row in batch.rows if row.offset >= self.log_start]
        tell(0, next((row.offset for row in rows if row.time_ms >= start), self.end))

    async def read(self, partition: PartitionId, start: int, end: int) -> AsyncGenerator[ReadBatch, None]:
        del partition
        self.reads += 1
        if self.fails is not None:
            raise ReadFailed(int(self.fails))
        for batch in self.batches:
            if batch.last >= start and batch.base < end:
                data = encode(batch)
                yield ReadBatch(Header(*HEADER.unpack_from(data)), data, 0, len(data))

    @property
    def sides(self) -> Sides:
        return Sides(as_any(None), as_any(self), as_any(self))


@pytest.fixture(autouse=True)
def short_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(existing_copies, "LOOK_OFFSETS", 12)


def source_of(seed: int, records: int = 250) -> list[Batch]:
    """Times ascend, as they mostly do."""
    batches = decode(LogByChance(random.Random(seed), records, holes=bool(seed % 2)).data)
    began = batches[0].newest_ms
    return [
        batch._replace(
            rows=tuple(row._replace(time_ms=began + row.offset) for row in batch.rows),
            base_ms=began,
            newest_ms=began + batch.last,
            data=b"",
        )
        for batch in batches
    ]


def copy_of(seed: int, source: Sequence[Batch]) -> list[Batch]:
    return CopiedLog(random.Random(seed), source, foreign=True).batches


async def found(
    source: Log, target: Log, flow: FlowConfig = FLOW, *, named: PartitionId = TARGET, back: Collection[int] = ()
) -> str:
    async def find_copies(_: PartitionId, headers: Sequence[HeaderTuple]) -> Collection[int]:
        return {at for at, header in enumerate(headers) if header[9] in back}

    return await ExistingCopies(flow, source.sides, target.sides, find_copies).of(LANE, SOURCE, named)


@pytest.mark.parametrize("seed", SEEDS)
async def test_a_copy_of_whatever_part_is_found(seed: int) -> None:
    chance = random.Random(seed)
    source = source_of(seed)
    visible = [each._replace(attributes=each.attributes & ~TRANSACTIONAL) for each in committed(source)]
    # The lane began at any offset, and reached any later one.
    begun = chance.choice((0, 0, chance.randrange(len(visible) // 2)))
    came = chance.randrange(begun + 1, len(visible) + 1)
    target = copy_of(seed, [batch for batch in visible[begun:came] if batch.rows])
    line = await found(Log(source), Log(target))
    if any(batch.rows for batch in visible[begun:came]):
        assert "the ledger does not know" in line
        assert "mirrord rebuild" in line
        assert await found(Log(source), Log(target), msgspec.structs.replace(FLOW, on_unknown_copies="begin")) == ""


@pytest.mark.parametrize("seed", SEEDS[:4])
async def test_copies_that_retention_has_not_deleted_are_found(seed: int) -> None:
    source = source_of(seed)
    target = copy_of(seed, source)
    middle = Log(target, target[len(target) // 2].base)
    assert await found(Log(source), middle)
    assert await found(Log(source[len(source) // 2 :], source[len(source) // 2].base), Log(target))
    # Nothing is left: it is impossible to say, and nothing is duplicated.
    assert await found(Log(source), Log([], 700)) == ""


@pytest.mark.parametrize("is_target", [False, True])
async def test_a_log_that_returns_nothing_may_hold_copies(is_target: bool) -> None:
    """For example, its records may be in remote storage, and a broker may not report this. A lane that began would copy
    them twice."""
    source, target = Log(source_of(0)), Log(copy_of(0, source_of(0)))
    (target if is_target else source).fails = ErrorCode.REQUEST_TIMED_OUT
    with pytest.raises(ReadFailed):
        await found(source, target)


@pytest.mark.parametrize("seed", SEEDS[:4])
async def test_records_of_other_clients_are_not_copies(seed: int) -> None:
    source = source_of(seed)
    others = [
        batch._replace(producer=(9, 0), sequence=batch.base)
        for batch in LogByChance(random.Random(seed + 1_000), 300).batches
    ]
    assert await found(Log(source), Log(others)) == ""
    # Another copier, without sequences or with transactions of its own.
    copied = copy_of(seed, source)
    assert await found(Log(source), Log([batch._replace(producer=(-1, -1), sequence=-1) for batch in copied])) == ""
    within = [batch._replace(attributes=batch.attributes | TRANSACTIONAL) for batch in copied]
    assert await found(Log(source), Log(within)) == ""


async def test_records_that_came_from_the_target_are_not_copies_there() -> None:
    """Under the same names both ways, and this flow is the newer one."""
    originals = [batch._replace(producer=(9, 0), sequence=batch.base) for batch in source_of(0)]
    copies = copy_of(0, originals)
    lane = next(batch.producer[0] for batch in copies if batch.producer[0] > 9)
    assert await found(Log(copies), Log(originals), named=SOURCE, back={lane}) == ""
    # Other names show it, and no ledger is read.
    assert await found(Log(copies), Log(originals), back={lane})


@pytest.mark.parametrize("seed", SEEDS[:4])
async def test_a_target_with_append_times(seed: int) -> None:
    source = source_of(seed)
    appended = [
        batch._replace(attributes=batch.attributes | APPEND_TIME, newest_ms=batch.newest_ms + 3, data=b"")
        for batch in copy_of(seed, source)
    ]
    assert await found(Log(source), Log(appended))
    # In a large sample, a few records that match in everything but their timestamps do not prove that the target holds
    # copies.
    strange = LogByChance(random.Random(seed + 1_000), 300).batches
    mixed = [batch._replace(producer=(9, 0), sequence=batch.base) for batch in strange]
    mixed = [batch._replace(attributes=batch.attributes | APPEND_TIME, data=b"") for batch in mixed]
    assert await found(Log(source), Log(mixed)) == ""


@pytest.mark.parametrize("seed", SEEDS[:4])
async def test_records_that_were_transformed(seed: int) -> None:
    flow = msgspec.structs.replace(FLOW, records=RecordsConfig(transform="headers"))
    source = source_of(seed)
    changed = [
        batch._replace(rows=tuple(row._replace(value=b"changed") for row in batch.rows), data=b"")
        for batch in copy_of(seed, source)
    ]
    assert await found(Log(source), Log(changed), flow)
    assert await found(Log(source), Log(changed)) == ""


async def test_copies_that_were_found_are_not_searched_for_again() -> None:
    source, target = Log(source_of(0)), Log(copy_of(0, source_of(0)))

    async def find_copies(_: PartitionId, headers: Sequence[HeaderTuple]) -> Collection[int]:
        return ()

    looking = ExistingCopies(FLOW, source.sides, target.sides, find_copies)
    line = await looking.of(LANE, SOURCE, TARGET)
    reads = source.reads
    assert await looking.of(LANE, SOURCE, TARGET) == line != ""
    assert source.reads == reads
    target.log_start = target.end
    assert await looking.of(LANE, SOURCE, TARGET) == ""
