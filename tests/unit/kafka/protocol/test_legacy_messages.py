"""Messages of the formats 0 and 1: found by their headers, read as Kafka reads them, copied as batches of the lane."""

import random
from collections.abc import Sequence

import pytest

from mirrord.kafka.client.range_reader import ReadFailed, _scan
from mirrord.kafka.protocol.errors import Malformed
from mirrord.kafka.protocol.fetch import FetchedPartition
from mirrord.kafka.protocol.legacy_messages import GROUP_BYTES, NO_TIME, Group, group, is_old
from mirrord.kafka.protocol.record_batch import HEADER, Header, intact
from mirrord.kafka.records.record_decoding import decode
from mirrord.ledger.facts.core import SourceRun, Verdict
from mirrord.model.names import LaneId
from mirrord.model.runs import Run
from mirrord.replication.lane import intake
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.second_path import RebuildRequest, RebuiltBatch
from mirrord.replication.lane.signals import Append, Chunk
from mirrord.replication.lane.state import Lane
from tests.fixtures.old_messages import Magic, Message, lz4_of_format_0, messages, with_checksum
from tests.fixtures.rebuilt import rebuild
from tests.unit.replication.host.test_batch_rebuild import BASE, batch
from tests.unit.replication.host.test_batch_rebuild import records as new_records

TIME_MS = 1_600_000_000_000
PRODUCER = (77, 3, 2**31 - 2)
CODECS = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (1, 3)]


def some(*offsets: int) -> list[Message]:
    return [Message(offset, TIME_MS - offset, b"k%d" % offset, b"v" * 40) for offset in offsets]


def again(data: bytes, from_offset: int = 0) -> RebuiltBatch | None:
    padded = bytearray(b"front") + data + b"behind"
    return rebuild(RebuildRequest(padded, 5, 5 + len(data), from_offset, *PRODUCER))


def times(magic: Magic, records: Sequence[Message]) -> list[int]:
    return [record.time_ms if magic else NO_TIME for record in records]


@pytest.mark.parametrize(("magic", "codec"), CODECS)
def test_old_messages_become_a_batch_of_the_lane(magic: Magic, codec: int) -> None:
    records = [*some(100, 101, 105), Message(106, TIME_MS, None, None), Message(107, TIME_MS, b"", b"")]
    rebuilt = again(messages(magic, records, codec))
    assert rebuilt is not None
    assert rebuilt.pieces == ((100, 2), (105, 3))
    header = Header(*HEADER.unpack_from(rebuilt.data))
    assert intact(rebuilt.data, 0, len(rebuilt.data))
    assert (header.magic, header.base_offset, header.last_offset_delta, header.record_count) == (2, 0, 4, 5)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == PRODUCER
    assert header.attributes in {0, codec}
    copies = decode(rebuilt.data, 0, len(rebuilt.data))
    assert [(record.key, record.value) for record in copies] == [(record.key, record.value) for record in records]
    assert [record.time_ms for record in copies] == times(magic, records)
    assert rebuilt.newest_ms == header.max_timestamp == max(times(magic, records))
    assert not any(record.headers for record in copies)


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_the_codec_stays(codec: int) -> None:
    records = [Message(offset, TIME_MS, b"k", b"x" * 500) for offset in range(20)]
    rebuilt = again(messages(1, records, codec))
    assert rebuilt is not None
    assert Header(*HEADER.unpack_from(rebuilt.data)).attributes == codec


@pytest.mark.parametrize("codec", [0, 1, 2, 3])
def test_an_append_time_is_that_of_the_wrapper(codec: int) -> None:
    records = some(7, 8, 9)
    rebuilt = again(messages(1, records, codec, append_ms=TIME_MS + 5))
    assert rebuilt is not None
    assert [record.time_ms for record in decode(rebuilt.data, 0, len(rebuilt.data))] == [TIME_MS + 5] * 3


@pytest.mark.parametrize(("magic", "codec"), CODECS)
def test_a_position_inside_leaves_out_what_was_copied(magic: Magic, codec: int) -> None:
    data = messages(magic, some(100, 101, 105), codec)
    rebuilt = again(data, 101)
    assert rebuilt is not None
    assert rebuilt.pieces == ((101, 1), (105, 1))
    assert again(data, 106) is None


