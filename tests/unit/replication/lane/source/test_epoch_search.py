"""The search for the leader epochs of source records that a seek skips, against logs with all kinds of epochs."""

import random
from itertools import pairwise

import pytest

from mirrord.replication.lane.signals import DivergenceAnswer
from mirrord.replication.lane.source.epoch_search import MOST_QUESTIONS, EpochSearch

Begun = list[tuple[int, int]]
"""Pairs (leader epoch, source offset at which it begins), as a broker keeps them."""

OUT_OF_RANGE = 1


def broker(begun: Begun, log_end: int, epoch: int, leader_epoch: int) -> DivergenceAnswer:
    """Answer as a broker does (LeaderEpochFileCache.endOffsetFor)."""
    if not begun or epoch < 0:
        return DivergenceAnswer(1, OUT_OF_RANGE)
    known = max((each for each, _ in begun if each <= epoch), default=epoch)
    end = min((at for later, at in begun if later > epoch), default=log_end)
    return DivergenceAnswer(1, 0, known, end, leader_epoch)


def searched(begun: Begun, start: int, end: int, log_end: int) -> EpochSearch:
    leader_epoch = begun[-1][0] if begun else 3
    search = EpochSearch(start, end, leader_epoch)
    while not search.is_done:
        assert search.asked <= MOST_QUESTIONS
        search = search.after(broker(begun, log_end, search.question[1], leader_epoch))
    return search


def epochs_in(begun: Begun, start: int, end: int, log_end: int) -> tuple[tuple[int, int], ...]:
    behind = [at for _, at in begun[1:]] + [log_end]
    pieces = ((epoch, max(at, start), min(later, end)) for (epoch, at), later in zip(begun, behind, strict=True))
    return tuple((at, epoch) for epoch, at, later in pieces if at < later)


def test_each_epoch_in_the_range_is_found() -> None:
    chance = random.Random(7)
    for _ in range(2_000):
        epochs = sorted(chance.sample(range(40), chance.randint(1, 9)))
        lowest = chance.choice((0, 0, 4))
        begins = [lowest, *sorted(chance.sample(range(lowest + 1, 30), len(epochs) - 1))]
        begun = list(zip(epochs, begins, strict=True))
        log_end = begins[-1] + chance.randint(0, 6)
        if log_end <= lowest:
            continue
        start = chance.randint(0, log_end - 1)
        end = chance.randint(start + 1, log_end)
        search = searched(begun, start, end, log_end)
        # What is below the first known epoch may count as having epoch 0, which is below all others.
        found, wanted = search.found, epochs_in(begun, start, end, log_end)
        is_first = lowest > 0 or begun[0][0] > 0
        assert [each for each in found if each[1] or not is_first] == [
            each for each in wanted if each[1] or not is_first
        ], (begun, start, end, log_end)
        assert all(at < later and epoch < above for (at, epoch), (later, above) in pairwise(search.found))
        assert not search.is_cut


def test_a_source_with_too_many_epochs() -> None:
    """The oldest records of the range then count as having the epoch of those after them."""
    begun = [(epoch, 2 * epoch) for epoch in range(100)]
    search = searched(begun, 10, 190, 200)
    assert (search.asked, search.is_cut) == (MOST_QUESTIONS, True)
    assert search.found[0] == (10, 68)
    assert search.found[1:] == tuple((2 * epoch, epoch) for epoch in range(69, 95))
    # All of them are above the range.
    assert searched(begun, 10, 20, 200).found == ((10, 68),)


@pytest.mark.parametrize("log_end", [0, 9])
def test_a_log_that_ends_below_the_range(log_end: int) -> None:
    search = searched([(1, 0), (4, 5)] if log_end else [(4, 0)], 3, 10, log_end)
    assert (search.log_end, search.found, search.asked) == (log_end, (), 1)


def test_a_source_that_knows_no_epochs() -> None:
    assert searched([], 3, 10, 20).found == ()
    no_divergence = EpochSearch(3, 10, 5).after(DivergenceAnswer(1, 0, leader_epoch=5))
    assert (no_divergence.is_done, no_divergence.found) == (True, ())
