"""Compacted target topics by key: which newest records are right, and that ranges are read once."""

import asyncio
import random
from typing import cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrord.audit.plan import FlowPlan, LaneAuditPlan
from mirrord.audit.range_audit import AuditedLane, RangeReader
from mirrord.audit.rules.audit_range import AuditRange, MapPiece
from mirrord.audit.rules.key_compare import KeyedCopy, Newest, judge, merged, source_rows, target_rows
from mirrord.audit.rules.range_division import ranges
from mirrord.audit.rules.results import Compared, Difference, Explained, RangeResult, Seen
from mirrord.jobs.audit_keys import KeyWork, key_works, with_keys
from mirrord.kafka.client.bulk_log_reader import LogReader
from mirrord.ledger.facts.core import Verdict
from mirrord.model.names import TopicPartition
from tests.fixtures.byte_log import ByteLog
from tests.fixtures.copied_log import CopiedLog
from tests.fixtures.ledger import lane_id
from tests.fixtures.reference_log import LogByChance, decode, encode

COPY = KeyedCopy(0, target_compacted=True)
ORDERS, COPIED = TopicPartition("orders", 0), TopicPartition("eu.orders", 0)
TEN = AuditRange(
    lane=lane_id(0),
    producer_id=4,
    first=0,
    end=10,
    source_start=100,
    source_end=110,
    target_start=10,
    target_end=20,
    pieces=(MapPiece(0, 100, 10, 10),),
)
STALE, MISSING = Difference("stale", 105, 12), Difference("missing", 105, 15)


@pytest.mark.parametrize(
    ("newest", "expected"),
    [
        (Newest(105, 15, target=15, is_own=True, origin=105), None),
        # Compaction on the target removed nothing newer: the record is missing, or an older value remains.
        (Newest(105, 15), MISSING),
        (Newest(105, 15, target=12, is_own=True, origin=102), STALE),
        (Newest(105, 15, target=12), STALE),
        # A tombstone goes with everything that it deletes.
        (Newest(105, 15, is_tombstone=True), None),
        (Newest(105, 15, is_tombstone=True, target=12, is_own=True, origin=102), STALE),
        # The source has removed what was copied after it.
        (Newest(105, 15, target=18, is_own=True, origin=108), None),
        (Newest(target=18, is_own=True, origin=108), None),
        # An older record that was copied again, after the newer one.
        (Newest(105, 15, target=30, is_own=True, origin=102), Difference("stale", 105, 30)),
        (Newest(105, 15, target=30, is_own=True, origin=102, is_truncated=True), None),
        # What the source has truncated says nothing of its newer record, whose offset may be lower.
        (Newest(105, 15, target=12, is_own=True, origin=108, is_truncated=True), STALE),
        # Bytes that the map does not contain.
        (Newest(105, 15, content=b"a", target=30, is_own=True, target_content=b"b"), Difference("stale", 105, 30)),
        (Newest(105, 15, content=b"a", target=30, is_own=True, target_content=b"a"), None),
        # A newer record of another writer remains.
        (Newest(105, 15, target=30), None),
        # That record came to the source, and the target was given an older one after it.
        (Newest(105, content=b"a", target=30, is_own=True, origin=102), Difference("stale", 105, 30)),
        (Newest(105, content=b"a", target=30, is_own=True, origin=102, target_content=b"a"), None),
        (Newest(105, content=b"a", target=30, is_own=True, origin=107), None),
        (Newest(105, content=b"a", target=30, is_own=True, origin=102, is_truncated=True), None),
        (Newest(105, content=b"a", target=30), None),
        (Newest(105, content=b"a"), None),
    ],
)
def test_a_key(newest: Newest, expected: Difference | None) -> None:
    assert judge(newest, COPY) == expected


def test_what_retention_took_or_an_uncompacted_target_lacks_is_not_judged_by_key() -> None:
    assert judge(Newest(105, 15), KeyedCopy(16, target_compacted=True)) is None
    assert judge(Newest(105, 15), KeyedCopy(0, target_compacted=False)) is None
    late = Newest(105, 15, target=30, is_own=True, origin=102)
    assert judge(late, KeyedCopy(0, target_compacted=False)) == Difference("stale", 105, 30)


def test_rows_name_places_by_the_map() -> None:
    again = msgspec.structs.replace(TEN, pieces=(MapPiece(0, 100, 10, 4), MapPiece(6, 104, 16, 4)), target_end=20)
    records = [Seen(at, b"%d" % at, 0, b"key") for at in (101, 103, 105, 109)]
    assert [each.place for _, each in source_rows(again, records)] == [11, 13, 17]
    copies = [Seen(at, b"", 0, b"key", is_own=True) for at in (11, 15, 17)]
    assert [each.origin for _, each in target_rows(again, copies)] == [101, -1, 105]
    assert list(source_rows(again, [Seen(101, b"", 0)])) == []