@pytest.mark.parametrize("times", [(NO_TIME, 5, 3), (NO_TIME, NO_TIME), (5, NO_TIME), (NO_TIME,), (0, NO_TIME, 0)])
def test_records_without_a_time_stay_without_one(times: tuple[int, ...]) -> None:
    old = messages(0, some(0)) if times[0] == NO_TIME else messages(1, [Message(0, times[0], b"k", b"v")])
    for offset, time_ms in enumerate(times[1:], 1):
        old += messages(1 if time_ms != NO_TIME else 0, [Message(offset, time_ms, b"k", b"v")])
    rebuilt = again(old)
    assert rebuilt is not None
    assert intact(rebuilt.data, 0, len(rebuilt.data))
    assert tuple(record.time_ms for record in decode(rebuilt.data, 0, len(rebuilt.data))) == times
    assert rebuilt.newest_ms == max(times) == Header(*HEADER.unpack_from(rebuilt.data)).max_timestamp


def test_what_cannot_be_read_is_one_kind_of_error() -> None:
    damaged = bytearray(messages(1, some(1)))
    damaged[-1] ^= 1
    garbage = bytearray(messages(1, some(1, 2), 1))
    garbage[40:50] = bytes(10)
    misplaced = bytearray(messages(0, some(1, 2), 1))
    misplaced[:8] = (9).to_bytes(8)
    twice = messages(1, [Message(0, 0, None, messages(1, some(0), 1))], 2)
    for data, why in (
        (bytes(damaged), "the checksum does not match"),
        (with_checksum(garbage), "the records cannot be decompressed"),
        (bytes(misplaced), "the last message inside the one at offset 9 has a different offset"),
        (messages(0, some(5)) + messages(1, some(6), 1)[:-1], "where .* are left"),
        (messages(0, some(5)) + messages(1, some(5)), "the offsets are not in ascending order"),
        (lz4_of_format_0(some(1)), "KAFKA-3160"),
    ):
        with pytest.raises(ValueError, match=why):
            again(data)
    assert again(twice) is not None, "a message in a message is a value like any other"


# found by their headers


def test_messages_without_compression_are_taken_together() -> None:
    data = messages(0, some(3, 4)) + messages(1, some(6)) + messages(1, some(7, 8), 1) + messages(1, some(9))
    first = group(data, 0, len(data))
    assert first is not None
    assert first[2:] == (3, 6)
    wrapper = group(data, first.end, len(data))
    assert wrapper is not None
    assert wrapper == Group(first.end, len(data) - len(messages(1, some(9))), -1, 8)
    assert group(data, wrapper.end, len(data)) == Group(wrapper.end, len(data), 9, 9)
    assert group(data, 0, len(data), 2) == Group(0, len(messages(0, some(3, 4))), 3, 4)
    many = messages(1, some(*range(3_000)))
    found = group(many, 0, len(many))
    assert found is not None
    assert GROUP_BYTES <= found.end < GROUP_BYTES + 200


def test_a_message_that_is_cut_waits_for_the_next_answer() -> None:
    data = messages(1, some(5, 6))
    one = len(messages(1, some(5)))
    assert [group(data, 0, end) for end in (0, 10, 17, 18, one - 1)] == [None] * 5
    assert group(data, 0, one) == group(data, 0, len(data) - 1) == Group(0, one, 5, 5)
    assert not is_old(batch(new_records([0], random.Random(1))), 0, 80)


@pytest.mark.parametrize(
    "wrong", [messages(1, some(6, 5)), b"\0" * 8 + b"\0\0\0\x05" + bytes(20), b"\xff" * 8 + messages(0, some(1))[8:]]
)
def test_what_cannot_be_a_message_is_refused(wrong: bytes) -> None:
    with pytest.raises(Malformed):
        group(wrong, 0, len(wrong))


# through the lane


def lane_at(position: int) -> Lane:
    lane = Lane(LaneId("a.0.b"), "orders", "eu.orders", 0, "p", True, rebuild)
    lane.phase, lane.position, lane.producer_id, lane.open_run = Phase.COPYING, position, 7, Run(0, position)
    return lane


def chunk(data: bytes, aborted: Sequence[tuple[int, int]] = ()) -> Chunk:
    return Chunk(0, 0, 1_000, 1_000, 0, aborted, bytearray(data), 0, len(data))


