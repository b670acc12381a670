"""The comparison of an audit against the truth: random histories in the real fold, and known damage."""

import random
from collections.abc import Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from mirrord.audit.rules.audit_range import AuditRange
from mirrord.audit.rules.ledger_audit import compare_ledger
from mirrord.audit.rules.range_division import ranges
from mirrord.audit.rules.record_compare import compare_records, together
from mirrord.audit.rules.results import Compared, Seen, Surroundings
from mirrord.ledger.prune import floor
from tests.fixtures.naive_audit import Log, expected, naive
from tests.fixtures.random_mirror import WHOLE, WILD, RandomMirror

SEEDS = st.integers(0, 2**32)


def mirror(seed: int, kinds: tuple[str, ...] = WILD) -> RandomMirror:
    chance = random.Random(seed)
    made = RandomMirror(chance)
    for _ in range(chance.randrange(1, 20)):
        made.step(chance.choice(kinds))
    made.step("copy")
    return made


def log(contents: Sequence[int | None], start: int, variety: int = 1 << 40) -> dict[int, int]:
    """The content of a log from its start on; with little variety many records are equal."""
    return {at: content % variety for at, content in enumerate(contents) if content is not None and at >= start}


def seen(contents: Log, *, own: bool = False) -> list[Seen]:
    return [Seen(at, b"%d" % content, 0, is_own=own) for at, content in sorted(contents.items())]


def whole(made: RandomMirror, most: int = 1 << 40) -> list[AuditRange]:
    verdicts = made.lane.verdicts.recent
    return list(ranges(made.lane, floor(made.lane), made.ordinal, most, verdicts))


def audit(made: RandomMirror, source: Log, target: Log, wanted: AuditRange) -> Compared:
    around = Surroundings(source_log_start=made.starts[0], target_log_start=made.starts[1])
    return compare_records(wanted, seen(source), seen(target, own=True), around)


@given(SEEDS, st.integers(1, 12))
def test_a_true_map_has_no_differences_however_it_is_cut(seed: int, most: int) -> None:
    made = mirror(seed)
    source, target = log(made.source, made.starts[0]), log(made.target, made.starts[1])
    found = whole(made, most)
    compared = [audit(made, source, target, each) for each in found]
    assert [each for one in compared for each in one.differences] == []
    readable = [
        at for at, (here, cut) in expected(made).items() if not cut and here >= made.starts[0] and at >= made.starts[1]
    ]
    assert sum(one.equal for one in compared) == len(readable)


@given(SEEDS, st.integers(1, 12))
def test_ranges_are_the_map_once_and_do_not_overlap(seed: int, most: int) -> None:
    made = mirror(seed)
    found = whole(made, most)
    mapped = [
        (piece.target + at, (piece.source + at, piece.truncated))
        for each in found
        for piece in each.pieces
        for at in range(piece.length)
    ]
    assert dict(mapped) == expected(made)
    assert len(mapped) == len(expected(made))
    for before, after in pairwise(found):
        assert before.source_end == after.source_start
        assert before.target_end == after.target_start
    for each in found:
        for piece in each.pieces:
            if not piece.truncated:
                assert each.source_start <= piece.source <= piece.source + piece.length <= each.source_end
            assert each.target_start <= piece.target <= piece.target + piece.length <= each.target_end


@given(SEEDS, st.integers(1, 6))
def test_whole_histories_are_cut_where_they_are_full(seed: int, most: int) -> None:
    made = mirror(seed, WHOLE)
    assert all(sum(piece.length for piece in each.pieces) <= most for each in whole(made, most))


@given(SEEDS, st.integers(1, 12))
def test_what_is_silently_left_out_is_missing_whatever_was_recorded_of_its_offsets_before(seed: int, most: int) -> None:
    made = mirror(seed, tuple(kind for kind in WILD if kind != "prune"))
    first = made.lane.source_runs.first
    assert first is not None
    made.lose_end(max(first.offset, len(made.source) - made.chance.randrange(12)))
    left_out = made.leave_out()
    made.copy()
    logs = log(made.source, made.starts[0]), log(made.target, made.starts[1])
    for compared in (
        [audit(made, *logs, each) for each in whole(made, most)],
        [compare_ledger(each, 0, len(made.target), verdicts_are_known=True) for each in whole(made, most)],
    ):
        found = [each for one in compared for each in one.differences if each.kind == "missing"]
        assert [(each.source, each.length) for each in together(found)] == [(left_out[0], len(left_out))]


@given(SEEDS, st.sampled_from([1 << 40, 3]))
@settings(max_examples=300)
def test_damage_is_found_as_by_the_naive_comparison(seed: int, variety: int) -> None:
    made = mirror(seed)
    source, target = log(made.source, made.starts[0], variety), log(made.target, made.starts[1], variety)
    (wanted,) = whole(made)
    chance = random.Random(seed)
    for _ in range(chance.randrange(1, 5)):
        damage(chance, target, wanted)
    found = audit(made, source, target, wanted)
    equal, differences = naive(made, source, target, wanted)
    assert (found.equal, found.differences) == (equal, together(differences))


def damage(chance: random.Random, target: dict[int, int], wanted: AuditRange) -> None:
    there = [at for at in target if wanted.target_start <= at < wanted.target_end]
    if len(there) < 2:
        return
    one, other = chance.sample(there, 2)
    match chance.randrange(6):
        case 0:
            target[one] = -chance.randrange(1, 4)
        case 1:
            del target[one]
        case 2:
            target[one], target[other] = target[other], target[one]
        case 3:
            target[one] = target[other]
        case 4:
            # One record is there twice, and all later ones are one offset further.
            shifted = {at + (at >= one): content for at, content in target.items() if at < wanted.target_end - 1}
            shifted[one] = target[other]
            target.clear()
            target.update(shifted)
        case _:
            free = set(range(wanted.target_start, wanted.target_end)) - set(target)
            if free:
                target[chance.choice(sorted(free))] = chance.choice([-1, target[one]])
