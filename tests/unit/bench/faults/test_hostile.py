"""The rotation of attacks, and the answers of the hostile broker."""

import struct

import pytest

from bench.faults.hostile import batches, wire
from bench.faults.hostile.broker import ODD, PARTITIONS
from bench.faults.hostile.rotation import ALL, API_VERSIONS, BATCHES, SCRAM, rotation
from bench.faults.hostile.wire import Asked, Request, Topic
from mirrord.kafka.protocol import fetch, list_offsets, metadata
from mirrord.kafka.protocol.api_versions import APIS, FETCH, METADATA, choose
from mirrord.kafka.protocol.errors import WireError
from mirrord.kafka.protocol.primitives import INT32, Reader, uuid_text
from mirrord.kafka.protocol.record_batch import Header, intact, scan
from mirrord.kafka.records import bounded_decompression, record_decoding

ASKED = Asked(wire.topic_id(b"plain"), 1, 7)


def frame_of(api: int, version: int, body: bytes) -> bytes:
    return struct.pack(">hhih", api, version, 5, 4) + b"test" + b"\0" + body


@pytest.mark.parametrize("attacks", [ALL, SCRAM])
def test_a_seed_repeats_the_rotation_and_each_round_has_all_attacks(attacks: tuple[str, ...]) -> None:
    phases = rotation(attacks, 7, 30.0)
    assert phases == rotation(attacks, 7, 30.0)
    assert phases != rotation(attacks, 8, 30.0)
    assert sorted(phase.attack for phase in phases[: len(attacks)]) == sorted(attacks)
    assert sum(phase.seconds for phase in phases) == pytest.approx(1_800)
    assert all(20 <= phase.seconds <= 40 for phase in phases[:-1])


def test_a_short_run_has_short_attacks() -> None:
    phases = rotation(ALL, 1, 1.0)
    assert len(phases) >= len(ALL) - 1
    assert all(phase.seconds <= 4 for phase in phases)


def test_the_valid_versions_are_those_that_mirrord_needs() -> None:
    body = wire.api_versions()
    rows = struct.iter_unpack(">hhh", body[6:])
    offered = {api: (least, greatest) for api, least, greatest in rows}
    assert {api.name: choose(api, offered) for api in APIS}["Fetch"] == 13
    assert body[:2] == b"\0\0"
    for kind in range(wire.ABSURD_KINDS):
        absurd = wire.api_versions(kind)
        assert len(absurd) == 6 + 6 * INT32.unpack_from(absurd, 2)[0]


def test_a_request_is_read_and_answered_with_its_correlation_id() -> None:
    asked = wire.request(frame_of(METADATA.key, 12, metadata.encode(12, None)))
    assert (asked.api, asked.version, asked.correlation_id) == (3, 12, 5)
    assert wire.framed(asked, b"abc") == struct.pack(">iiB", 8, 5, 0) + b"abc"
    assert wire.framed(asked, b"", wrong_by=1) == struct.pack(">iiB", 5, 6, 0)
    without_tags = Request(API_VERSIONS, 0, 5, Reader(b""))
    assert wire.framed(without_tags, b"abc") == struct.pack(">ii", 7, 5) + b"abc"


@pytest.mark.parametrize("version", [11, 12, 13])
def test_metadata_of_valid_names_can_be_decoded(version: int) -> None:
    made = wire.metadata(version, [(1, 9_092), (2, 1)], [Topic(b"plain", 3), Topic(b"many", PARTITIONS, 2)])
    found = metadata.decode(version, Reader(made))
    assert [(broker.node, broker.port) for broker in found.brokers] == [(1, 9_092), (2, 1)]
    assert [(topic.name, len(topic.partitions)) for topic in found.topics] == [("plain", 3), ("many", PARTITIONS)]
    assert found.topics[1].partitions[-1].leader == 2


@pytest.mark.parametrize("names", [None, [], ["plain", "gone"]])
def test_metadata_requests_are_read(names: list[str] | None) -> None:
    asked = wire.request(frame_of(METADATA.key, 12, metadata.encode(12, names)))
    assert wire.asked_by_metadata(asked.body) == (None if names is None else [name.encode() for name in names])
    unknown = wire.metadata(13, [], [Topic(b"gone", 0, error=3)])
    assert metadata.decode(13, Reader(unknown), ["gone"]).topics[0].error == 3


def test_names_may_be_any_bytes() -> None:
    odd = metadata.decode(13, Reader(wire.metadata(13, [], [Topic(name, 1) for name in ODD])))
    assert [topic.name for topic in odd.topics] == [name.decode() for name in ODD]
    with pytest.raises(WireError, match="not UTF-8"):
        metadata.decode(13, Reader(wire.metadata(13, [], [Topic(b"\xff", 1)])))


