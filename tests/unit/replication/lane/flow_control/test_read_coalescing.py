"""How many answers are awaited before they are processed: several if many are due, never more than are sure to come."""

import random

from mirrord.kafka.protocol.primitives import Reader
from mirrord.kafka.protocol.produce import decode
from mirrord.replication.lane.flow_control.read_coalescing import Owed
from tests.fixtures.fake_pipe import produced

TOPIC = b"0123456789abcdef"


def test_while_few_answers_are_outstanding_each_one_wakes_the_reader() -> None:
    owed = Owed()
    for _ in range(4):
        owed.sent(1)
        assert not owed.moved()
    for _ in range(4):
        owed.answered(1)
        assert not owed.moved()
    assert owed.low_watermark_bytes == 1


def test_never_is_more_waited_for_than_half_of_what_is_sure_to_come(seed: int) -> None:
    chance = random.Random(seed)
    owed, waiting, moves = Owed(), list[int](), 0
    for _ in range(3_000):
        if waiting and chance.random() < 0.5:
            owed.answered(waiting.pop(0))
        elif len(waiting) < 32:
            waiting.append(chance.choice((1, 4, 100)))
            owed.sent(waiting[-1])
        moves += owed.moved()
        assert owed.low_watermark_bytes == 1 or 2 * owed.low_watermark_bytes <= owed.least_bytes
    for partitions in waiting:
        owed.answered(partitions)
        owed.moved()
    assert (owed.least_bytes, owed.low_watermark_bytes) == (0, 1)
    assert 0 < moves < 1_500


def test_an_answer_is_at_least_as_long_as_is_reckoned() -> None:
    for partitions in (1, 4, 120):
        body = produced(TOPIC, *((partition, 0, 7) for partition in range(partitions)))
        assert len(decode(13, Reader(body)).partitions) == partitions
        owed = Owed()
        owed.sent(partitions)
        header_bytes, id_bytes, name_bytes = 9, 16, 2
        assert owed.least_bytes == header_bytes + len(body) - id_bytes + name_bytes
