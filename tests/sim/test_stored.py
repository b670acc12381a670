"""Which records that retention has deleted still count, in the fake target."""

from tests.sim.stored import Stored, UnknownCopies


def batch(base: int, *numbers: int, leader_epoch: int = 1) -> Stored:
    return Stored(base, len(numbers), 501, 0, 0, 0, numbers, leader_epoch)


FIRST, AGAIN = batch(0, 7, 8), batch(5, 7)


def test_deleted_records_count() -> None:
    assert UnknownCopies().without([FIRST], [FIRST, AGAIN]) == [FIRST]


def test_records_that_the_holder_cannot_know_about_do_not_count() -> None:
    unknown = UnknownCopies()
    unknown.resumed(2, FIRST.copies({7}))
    assert unknown.without([FIRST], [FIRST]) == [batch(0, 0, 8)]
    unknown.resumed(1, FIRST.copies())
    assert unknown.without([FIRST], [FIRST]) == [batch(0, 0, 8)], "a former holder"
    unknown.resumed(3, set())
    assert unknown.without([FIRST], [FIRST]) == [FIRST], "the next holder finds out"


def test_records_that_were_appended_again_count_once_where_the_new_batch_is() -> None:
    unknown = UnknownCopies()
    unknown.appended(AGAIN, FIRST.copies({7}))
    assert unknown.without([FIRST], [FIRST, AGAIN]) == [batch(0, 0, 8)]
    assert unknown.without([FIRST], [FIRST]) == [FIRST], "an election has removed the new batch"
    assert unknown.without([FIRST], [FIRST, batch(5, 9, leader_epoch=2)]) == [FIRST]
