"""Records of the state topic that mirrord did not write."""

from mirrord.ledger.state_topic_rows import LONGEST_FOREIGN, MOST_FOREIGN, StateRow, StateTopicRows


def test_the_memory_for_foreign_records_is_limited() -> None:
    rows = StateTopicRows()
    for number in range(MOST_FOREIGN + 10):
        rows.take(StateRow(f"{number}/{'x' * 1_000}", b"written by somebody else"))
    assert len(rows.foreign) == MOST_FOREIGN
    assert max(map(len, rows.foreign)) == LONGEST_FOREIGN
    rows.take(StateRow(f"0/{'x' * 1_000}", None))
    assert len(rows.foreign) == MOST_FOREIGN - 1
