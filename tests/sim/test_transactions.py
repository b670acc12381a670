"""Transactions of other clients in the fake target: what the contract with real brokers does not show."""

from dataclasses import replace

import pytest

from tests.sim.log_readers import PARTITION, TargetReader, at_once
from tests.sim.mutations_of_transactions import a_relocation_waits_for_transactions
from tests.sim.scheduler import STEPS, Story
from tests.sim.themes import THEMES
from tests.sim.transactions import InTransaction, TransactionalTarget, check_readers, consumed
from tests.sim.traps.setting import shape_with

NOW_MS = 1_700_000_000_000


@pytest.fixture
def target() -> TransactionalTarget:
    """A compacted topic with three keys."""
    found = TransactionalTarget(clients=2)
    found.keys = 3
    return found


def everywhere(target: TransactionalTarget) -> None:
    target.learn(NOW_MS)
    while target.replicate():
        pass


def read(target: TransactionalTarget, end: int, *, committed: bool) -> list[tuple[int, bool]]:
    async def bases() -> list[tuple[int, bool]]:
        reading = TargetReader(target).read(PARTITION, 0, end, committed=committed)
        return [(batch.header.base_offset, batch.aborted) async for batch in reading]

    return at_once(bases())


def test_a_marker_counts_once_it_is_replicated(target: TransactionalTarget) -> None:
    client = target.clients[0]
    target.write_in_transaction(client, 2, NOW_MS)
    everywhere(target)
    target.end_transaction(client, "commit", NOW_MS)
    assert (target.high_watermark, target.end, target.last_stable()) == (2, 3, 0)
    assert target.uncommitted() == {1, 2}
    assert consumed(target) == []
    everywhere(target)
    assert (target.high_watermark, target.last_stable(), target.uncommitted()) == (3, 3, set())
    assert consumed(target) == [-2, -1]


def test_a_reader_skips_aborted_records_only_if_it_wants_committed_ones(target: TransactionalTarget) -> None:
    one, other = target.clients
    target.write_in_transaction(one, 1, NOW_MS)
    target.foreign(1, NOW_MS)
    target.end_transaction(one, "abort", NOW_MS)
    target.write_in_transaction(other, 1, NOW_MS)
    everywhere(target)
    assert read(target, 4, committed=False) == [(0, False), (1, False), (2, False), (3, False)]
    assert read(target, target.last_stable(), committed=True) == [(0, True), (1, False), (2, False)]
    assert (target.uncommitted(), consumed(target)) == ({1, 3}, [-2])


def test_the_next_marker_ends_a_transaction_that_hangs(target: TransactionalTarget) -> None:
    client = target.clients[0]
    target.write_in_transaction(client, 2, NOW_MS)
    everywhere(target)
    target.in_sync = False
    target.end_transaction(client, "commit", NOW_MS)
    target.write_marker(client, NOW_MS)
    assert not client.is_open
    target.elect()
    everywhere(target)
    assert (target.end, target.last_stable(), target.uncommitted()) == (2, 0, {1, 2})
    target.write_in_transaction(client, 1, NOW_MS)
    target.end_transaction(client, "abort", NOW_MS)
    everywhere(target)
    assert target.uncommitted() == {1, 2, 3}
    assert read(target, 4, committed=True) == [(0, True), (2, True), (3, False)]


def test_the_cleaner_stops_at_an_open_transaction(target: TransactionalTarget) -> None:
    one, other = target.clients
    target.foreign(3, NOW_MS)
    target.write_in_transaction(one, 3, NOW_MS)
    target.end_transaction(one, "commit", NOW_MS)
    target.write_in_transaction(other, 3, NOW_MS)
    target.foreign(3, NOW_MS)
    everywhere(target)
    target.clean(0, target.high_watermark)
    log = target.brokers[0].log
    assert [(each.base, any(each.numbers)) for each in log] == [(3, True), (6, False), (7, False), (10, True)]
    target.end_transaction(other, "commit", NOW_MS)
    everywhere(target)
    target.clean(0, target.high_watermark)
    assert [each.base for each in log if any(each.numbers)] == [10]


def test_records_of_aborted_transactions_supersede_nothing(target: TransactionalTarget) -> None:
    one = target.clients[0]
    target.foreign(3, NOW_MS)
    for _ in range(2):
        target.write_in_transaction(one, 3, NOW_MS)
        target.end_transaction(one, "abort", NOW_MS)
        everywhere(target)
        target.write_marker(one, NOW_MS)
    target.foreign(1, NOW_MS)
    everywhere(target)
    target.clean(0, target.high_watermark)
    # The last batch of a producer stays, and so does the marker behind it.
    log = target.brokers[0].log
    assert [(each.base, isinstance(each, InTransaction)) for each in log] == [
        (0, False), (7, True), (10, True), (11, False)
    ]  # fmt: skip
    assert consumed(target) == [-3, -2, -10]


@pytest.mark.parametrize("theme", ["plain", "unclean", "compacted copy, unclean, beside others", "target retention"])
def test_a_lane_copies_beside_transactions(theme: str) -> None:
    story = Story(5, replace(THEMES[theme], others=2))
    story.run(STEPS)
    target = story.world.target
    assert isinstance(target, TransactionalTarget)
    assert any(isinstance(each, InTransaction) and each.ending for each in target.brokers[target.leader].whole)
    check_readers(story.world)


def test_a_relocation_that_waits_for_transactions_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few stories relocate batches beside an open transaction, too few for a mutation (`tests.sim.mutations`)."""
    trap = ("difference_beside_an_open_transaction",)
    shape = shape_with(replace(THEMES["plain"], others=2), trap)
    Story(28, shape).run(STEPS)
    a_relocation_waits_for_transactions(monkeypatch)
    with pytest.raises(AssertionError, match="does not come to rest"):
        Story(28, shape).run(STEPS)


def test_a_story_without_other_clients_has_the_usual_target() -> None:
    assert type(Story(5, THEMES["plain"]).world.target) is not TransactionalTarget
