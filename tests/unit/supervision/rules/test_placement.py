from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from mirrord.config.schema import ReplicatorsConfig
from mirrord.model.names import LaneId
from mirrord.supervision.rules.placement import PlacementCandidate, Weights, moves, place, replicators_wanted

AUTO_OR_COUNT = st.just("auto") | st.integers(1, 50)


def config(count: int | str = "auto", per_replicator: int | str = "auto") -> ReplicatorsConfig:
    return ReplicatorsConfig(count=count, partitions_per_replicator=per_replicator)  # pyright: ignore[reportArgumentType]


def test_auto_is_one_replicator_per_core_but_never_more_than_lanes() -> None:
    assert replicators_wanted(config(), lanes=100, cores=4) == 4
    assert replicators_wanted(config(), lanes=3, cores=4) == 3
    assert replicators_wanted(config(), lanes=0, cores=4) == 0


def test_a_number_of_replicators() -> None:
    assert replicators_wanted(config(count=3), lanes=100, cores=64) == 3


def test_one_partition_per_replicator_gives_an_actor_per_partition() -> None:
    assert replicators_wanted(config(per_replicator=1), lanes=7, cores=2) == 7
    assert replicators_wanted(config(per_replicator=3), lanes=7, cores=2) == 3


def test_the_limit_of_partitions_outweighs_the_number_of_replicators() -> None:
    assert replicators_wanted(config(count=2, per_replicator=3), lanes=10, cores=2) == 4
    assert replicators_wanted(config(count=8, per_replicator=3), lanes=10, cores=2) == 8


@given(AUTO_OR_COUNT, AUTO_OR_COUNT, st.integers(0, 500), st.integers(1, 64))
def test_there_is_room_for_all_lanes(count: int | str, per_replicator: int | str, lanes: int, cores: int) -> None:
    wanted = replicators_wanted(config(count, per_replicator), lanes, cores)
    assert wanted <= lanes
    assert wanted > 0 or lanes == 0
    if isinstance(per_replicator, int):
        assert wanted * per_replicator >= lanes


def rooms(loads: Mapping[str, int]) -> list[PlacementCandidate]:
    return [PlacementCandidate(name, load, load) for name, load in loads.items()]


def test_a_new_lane_goes_to_the_least_loaded() -> None:
    assert place([LaneId("x")], rooms({"a": 2, "b": 1}), None) == {LaneId("x"): "b"}


def test_what_finds_no_room_waits() -> None:
    lanes = [LaneId(name) for name in "xyz"]
    assert place(lanes, rooms({"a": 1, "b": 2}), 2) == {lanes[0]: "a"}
    assert place(lanes, [], None) == {}


@given(st.integers(0, 60), st.dictionaries(st.text("abc", min_size=1), st.integers(0, 20), min_size=1))
def test_new_lanes_even_out_the_loads(lanes: int, loads: dict[str, int]) -> None:
    placed = place([LaneId(str(lane)) for lane in range(lanes)], rooms(loads), None)
    assert len(placed) == lanes
    after = dict(loads)
    for host in placed.values():
        after[host] += 1
    moved = {host for host in after if after[host] > loads[host]}
    assert all(after[host] <= min(after.values()) + 1 for host in moved)


def test_a_lane_goes_where_the_fewest_bytes_are() -> None:
    weights = Weights({LaneId("hot"): 90.0, LaneId("x"): 5.0}, unknown=1.0)
    found = place(
        [LaneId("x"), LaneId("y"), LaneId("z")],
        [PlacementCandidate("a", 90, 1), PlacementCandidate("b", 3, 3)],
        None,
        weights,
    )
    assert set(found.values()) == {"b"}


@given(st.lists(st.floats(0.1, 100), max_size=20), st.floats(0, 1000), st.integers(1, 5))
def test_what_moves_brings_loads_together(weights: list[float], gap: float, most: int) -> None:
    by_lane = {LaneId(str(number)): weight for number, weight in enumerate(weights)}
    leaving = moves(by_lane, gap, most, Weights(by_lane))
    assert len(leaving) <= most
    after = gap - 2 * sum(by_lane[lane] for lane in leaving)
    assert not leaving or abs(after) < gap