def test_old_and_new_batches_of_one_answer() -> None:
    """Ordinals are dense, missing offsets get verdicts, the new batch is copied raw."""
    new = bytes(batch(new_records([0, 1, 2], random.Random(1)), base_offset=BASE))
    data = messages(0, some(990, 991)) + messages(1, some(993, 994), 1) + new + messages(1, some(1_004))[:-3]
    lane = lane_at(990)
    effects, unreadable = intake.take(lane, chunk(data))
    assert unreadable is None
    (append,) = effects
    assert isinstance(append, Append)
    (fact,) = append.facts
    assert isinstance(fact, SourceRun)
    assert fact.runs == (Run(2, 993), Run(4, 1_000))
    assert fact.verdicts == (Verdict(992, 993, "compacted"), Verdict(995, 1_000, "compacted"))
    assert [(each.first, each.count, each.offset, each.next_offset) for each in lane.ready] == [
        (0, 2, 990, 992),
        (2, 2, 993, 995),
        (4, 3, 1_000, 1_003),
    ]
    assert (lane.rebuilt_batches, lane.raw_batches) == ({"old-format": 2}, 1)
    assert (lane.position, lane.next_ordinal, lane.epoch) == (1_003, 7, 4)


def test_only_a_short_message_is_left_of_an_answer() -> None:
    data = messages(0, [Message(5, 0, None, None)])
    assert len(data) < HEADER.size
    lane = lane_at(5)
    assert intake.take(lane, chunk(data))[1] is None
    assert (lane.position, len(lane.ready), lane.epoch) == (6, 1, -1)


def test_what_stands_before_the_position_is_left_out() -> None:
    data = messages(1, some(5, 6, 7)) + messages(1, some(8, 9), 1)
    lane = lane_at(9)
    assert intake.take(lane, chunk(data))[1] is None
    assert [(each.offset, each.count) for each in lane.ready] == [(9, 1)]


def test_what_is_copied_again_ends_where_the_plan_jumps() -> None:
    data = messages(1, some(5, 6, 7, 8))
    lane = lane_at(5)
    lane.plan.append(Run(2, 20))
    assert intake.take(lane, chunk(data))[1] is None
    assert [(each.offset, each.count) for each in lane.ready] == [(5, 2)]
    assert (lane.position, lane.next_ordinal) == (20, 2)


def test_old_messages_in_between_do_not_bring_an_abort_back() -> None:
    """The producer's second transaction was not aborted: its records must not be skipped."""
    aborted = bytes(batch(new_records([0], random.Random(1)), base_offset=10, attributes=0x10, producer_id=9))
    marker = bytes(batch(new_records([0], random.Random(2)), base_offset=11, attributes=0x30, producer_id=9))
    again_9 = bytes(batch(new_records([0], random.Random(3)), base_offset=13, attributes=0x10, producer_id=9))
    lane = lane_at(10)
    _, unreadable = intake.take(lane, chunk(aborted + marker + messages(1, some(12)) + again_9, [(9, 10)]))
    assert unreadable is None
    assert [each.offset for each in lane.ready] == [12, 13]


def test_a_message_that_cannot_be_read_stops_the_lane_before_it() -> None:
    wrong = bytearray(messages(1, some(7, 8), 1))
    wrong[30] ^= 1
    lane = lane_at(5)
    _, unreadable = intake.take(lane, chunk(messages(1, some(5, 6)) + wrong))
    assert unreadable is not None
    assert (unreadable.start, unreadable.end, str(unreadable)) == (
        7,
        9,
        "a batch whose records cannot be read (the checksum does not match)",
    )
    assert lane.position == 7
    _, unreadable = intake.take(lane_at(5), chunk(messages(1, some(6, 5))))
    assert unreadable is not None


# read for a comparison


def read(data: bytes, position: int) -> list[tuple[int, int, int]]:
    """(first offset, last offset, magic) of what a stretch returns."""
    fetched = FetchedPartition("t", 0, 0, 0, 0, 0, 0, len(data), [])
    return [(base, last, header[3]) for _, _, base, last, _, _, header in _scan(data, fetched, position)]


def test_a_stretch_holds_old_and_new_batches() -> None:
    new = bytes(batch(new_records([0, 1, 2], random.Random(1))))
    old = messages(0, some(3, 5)) + messages(1, some(7, 9), 1) + messages(1, some(11), 1)
    assert read(old + new, 3) == [(3, 5, 0), (6, 9, 0), (10, 11, 0), (BASE, BASE + 2, 2)]
    assert read(messages(1, some(7, 9), 1) + new[:-1], 8) == [(8, 9, 0)]
    assert read(new + old[:-1], BASE)[1:] == [(3, 5, 0), (6, 9, 0)]
    with pytest.raises(ReadFailed):
        read(messages(1, some(9, 7)), 0)