def test_an_older_value_over_what_another_writer_of_the_target_wrote_is_stale() -> None:
    """The target's writer wrote its value first there, the source's writer its own first here."""
    crossed = msgspec.structs.replace(
        TEN,
        end=1,
        source_end=102,
        target_end=12,
        pieces=(MapPiece(0, 100, 11, 1),),
        verdicts=(Verdict(101, 102, "copied-from-target"),),
    )
    source = [Seen(100, b"ours", 0, b"key"), Seen(101, b"theirs", 0, b"key")]
    target = [Seen(10, b"theirs", 0, b"key"), Seen(11, b"ours", 0, b"key", is_own=True)]
    rows = [each for _, each in (*source_rows(crossed, source), *target_rows(crossed, target))]
    newest = merged(merged(rows[0], rows[1]), merged(rows[2], rows[3]))
    assert judge(newest, COPY) == Difference("stale", 101, 11)
    left_out = msgspec.structs.replace(crossed, verdicts=(Verdict(101, 102, "filtered"),))
    assert [each.source for _, each in source_rows(left_out, source)] == [100]


@given(st.integers(0, 2**32))
def test_the_newest_record_of_each_side_counts_in_whatever_order_logs_are_read(seed: int) -> None:
    chance = random.Random(seed)
    offsets = chance.sample(range(100), 6)
    parts = [Newest(at, at + 5, content=b"%d" % at) for at in offsets[:3]]
    parts += [Newest(target=at, is_own=bool(at % 2), origin=at) for at in offsets[3:]]
    chance.shuffle(parts)
    found = parts[0]
    for each in parts[1:]:
        found = merged(found, each) if chance.random() < 0.5 else merged(each, found)
    source, target = max(offsets[:3]), max(offsets[3:])
    assert found == Newest(source, source + 5, content=b"%d" % source, target=target,
                           is_own=bool(target % 2), origin=target)  # fmt: skip


def test_a_difference_belongs_to_the_range_of_its_source_offset() -> None:
    gone = Explained("target-compaction", "source", 104, 107)
    result = RangeResult(lane=TEN.lane, first=0, end=10, by="records", compared=Compared(7, (), (gone,)))
    found = with_keys(result, TEN, [MISSING, Difference("stale", 200, 1)]).compared
    assert found.differences == (MISSING,)
    assert [(each.start, each.end) for each in found.explained] == [(104, 105), (106, 107)]
    assert with_keys(result, TEN, [Difference("stale", 200, 1)]) is result


def test_only_compacted_lanes_are_read_by_key_and_the_target_from_the_first_chosen_range_on() -> None:
    audited = AuditedLane(source=ORDERS, target=COPIED, committed=True, target_compacted=True)
    three = tuple(msgspec.structs.replace(TEN, first=at, end=at + 10) for at in (0, 10, 20))
    lane = LaneAuditPlan(lane=TEN.lane, audited=audited, ranges=three)
    plain = msgspec.structs.replace(lane, audited=msgspec.structs.replace(audited, target_compacted=False))
    flow = FlowPlan(flow="eu-us", source="eu", target="us", lanes=(plain, lane))
    found = key_works([flow], {("eu-us", TEN.lane, 10, 20)})
    assert [(each.number, each.wanted.first, each.with_source) for each in found] == [(1, 10, True), (1, 20, False)]
    assert isinstance(found[0], KeyWork)


def test_a_compacted_copy_is_read_once_however_many_ranges_it_has() -> None:
    """Reading each range to the end of the log would read the target ten times over."""
    chance = random.Random(5)
    made = LogByChance(chance, 400, variety=1 << 40)
    source = decode(made.data)
    copy = CopiedLog(chance, source, foreign=False)
    target = decode(b"".join(map(encode, copy.batches)))
    both = cast(LogReader, ByteLog(source, made.end)), cast(LogReader, ByteLog(target, copy.end))
    reader = RangeReader(*both, by_records=True)
    lane = AuditedLane(source=ORDERS, target=COPIED, committed=True, target_compacted=True, source_compacted=True)
    found = list(ranges(copy.lane, 0, copy.ordinal, copy.ordinal // 20, copy.lane.verdicts.recent))
    assert len(found) >= 10

    async def audit() -> int:
        compared = [await reader.audit(lane, each) for each in found]
        by_key = [(await reader.keys(lane, each, with_source=True))[2] for each in found]
        return sum(each.read_bytes for each in compared) + sum(by_key)

    read_bytes = asyncio.run(audit())
    whole = sum(len(encode(batch)) for batch in (*source, *target))
    # Twice, and the records on the border of two ranges once more.
    assert whole < read_bytes < 4 * whole
