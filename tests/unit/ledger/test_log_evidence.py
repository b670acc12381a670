"""What contradicts the knowledge about a log."""

import pytest

from mirrord.ledger.log_evidence import Contradicted, Evidence, covers
from mirrord.ledger.state_topic_records import LedgerEnd
from mirrord.model.names import TopicId

TOPIC = TopicId("t")


def ledger_end(end: int, epoch: int, topic: str = "t") -> LedgerEnd:
    return LedgerEnd(TopicId(topic), end, epoch)


def read(*epochs: int, first: int = 10) -> Evidence:
    """A log that was read from `first` on; each entry's leader epoch."""
    evidence = Evidence(TOPIC, first, 1)
    for offset, epoch in enumerate(epochs, first):
        evidence.take(offset, epoch)
    return evidence


def test_what_was_read_and_what_others_know() -> None:
    evidence = read(1, 1, 3)
    assert (evidence.read, evidence.end) == (ledger_end(13, 3), 13)
    evidence.know(ledger_end(15, 4))
    evidence.know(ledger_end(14, 5))
    assert evidence.end == 15
    evidence.take(13, 4)
    evidence.take(14, 4)
    assert evidence.end == 15
    evidence.take(15, 9)
    assert evidence.read == ledger_end(16, 9)


@pytest.mark.parametrize(
    "known", [ledger_end(13, 3), ledger_end(12, 1), ledger_end(12, 2), ledger_end(5, 0), ledger_end(13, 9)]
)
def test_recorded_ends_that_agree(known: LedgerEnd) -> None:
    read(1, 1, 3).know(known)


@pytest.mark.parametrize(
    "known", [ledger_end(13, 2), ledger_end(13, 1), ledger_end(11, 0), ledger_end(20, 2), ledger_end(13, 3, "u")]
)
def test_recorded_ends_that_disagree(known: LedgerEnd) -> None:
    with pytest.raises(Contradicted) as raised:
        read(1, 1, 3).know(known)
    assert raised.value.recorded == known


def test_an_entry_of_a_later_epoch_below_a_recorded_end_is_another_entry() -> None:
    evidence = read(1)
    evidence.know(ledger_end(13, 2))
    evidence.take(11, 2)
    with pytest.raises(Contradicted) as raised:
        evidence.take(12, 3)
    assert raised.value.recorded == ledger_end(13, 2)


def test_an_entry_in_place_of_an_acknowledged_one_gives_a_recorded_end_that_it_contradicts() -> None:
    for evidence, offset in ((read(1, 1, 3), 12), (read(), 9)):
        proof = evidence.replaced(offset)
        assert proof.end == offset + 1
    assert read(1, 1, 3).replaced(12) == ledger_end(13, 2)
    with pytest.raises(Contradicted):
        read(1, 1, 3).know(read(1, 1, 3).replaced(12))


def test_a_recorded_end_covers_what_reaches_less_far_or_has_a_later_epoch() -> None:
    assert covers(ledger_end(10, 2), ledger_end(10, 2))
    assert covers(ledger_end(10, 2), ledger_end(9, 3))
    assert not covers(ledger_end(10, 2), ledger_end(11, 2))
    assert not covers(ledger_end(10, 2), ledger_end(9, 1))
    assert not covers(ledger_end(10, 2), ledger_end(9, 3, "u"))
