"""An audit of whole logs of batches, random and randomly damaged, against its definitions record by record.

This is what a task of the Spark job does, without Spark and brokers; tests/spark/test_by_reference.py has both.
"""

import asyncio
import random
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrord.audit.range_audit import AuditedLane, RangeReader
from mirrord.audit.rules.range_division import ranges
from mirrord.audit.rules.record_compare import together
from mirrord.audit.rules.results import Compared
from mirrord.kafka.client.bulk_log_reader import LogReader
from mirrord.kafka.records import record_decoding
from mirrord.model.errors import EnvironmentFault
from mirrord.model.names import TopicPartition
from tests.fixtures.byte_log import ByteLog
from tests.fixtures.copied_log import CopiedLog, damaged, is_ascending, own_rows
from tests.fixtures.naive_audit import naive
from tests.fixtures.reference_log import Batch, LogByChance, committed, contents, decode, encode

SEEDS = st.integers(0, 2**32)
NAMED = TopicPartition("orders", 0)


@given(SEEDS)
def test_the_reference_reads_what_it_writes(seed: int) -> None:
    made = LogByChance(random.Random(seed), 40)
    read = decode(made.data)
    assert is_ascending(read)
    for before, after in zip(made.batches, read, strict=True):
        assert (before.base, before.last, before.producer, len(before.rows)) == (
            after.base, after.last, after.producer, len(after.rows),
        )  # fmt: skip


@pytest.mark.parametrize("codec", range(5))
def test_a_batch_without_records_has_none_whatever_its_codec(codec: int) -> None:
    data = encode(Batch(0, 2, 0, codec, 0, 0, (-1, -1), -1, ()))
    assert record_decoding.decode(data, 0, len(data)) == []


def test_an_audit_reads_no_batch_that_is_larger_than_its_flow_allows() -> None:
    chance = random.Random(1)
    made = LogByChance(chance, 60)
    source = decode(made.data)
    copy = CopiedLog(chance, source, foreign=False)
    both = cast(LogReader, ByteLog(source, made.end)), cast(LogReader, ByteLog(copy.batches, copy.end))
    lane = AuditedLane(source=NAMED, target=NAMED, committed=True, rebuild_bytes=0)
    (wanted,) = ranges(copy.lane, 0, copy.ordinal, 1 << 40, copy.lane.verdicts.recent)
    with pytest.raises(EnvironmentFault, match=r"cannot be read: .* limits\.rebuild_bytes"):
        asyncio.run(RangeReader(*both, by_records=True).audit(lane, wanted))


@given(SEEDS, st.sampled_from([1 << 40, 4]), st.integers(3, 60), st.booleans(), st.booleans())
@settings(max_examples=100)
def test_an_audit_of_batches_finds_what_their_records_say(
    seed: int, variety: int, most: int, is_damaged: bool, by_records: bool
) -> None:
    chance = random.Random(seed)
    made = LogByChance(chance, 60, variety=variety)
    source = decode(made.data)
    copy = CopiedLog(chance, source, foreign=chance.random() < 0.5)
    target = damaged(chance, copy.batches) if is_damaged else copy.batches
    target = decode(b"".join(map(encode, target)))
    both = cast(LogReader, ByteLog(source, made.end)), cast(LogReader, ByteLog(target, copy.end))
    reader = RangeReader(*both, by_records=by_records)
    lane = AuditedLane(source=NAMED, target=NAMED, committed=True)
    known: dict[tuple[object, ...], int] = {}
    originals = contents((row for batch in committed(source) for row in batch.rows), known)
    found = list(own_rows(target, copy.lane.producer_id))
    copies = contents((row for row, _ in found), known)
    foreign = {row.offset for row, is_own in found if not is_own}

    async def audit() -> list[Compared]:
        wanted = ranges(copy.lane, 0, copy.ordinal, most, copy.lane.verdicts.recent)
        return [(await reader.audit(lane, each)).compared for each in wanted]

    compared = asyncio.run(audit())
    expected = [
        naive(copy, originals, copies, each, foreign)
        for each in ranges(copy.lane, 0, copy.ordinal, most, copy.lane.verdicts.recent)
    ]
    assert [(each.equal, each.differences) for each in compared] == [
        (equal, together(differences)) for equal, differences in expected
    ]
    if not is_damaged:
        assert sum(each.equal for each in compared) == len(originals)
