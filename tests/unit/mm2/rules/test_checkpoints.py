"""Which checkpoints are written: never backwards unless the group went back, and only what is new."""

from mirrord.kafka.protocol.mm2_records import Checkpoint
from mirrord.mm2.rules.checkpoints import CheckpointBook
from mirrord.model.group_status import TranslatedPosition


def at(upstream: int, downstream: int, group: str = "billing", topic: str = "eu.orders") -> TranslatedPosition:
    return TranslatedPosition(group, "orders", topic, 0, upstream, downstream, "")


def write(book: CheckpointBook) -> list[tuple[int, int]]:
    """Everything that is due, as if it were written."""
    due = book.due()
    book.written(due)
    return [(each.upstream, each.downstream) for each in due]


def test_a_first_position_and_each_that_leads_further() -> None:
    book = CheckpointBook()
    assert write(book) == []
    book.record(at(10, 7))
    assert write(book) == [(10, 7)]
    assert write(book) == []
    book.record(at(11, 8))
    book.record(at(12, 9))
    assert write(book) == [(12, 9)]
    book.record(at(12, 9))
    assert write(book) == []


def test_a_target_position_goes_back_only_with_the_group() -> None:
    book = CheckpointBook()
    book.learn(Checkpoint("billing", "eu.orders", 0, 100, 90))
    book.record(at(100, 80))
    book.record(at(105, 85))
    assert write(book) == []
    book.record(at(40, 30))
    assert write(book) == [(40, 30)]
    book.record(at(50, 30))
    assert write(book) == [], "no further on the target: the group would read nothing twice"


def test_what_is_reported_during_a_write_is_not_lost() -> None:
    book = CheckpointBook()
    book.record(at(100, 90))
    assert write(book) == [(100, 90)]
    book.record(at(200, 190))
    due = book.due()
    book.record(at(100, 90))  # the group went back while 200 was being written
    book.written(due)
    assert write(book) == [(100, 90)]


def test_what_was_not_written_stays_due() -> None:
    book = CheckpointBook()
    book.record(at(10, 7))
    book.record(at(10, 7, group="audit"))
    assert len(book.due()) == 2
    assert len(write(book)) == 2


def test_places_do_not_mix_and_negative_offsets_are_none() -> None:
    book = CheckpointBook()
    book.record(at(10, 7))
    book.record(at(5, 3, group="audit"))
    book.record(at(4, 2, topic="eu.payments"))
    book.record(at(-1, 2, topic="eu.none"))
    book.record(at(1, -1, topic="eu.none"))
    assert sorted(write(book)) == [(4, 2), (5, 3), (10, 7)]


def test_metadata_travel_along() -> None:
    book = CheckpointBook()
    book.record(TranslatedPosition("billing", "orders", "eu.orders", 3, 1, 1, "note"))
    assert book.due() == [Checkpoint("billing", "eu.orders", 3, 1, 1, "note")]


def test_a_topic_that_was_created_again_begins_again() -> None:
    book = CheckpointBook()
    book.learn(Checkpoint("billing", "eu.orders", 0, 100, 90))
    book.record(at(120, 110))
    book.forget("eu.orders")
    assert write(book) == []
    book.record(at(120, 5))
    assert write(book) == [(120, 5)]
