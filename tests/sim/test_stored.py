"""Which records that retention has deleted still count, in the fake target."""

from tests.sim.stored import Stored, UnknownCopies
from tests.sim.target import FakeTarget


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


def test_a_follower_has_deleted_what_its_leader_has_deleted() -> None:
    """An election removed offset 1 of the former leader, whose retention had deleted it by the time it followed. The
    new leader has deleted its own offset 1, so it no longer knows where the two logs parted."""
    target = FakeTarget()
    former, leader = target.brokers
    for each in (batch(0, 7), batch(1, 8)):
        former.append(each)
    leader.append(batch(0, 7))
    target.elect()
    for each in (batch(1, 8, leader_epoch=2), batch(2, 9, leader_epoch=2)):
        leader.append(each)
    for each in (former, leader):
        each.expire(2)
    target.learn(0)
    assert former.history == leader.history[:2] == [batch(0, 7), batch(1, 8, leader_epoch=2)]
    target.replicate()
    assert former.history == leader.history
