"""The comparison by key of a compacted target to which other clients write in transactions."""

import asyncio
from collections.abc import Sequence
from typing import cast

import msgspec
import pytest

from mirrord.audit.range_audit import AuditedLane, RangeReader
from mirrord.audit.rules.audit_range import AuditRange, MapPiece
from mirrord.audit.rules.key_compare import KeyedCopy, Newest, Undecided, judge, merged
from mirrord.audit.rules.results import Compared, Difference, Explained, RangeResult
from mirrord.jobs.audit_keys import settled, with_keys
from mirrord.kafka.client.bulk_log_reader import LogReader
from mirrord.model.names import TopicPartition
from tests.fixtures.byte_log import ByteLog
from tests.fixtures.ledger import lane_id
from tests.fixtures.reference_log import BEGUN_MS, TRANSACTIONAL, Batch, Row, marker

LANE, PLAIN, ONE, OTHER = 4, 10, 11, 12
"""Producer ids: that of the lane, and those of other clients, of which the last two write in transactions."""
ORDERS, COPIED = TopicPartition("orders", 0), TopicPartition("eu.orders", 0)
AUDITED = AuditedLane(source=ORDERS, target=COPIED, committed=True, target_compacted=True)
COPY = KeyedCopy(0, target_compacted=True)
LOST = Difference("missing", 102, 2)
EndsWith = Sequence[Batch]


def row(producer: int, offset: int, key: str, value: bytes | None = b"value") -> Batch:
    attributes = TRANSACTIONAL if producer in {ONE, OTHER} else 0
    who = (producer, 0)
    return Batch(
        offset, offset, 0, attributes, BEGUN_MS, BEGUN_MS, who, 0, (Row(offset, BEGUN_MS, key.encode(), value, ()),)
    )


def commit(producer: int, offset: int) -> Batch:
    return marker(offset, (producer, 0), commit=True)


def abort(producer: int, offset: int) -> Batch:
    return marker(offset, (producer, 0), commit=False)


def audited(
    others: Sequence[Batch], *, source: str = "abc", copies: str = "ab", value: bytes | None = b"value"
) -> object:
    """The outcome for the key of the last record of the source. The target has copies of these records of the source,
    at the same places, and the batches of `others`. Its range ends at offset 20, and the log at 30."""
    originals = [row(PLAIN, 100 + at, key, value) for at, key in enumerate(source)]
    own = [row(LANE, at, key, value) for at, key in enumerate(copies)]
    wanted = AuditRange(
        lane=lane_id(0),
        producer_id=LANE,
        first=0,
        end=len(source),
        source_start=100,
        source_end=100 + len(source),
        target_start=0,
        target_end=20,
        pieces=(MapPiece(0, 100, 0, len(source)),),
    )
    tail = msgspec.structs.replace(wanted, target_start=20, target_end=1 << 62, pieces=())
    logs = cast(LogReader, ByteLog(originals, 200)), cast(LogReader, ByteLog([*own, *others], 30))
    reader = RangeReader(*logs, by_records=True)

    async def read() -> object:
        found, copy, _ = await reader.keys(AUDITED, wanted, with_source=True)
        (key,) = [key for key, newest in found.items() if newest.source == 99 + len(source)]
        outcome = judge(found[key], copy)
        if outcome is None:
            return None
        later, _, _ = await reader.keys(AUDITED, tail, with_source=False)
        return settled(outcome, later[key]) if key in later else outcome

    return asyncio.run(read())


@pytest.mark.parametrize("first", [3, 21], ids=["in the range", "after it"])
@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        ([commit(ONE, 24)], None),
        ([abort(ONE, 24)], LOST),
        ([], Undecided(102)),
        # Above the last stable offset, markers tell.
        ([row(OTHER, 22, "x"), commit(ONE, 24)], None),
        ([row(OTHER, 22, "x"), abort(ONE, 24)], LOST),
        # The producer has begun another transaction.
        ([abort(ONE, 24), row(ONE, 25, "x")], LOST),
        ([abort(ONE, 24), row(ONE, 25, "c")], Undecided(102)),
        ([abort(ONE, 24), row(PLAIN, 25, "c")], None),
    ],
)
@pytest.mark.parametrize("is_held_back", [False, True], ids=["", "above an open transaction"])
def test_only_what_is_committed_explains_a_lost_copy(
    first: int, ends: EndsWith, expected: object, *, is_held_back: bool
) -> None:
    earlier = [row(OTHER, 2, "x")] if is_held_back else []
    assert audited([*earlier, row(ONE, first, "c"), *ends]) == expected


def test_the_transaction_has_begun_before_the_range() -> None:
    assert audited([row(ONE, 3, "x"), row(ONE, 21, "c"), abort(ONE, 24)]) == LOST


def test_a_tombstone_is_not_stale_because_of_an_aborted_record() -> None:
    assert audited([row(ONE, 2, "c"), abort(ONE, 24)], source="abxc", value=None) is None
    # If this transaction is committed, the tombstone does not delete its record.
    assert audited([row(ONE, 2, "c")], source="abxc", value=None) == Undecided(103)


def test_an_older_value_that_remains_is_stale_whatever_becomes_of_the_record_before_it() -> None:
    assert judge(Newest(105, 15, target=12, first_open=13, last_open=13), COPY) == Difference("stale", 105, 12)
    assert judge(Newest(105, 15, target=12, first_open=10, last_open=10), COPY) == Difference("stale", 105, 12)
    assert judge(Newest(105, 15, target=12, first_open=13, last_open=18), COPY) == Undecided(105)
    assert judge(Newest(105, 15, target=15, is_own=True, origin=105, first_open=18, last_open=19), COPY) is None
    assert judge(Newest(first_open=18, last_open=19), COPY) is None


def test_open_records_of_a_key_are_merged_in_any_order() -> None:
    parts = [Newest(105, 15), Newest(first_open=13, last_open=13), Newest(first_open=18, last_open=18)]
    wanted = Newest(105, 15, first_open=13, last_open=18)
    assert merged(merged(parts[0], parts[1]), parts[2]) == merged(parts[2], merged(parts[1], parts[0])) == wanted


def test_an_undecided_record_is_neither_a_difference_nor_explained() -> None:
    gone = Explained("target-compaction", "source", 104, 107)
    wanted = AuditRange(
        lane=lane_id(0),
        producer_id=LANE,
        first=0,
        end=10,
        source_start=100,
        source_end=110,
        target_start=10,
        target_end=20,
        pieces=(MapPiece(0, 100, 10, 10),),
    )
    result = RangeResult(lane=wanted.lane, first=0, end=10, by="records", compared=Compared(7, (), (gone,)))
    found = with_keys(result, wanted, [Undecided(105), Undecided(200)]).compared
    assert (found.differences, found.undecided) == ((), (105,))
    assert [(each.start, each.end) for each in found.explained] == [(104, 105), (106, 107)]
