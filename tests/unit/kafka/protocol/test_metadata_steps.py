"""The metadata of large clusters are decoded in steps."""

from struct import pack

import pytest

from mirrord.kafka.client.metadata_decoding import decode_in_steps
from mirrord.kafka.protocol.errors import WireError
from mirrord.kafka.protocol.metadata import AT_ONCE, Metadata, TopicMetadata, decode, decoding
from mirrord.kafka.protocol.primitives import Reader, compact_array, compact_string

PARTITIONS = 3 * AT_ONCE + 1


def answer(topics: int, partitions: int) -> bytes:
    row = b"".join((pack(">hiii", 0, 7, 1, 5), b"\x02", pack(">i", 1), b"\x02", pack(">i", 1), b"\x01\x00"))
    listed = [
        pack(">h", 0) + compact_string(f"topic-{at}") + bytes(16) + b"\0" + compact_array([row] * partitions) + bytes(5)
        for at in range(topics)
    ]
    return (
        bytes(4) + b"\x01" + compact_string("cluster") + pack(">i", 1) + compact_array(listed) + pack(">h", 0) + b"\0"
    )


@pytest.mark.parametrize(
    ("topics", "partitions"), [(1, PARTITIONS), (PARTITIONS, 1), (AT_ONCE // 10, 30), (PARTITIONS, 0)]
)
async def test_a_large_answer_takes_many_steps(topics: int, partitions: int) -> None:
    data = answer(topics, partitions)
    assert sum(1 for _ in decoding(13, Reader(data))) == 3
    whole = decode(13, Reader(data))
    assert isinstance(whole, Metadata)
    assert (len(whole.topics), len(whole.topics[0].partitions)) == (topics, partitions)
    assert await decode_in_steps(13, data) == whole


def test_many_brokers_take_many_steps() -> None:
    """DELAY. A hostile cluster can report millions of brokers."""
    broker = pack(">i", 1) + compact_string("b") + pack(">i", 9092) + b"\0\0"
    data = answer(1, 1)
    data = data[:4] + compact_array([broker] * PARTITIONS) + data[5:]
    assert sum(1 for _ in decoding(13, Reader(data))) == 3
    assert len(decode(13, Reader(data)).brokers) == PARTITIONS


async def test_a_small_answer_takes_one_step() -> None:
    data = answer(3, 5)
    assert not [*decoding(13, Reader(data))]
    topics: list[TopicMetadata] = (await decode_in_steps(13, data)).topics
    assert [topic.name for topic in topics] == ["topic-0", "topic-1", "topic-2"]


async def test_a_topic_that_was_not_requested_is_refused_before_its_partitions() -> None:
    """DELAY. A hostile broker can answer every request with 100,000 partitions."""
    data = answer(3, 5)
    names = [f"topic-{at}" for at in range(3)]
    assert len((await decode_in_steps(13, data, names)).topics) == 3
    for requested in ([], names[:2]):
        with pytest.raises(WireError, match="was not requested"):
            await decode_in_steps(13, data, requested)
    many = decoding(13, Reader(answer(1, PARTITIONS)), ["another"])
    with pytest.raises(WireError):
        next(many)


async def test_a_malformed_answer_is_refused() -> None:
    with pytest.raises(WireError):
        await decode_in_steps(13, answer(1, PARTITIONS)[:-1])
