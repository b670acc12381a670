"""At most one batch of a lane per request, a lane's batches in order, no request larger than the limit."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from mirrord.replication.lane.flow_control.request_packing import SMALL_SHARE, Packer

Batch = tuple[str, int, int]


def pack(batches: Sequence[tuple[str, int]], limit: int) -> list[list[Batch]]:
    packer: Packer[Batch] = Packer(limit)
    counts: dict[str, int] = {}
    for lane, size in batches:
        counts[lane] = counts.get(lane, 0) + 1
        packer.add(lane, size, (lane, counts[lane], size))
    return [packer.take() for _ in range(len(packer))]


def test_lanes_share_a_request() -> None:
    assert pack([("a", 10), ("b", 10), ("c", 10)], 100) == [[("a", 1, 10), ("b", 1, 10), ("c", 1, 10)]]


def test_a_second_batch_of_a_lane_goes_into_the_next_request() -> None:
    assert pack([("a", 10), ("a", 10), ("b", 10)], 100) == [[("a", 1, 10), ("b", 1, 10)], [("a", 2, 10)]]


def test_a_batch_larger_than_a_request_goes_alone() -> None:
    assert pack([("a", 10), ("b", 500), ("c", 10)], 100) == [[("a", 1, 10)], [("b", 1, 500)], [("c", 1, 10)]]


def test_a_request_that_was_taken_is_closed() -> None:
    packer: Packer[int] = Packer(100)
    packer.add("a", 10, 1)
    assert packer.take() == [1]
    packer.add("a", 10, 2)
    packer.add("b", 10, 3)
    packer.add("a", 10, 4)
    assert packer.take() == [2, 3]
    assert packer.take() == [4]
    assert len(packer) == 0


def test_a_small_batch_of_a_live_lane_does_not_wait_behind_those_that_catch_up() -> None:
    catching_up = [("a", 90), ("b", 90), ("a", 90), ("b", 90)]
    packed = pack([*catching_up, ("live", 5), ("live", 5), ("other", 5)], 100)
    assert packed[0] == [("a", 1, 90), ("live", 1, 5), ("other", 1, 5)]
    assert ("live", 2, 5) in [batch for request in packed[1:] for batch in request]
    assert pack([("a", 100), ("a", 100), ("live", 5)], 100)[0] == [("a", 1, 100), ("live", 1, 5)]
    many = pack([*catching_up, *((f"live-{number}", 5) for number in range(50))], 100)
    assert sum(size for _, _, size in many[0]) == 200, "not without bound"


lanes = st.sampled_from("abcdef")
sizes = st.integers(1, 150)
steps = st.lists(st.one_of(st.tuples(lanes, sizes), st.none()), max_size=200)


@given(steps)
def test_packing_keeps_its_promises(steps: list[tuple[str, int] | None]) -> None:
    packer: Packer[Batch] = Packer(100)
    counts: dict[str, int] = {}
    taken: list[list[Batch]] = []
    for step in steps:
        if step is not None:
            lane, size = step
            counts[lane] = counts.get(lane, 0) + 1
            packer.add(lane, size, (lane, counts[lane], size))
        elif len(packer):
            taken.append(packer.take())
    taken += [packer.take() for _ in range(len(packer))]
    for request in taken:
        assert len({lane for lane, _, _ in request}) == len(request) > 0
        large = [size for _, _, size in request if size > 100 // SMALL_SHARE]
        assert len(large) <= 1 or sum(large) <= 100
        assert len(request) == 1 or sum(size for _, _, size in request) <= 200
    for lane, count in counts.items():
        numbers = [number for request in taken for name, number, _ in request if name == lane]
        assert numbers == list(range(1, count + 1))
