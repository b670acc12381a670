"""What contradicts the knowledge about a log."""

import pytest

from mirrord.ledger.log_evidence import Contradicted, Evidence, covers
from mirrord.ledger.state_records import LedgerEnd
from mirrord.model.names import TopicId

TOPIC = TopicId("t")


def mark(end: int, epoch: int, topic: str = "t") -> LedgerEnd:
    return LedgerEnd(TopicId(topic), end, epoch)


def read(*epochs: int, first: int = 10) -> Evidence:
    """A log that was read from `first` on; each entry's leader epoch."""
    evidence = Evidence(TOPIC, first, 1)
    for offset, epoch in enumerate(epochs, first):
        evidence.take(offset, epoch)
    return evidence


def test_what_was_read_and_what_others_know() -> None:
    evidence = read(1, 1, 3)
    assert (evidence.read, evidence.end) == (mark(13, 3), 13)
    evidence.know(mark(15, 4))
    evidence.know(mark(14, 5))
    assert evidence.end == 15
    evidence.take(13, 4)
    evidence.take(14, 4)
    assert evidence.end == 15
    evidence.take(15, 9)
    assert evidence.read == mark(16, 9)


@pytest.mark.parametrize("known", [mark(13, 3), mark(12, 1), mark(12, 2), mark(5, 0), mark(13, 9)])
def test_marks_that_agree(known: LedgerEnd) -> None:
    read(1, 1, 3).know(known)


@pytest.mark.parametrize("known", [mark(13, 2), mark(13, 1), mark(11, 0), mark(20, 2), mark(13, 3, "u")])
def test_marks_that_do_not(known: LedgerEnd) -> None:
    with pytest.raises(Contradicted) as raised:
        read(1, 1, 3).know(known)
    assert raised.value.recorded == known


def test_an_entry_of_a_later_epoch_below_a_mark_is_another_entry() -> None:
    evidence = read(1)
    evidence.know(mark(13, 2))
    evidence.take(11, 2)
    with pytest.raises(Contradicted) as raised:
        evidence.take(12, 3)
    assert raised.value.recorded == mark(13, 2)


def test_an_entry_in_the_place_of_an_acknowledged_one_gives_a_mark_that_it_contradicts() -> None:
    for evidence, offset in ((read(1, 1, 3), 12), (read(), 9)):
        proof = evidence.replaced(offset)
        assert proof.end == offset + 1
    assert read(1, 1, 3).replaced(12) == mark(13, 2)
    with pytest.raises(Contradicted):
        read(1, 1, 3).know(read(1, 1, 3).replaced(12))


def test_a_mark_covers_what_reaches_less_far_or_is_of_a_later_epoch() -> None:
    assert covers(mark(10, 2), mark(10, 2))
    assert covers(mark(10, 2), mark(9, 3))
    assert not covers(mark(10, 2), mark(11, 2))
    assert not covers(mark(10, 2), mark(9, 1))
    assert not covers(mark(10, 2), mark(9, 3, "u"))
