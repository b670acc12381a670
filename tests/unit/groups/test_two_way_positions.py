"""Who else writes into topics that are copied both ways under the same names, and the answers where that is open."""

from mirrord.groups.group_position_translation import NOT_BACK, SourcePosition
from mirrord.groups.two_way_positions import CrossedAtlas, RecentLogEnds, Sight, Way, across, backs
from mirrord.ledger.facts.core import Progress
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.names import ClusterId, LaneId, LaneKey, TopicId
from tests.fixtures.clock import FakeClock

HERE, THERE, FAR = (TopicId(letter * 22) for letter in "ABC")
EU, US, ASIA = map(ClusterId, ("eu", "us", "asia"))
PLACE = ("orders", 0)


def lane(source: TopicId, target: TopicId, *, name: str = "orders", changed_at: int = 0) -> LaneState:
    made = LaneState(LaneKey(source, 0, target), "orders", name, 1, 0, "", "sequence", changed_at=changed_at)
    made.source_runs.add(0, 0)
    made.target_runs.add(0, 0)
    return made


FORTH = lane(HERE, THERE)


def mark(of: LaneState, records: int, *, source: int, settled: bool = True) -> Progress:
    position = (records, records, 0, source, source, 0, 0, True, "copying")
    return Progress(of.key.id, 1, 1, *position, settled=settled)


def test_the_newest_lane_back_is_found_by_the_topics_ids() -> None:
    old, new = lane(THERE, HERE, changed_at=1), lane(THERE, HERE, changed_at=2)
    other = lane(FAR, HERE, changed_at=3)  # of a former topic of this name
    state = FlowState(source_cluster=US)
    found = backs((EU, US), [("back", state, each) for each in (new, old, other)], [])
    assert found.of(FORTH) == ("back", new)
    assert backs((EU, US), [("back", state, other)], []).of(FORTH) == NOT_BACK


def test_records_of_a_third_cluster_on_either_side_are_reported() -> None:
    back = ("back", FlowState(source_cluster=US), lane(THERE, HERE))
    third = ("far", FlowState(source_cluster=ASIA), lane(FAR, HERE))
    assert "by the flow far" in str(backs((EU, US), [back, third], []).of(FORTH))
    third = ("far", FlowState(source_cluster=ASIA), lane(FAR, THERE))
    assert "by the flow far" in str(backs((EU, US), [back], [third]).of(FORTH))
    again = ("again", FlowState(source_cluster=EU), lane(FAR, THERE))
    assert backs((EU, US), [back], [again]).of(FORTH) == ("back", back[2])


def test_what_is_not_known_is_not_guessed() -> None:
    heartbeats = lane(FAR, FAR, name="eu.orders")
    marks = {each.key.id: mark(each, 5, source=5) for each in (FORTH, heartbeats)}
    other = ("heartbeats", 0)
    atlas = CrossedAtlas({PLACE: FORTH, other: heartbeats}, marks, {})
    assert atlas.mapped(PLACE, SourcePosition(3)).why == atlas.back(PLACE, 3).why == NOT_BACK
    assert atlas.mapped(other, SourcePosition(3)).offset == atlas.back(other, 3).offset == 3
    assert atlas.mapped(PLACE, SourcePosition(3, "another topic")).offset is None
    way = Way(FORTH, marks[FORTH.key.id])
    assert across(3, way, Way(lane(THERE, HERE), None)).offset is None


def test_how_far_a_side_is_read_on_which_nobody_writes() -> None:
    """Ten records were written only on the target, and are copied here; a reader has read them all here."""
    back = lane(THERE, HERE)
    idle = mark(FORTH, 0, source=10)
    ways = Way(FORTH, idle, [Sight(10, 10)]), Way(back, mark(back, 10, source=10))
    assert across(10, *ways)[:2] == (10, 0)
    assert across(4, *ways)[:2] == (4, 0)
    # Without an end that was seen before, or a later mark, what follows may still precede.
    busy = mark(FORTH, 0, source=10, settled=False)
    for sights, progress in (((), idle), ([Sight(10, 11)], idle), ([Sight(10, 10)], busy)):
        found = across(10, Way(FORTH, progress, sights), ways[1])
        assert (found.offset, found.missing > 0) == (0, True)


def test_ends_are_remembered_for_a_while_and_forgotten_when_a_log_goes_back() -> None:
    clock = FakeClock()
    ends, key = RecentLogEnds(clock), LaneId("a")
    ends.note(key, 5, 7, 6)
    ends.note(key, 6, 9, 6)
    assert ends.forth(key) == (Sight(5, 7), Sight(6, 9))
    assert ends.back(key) == (Sight(7, 6), Sight(9, 6))
    ends.note(key, 3, 9, 4)
    assert ends.forth(key) == (Sight(3, 9),)
    clock.now += 61
    assert ends.forth(key) == ends.back(key) == ends.forth(LaneId("b")) == ()
