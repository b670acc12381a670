"""The comparison of an audit against the truth: random histories, told to the real fold, and damage that is known."""

import random
from collections.abc import Mapping, Sequence
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from mirrord.audit.by_ledger import compare_ledger
from mirrord.audit.model import AuditRange, Compared, Difference, Seen, Surroundings
from mirrord.audit.ranges import ranges
from mirrord.audit.records import compare_records, together
from mirrord.ledger.prune import floor
from mirrord.ledger.translation import voids
from tests.fixtures.told_mirror import WHOLE, WILD, ToldMirror

SEEDS = st.integers(0, 2**32)
Log = Mapping[int, int]
"""Offset to content."""


def mirror(seed: int, kinds: tuple[str, ...] = WILD) -> ToldMirror:
    chance = random.Random(seed)
    made = ToldMirror(chance)
    for _ in range(chance.randrange(1, 20)):
        made.step(chance.choice(kinds))
    made.step("copy")
    return made


def log(contents: Sequence[int | None], start: int, variety: int = 1 << 40) -> dict[int, int]:
    """What a log holds from its start on; with little variety many records hold the same."""
    return {at: content % variety for at, content in enumerate(contents) if content is not None and at >= start}


def seen(contents: Log, *, own: bool = False) -> list[Seen]:
    return [Seen(at, b"%d" % content, 0, is_own=own) for at, content in sorted(contents.items())]


def whole(made: ToldMirror, most: int = 1 << 40) -> list[AuditRange]:
    told = made.lane.verdicts.recent
    return list(ranges(made.lane, floor(made.lane), made.ordinal, most, told))


def audit(made: ToldMirror, source: Log, target: Log, wanted: AuditRange) -> Compared:
    around = Surroundings(source_log_start=made.starts[0], target_log_start=made.starts[1])
    return compare_records(wanted, seen(source), seen(target, own=True), around, {})


def expected(made: ToldMirror) -> dict[int, tuple[int, bool]]:
    """Ordinal by ordinal what the ledger says: target offset to source offset, and whether that one was truncated."""
    lane = made.lane
    places: dict[int, tuple[int, bool]] = {}
    for ordinal in range(floor(lane), made.ordinal):
        source, target = lane.source_runs.offset_of(ordinal), lane.target_runs.offset_of(ordinal)
        assert source is not None
        assert target is not None
        if any(first <= ordinal <= last for first, last in voids(lane.holes)):
            continue
        places[target] = (source, any(source >= offset and ordinal < first for first, offset in lane.cuts))
    return places


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
def test_what_is_left_out_in_silence_is_missing_whatever_was_told_of_its_offsets_before(seed: int, most: int) -> None:
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


def naive(made: ToldMirror, source: Log, target: Log, wanted: AuditRange) -> list[Difference]:
    """The definitions, record by record and without any index."""
    places = expected(made)
    sources = [at for at in sorted(source) if wanted.source_start <= at < wanted.source_end]
    targets = [at for at in sorted(target) if wanted.target_start <= at < wanted.target_end]
    mapped = {here for here, cut in places.values() if not cut}
    equal = [
        (there, here)
        for there, (here, cut) in sorted(places.items())
        if not cut and here in source and there in target and source[here] == target[there]
    ]
    done = {there for there, _ in equal}
    # A record that was copied twice is without a partner as soon as one of its copies is.
    alone = {
        here: there
        for there, (here, cut) in sorted(places.items(), key=lambda item: ordinal_at(made, item[0]))
        if not cut and here in source and there not in done
    }
    alone |= {here: -1 for here in sources if here not in mapped}
    strange = [there for there in targets if there not in done]
    moved = elsewhere(source, target, sorted(alone), strange)
    held = {source[here] for _, here in equal + moved}
    twin = {content: min_first(content, equal, moved, source) for content in held}
    for _, here in moved:
        del alone[here]
    strange = [there for there in strange if there not in dict(moved)]
    out_of_order = turned(made, equal, moved)
    found = [Difference("reordered" if there in out_of_order else "displaced", here, there) for there, here in moved]
    for there in strange:
        here, cut = places.get(there, (-1, False))
        if here in alone and not cut:
            del alone[here]
            found.append(Difference("altered", here, there))
        elif there in places and (cut or (here not in source and here < made.starts[0])):
            continue
        elif target[there] in held:
            found.append(Difference("duplicated", twin[target[there]], there))
        else:
            found.append(Difference("extra", None, there))
    for here, there in alone.items():
        if there < 0 or there >= made.starts[1]:
            found.append(Difference("missing", here, there if there >= 0 else None))
    gone = {at: each for at, each in places.items() if at not in target and at >= made.starts[1]}
    found += [
        Difference("missing", None if cut else at, there)
        for there, (at, cut) in gone.items()
        if cut or at not in source
    ]
    return found


def elsewhere(source: Log, target: Log, alone: Sequence[int], strange: Sequence[int]) -> list[tuple[int, int]]:
    """Target records that hold what a source record holds, each with the first that is still free."""
    left = list(alone)
    moved: list[tuple[int, int]] = []
    for there in strange:
        fits = [here for here in left if source[here] == target[there]]
        if fits:
            left.remove(fits[0])
            moved.append((there, fits[0]))
    return moved


def ordinal_at(made: ToldMirror, there: int) -> int:
    return next(
        ordinal
        for ordinal in range(floor(made.lane), made.ordinal)
        if made.lane.target_runs.offset_of(ordinal) == there
        and not any(first <= ordinal <= last for first, last in voids(made.lane.holes))
    )


def min_first(content: int, equal: Sequence[tuple[int, int]], moved: Sequence[tuple[int, int]], source: Log) -> int:
    """The first that was placed: what is equal comes before what was found elsewhere."""
    return next(here for _, here in [*equal, *moved] if source[here] == content)


def rank(made: ToldMirror, here: int) -> int:
    """The last ordinal under which the source offset was copied, or the next lower one that was."""
    lane = made.lane
    places = [(at, cut) for at, cut in expected(made).values()]
    known = {at for at, cut in places if not cut}
    lower = max((at for at in known if at <= here), default=None)
    if lower is None:
        return floor(lane)
    void = voids(lane.holes)
    cuts = lane.cuts
    return max(
        ordinal
        for ordinal in range(floor(lane), made.ordinal)
        if lane.source_runs.offset_of(ordinal) == lower
        and not any(first <= ordinal <= last for first, last in void)
        and not any(lower >= offset and ordinal < first for first, offset in cuts)
    )


def turned(made: ToldMirror, equal: Sequence[tuple[int, int]], moved: Sequence[tuple[int, int]]) -> set[int]:
    """What stands behind something that was copied later, or in front of something that was copied earlier."""
    placed = [(there, ordinal_at(made, there)) for there, _ in equal] + [(at, rank(made, here)) for at, here in moved]
    return {
        there
        for there, mine in placed
        if any((at < there and other > mine) or (at > there and other < mine) for at, other in placed)
    }


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
    assert found.differences == together(naive(made, source, target, wanted))


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
            # Something stands once more, and all behind it one further.
            shifted = {at + (at >= one): content for at, content in target.items() if at < wanted.target_end - 1}
            shifted[one] = target[other]
            target.clear()
            target.update(shifted)
        case _:
            free = set(range(wanted.target_start, wanted.target_end)) - set(target)
            if free:
                target[chance.choice(sorted(free))] = chance.choice([-1, target[one]])