def test_a_fetch_is_read_and_answered() -> None:
    topic = uuid_text(ASKED.topic)
    step = fetch.SessionStep(0, 0, [((topic, 1), fetch.FetchPosition(7))], ())
    limits = fetch.FetchLimits(max_wait_ms=250)
    asked = wire.request(frame_of(FETCH.key, 13, fetch.encode(13, limits, step)))
    assert wire.asked_by_fetch(asked.body) == (0.25, [ASKED])
    records, longer = batches.answer("broken CRC", 7)
    (found,) = fetch.decode(13, Reader(wire.fetched([(ASKED, records, longer)]))).partitions
    assert (found.topic, found.partition, found.records_end - found.records_start) == (topic, 1, len(records))
    with pytest.raises(WireError):
        fetch.decode(13, Reader(wire.fetched([(ASKED, *batches.answer("records beyond the frame", 7))])))


def test_offsets_and_epochs_are_answered() -> None:
    questions = [list_offsets.OffsetQuestion("plain", at, time) for at, time in enumerate((*wire.EARLIEST, -1))]
    asked = wire.asked_by_list_offsets(Reader(list_offsets.encode_list_offsets(questions, read_committed=True)))
    offsets = list_offsets.decode_list_offsets(Reader(wire.listed(asked)))
    assert [(each.topic, each.partition, each.error, each.offset) for each in offsets] == [
        ("plain", 0, 0, 0), ("plain", 1, 0, 0), ("plain", 2, 0, wire.END),
    ]  # fmt: skip
    epochs = wire.asked_by_epoch_ends(
        Reader(list_offsets.encode_epoch_ends([list_offsets.EpochQuestion("p", 2, 0, 0)]))
    )
    (end,) = list_offsets.decode_epoch_ends(Reader(wire.epoch_ends(epochs)))
    assert (end.topic, end.partition, end.error, end.epoch, end.end) == ("p", 2, 0, 0, wire.END)


@pytest.mark.parametrize(
    ("codec", "most_bytes"), [(bounded_decompression.ZSTD, 64 << 10), (bounded_decompression.GZIP, 2 << 20)]
)
def test_a_bomb_is_small_and_intact(codec: int, most_bytes: int) -> None:
    made = batches.batch(3, batches.bomb(codec), codec=codec)
    assert len(made) < most_bytes
    assert intact(made, 0, len(made))
    with pytest.raises(bounded_decompression.TooLarge):
        record_decoding.decode(made, 0, len(made))


def test_other_batches_are_wrong_in_one_way() -> None:
    (crc, _), (many, _), (backward, _) = (
        batches.answer(attack, 100) for attack in ("broken CRC", "2^31-1 records", "offsets that run backwards")
    )
    assert not intact(crc, 0, len(crc))
    assert intact(many, 0, len(many))
    ((_, _, _, last, count, _, header),), _ = scan(many, 0, len(many))
    assert (last, count, Header(*header).last_offset_delta) == (100 + (1 << 31) - 2, (1 << 31) - 1, (1 << 31) - 2)
    assert [each[2] for each in scan(backward, 0, len(backward))[0]] == [100, 90, 80]
    with pytest.raises(ValueError, match="is none of"):
        batches.answer("honesty", 0)
    assert {attack: bool(batches.answer(attack, 0)[0]) for attack in BATCHES} == dict.fromkeys(BATCHES, True)


@pytest.mark.parametrize(
    ("attack", "challenge"),
    [
        ("1 iteration", b"r=abcserver,s=c2FsdCBvZiB0aGUgYmVuY2g=,i=1"),
        ("10^9 iterations", b"r=abcserver,s=c2FsdCBvZiB0aGUgYmVuY2g=,i=1000000000"),
        ("nonce of another client", b"r=anotherclientserver,s=c2FsdCBvZiB0aGUgYmVuY2g=,i=4096"),
        ("empty salt", b"r=abcserver,s=,i=4096"),
        ("success without signature", b"r=abcserver,s=c2FsdCBvZiB0aGUgYmVuY2g=,i=4096"),
    ],
)
def test_scram_challenges(attack: str, challenge: bytes) -> None:
    assert attack in SCRAM
    assert wire.scram_challenge(attack, b"n,,n=mirrord,r=abc") == challenge
    assert wire.sasl_authenticated(1, challenge)[4:8] == INT32.pack(len(challenge))
