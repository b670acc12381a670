"""The map against the truth: random histories are folded by the real fold, and every offset is looked up by content."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from mirrord.ledger.offset_map import Translation
from tests.fixtures.attic import scarce
from tests.fixtures.random_mirror import COMPACTED, WHOLE, WILD, RandomMirror

SEEDS = st.integers(0, 2**32)


HARDLY_ANY_ROOM = scarce(fewest=2, most=8, block=3)
"""With this little room all but the newest runs are outside memory, and come back at a restart."""


def mirror(seed: int, kinds: tuple[str, ...], most: int = 25) -> RandomMirror:
    chance = random.Random(seed)
    made = RandomMirror(chance)
    for _ in range(chance.randrange(most)):
        made.step(chance.choice(kinds))
    return made


def truth_to_target(made: RandomMirror, offset: int, end: int) -> int:
    """The first record of the target before the resume position that the source holds at this offset or after it."""
    wanted = {record for record in made.source[offset:] if record is not None}
    return next((at for at, record in enumerate(made.target[:end]) if record in wanted), end)


def truth_to_source(made: RandomMirror, offset: int) -> int:
    """The lowest source offset of what the target holds from here on, or else where the source continues."""
    wanted = {record for record in made.target[offset:] if record is not None}
    return next((at for at, record in enumerate(made.source) if record in wanted), len(made.source))


def is_readable(made: RandomMirror, source: int | None, target: int | None) -> bool:
    return (source is not None and source >= made.starts[0]) or (target is not None and target >= made.starts[1])


def assert_to_target(made: RandomMirror, translation: Translation, end: int) -> None:
    true = truth_to_target(made, translation.asked, end)
    record = made.source[translation.asked] if translation.asked < len(made.source) else None
    copies = [at for at, each in enumerate(made.target[:end]) if record is not None and each == record]
    if true < end and not is_readable(made, translation.asked, true):
        return  # forgotten, and no longer readable
    assert translation.offset == true, translation
    match translation.kind:
        case "exact":
            assert translation.record == true
            assert made.target[true] == record
        case "reordered":
            assert translation.record in copies
            assert true < copies[0]
        case "not_copied":
            assert not copies
            assert translation.reason == ("pending" if record is not None else made.reasons.get(translation.asked, ""))
        case "at_end":
            assert not copies
            assert true == end
        case "before_map":
            assert not copies or not is_readable(made, translation.asked, copies[0])
        case _:
            raise AssertionError(translation)


def assert_to_source(made: RandomMirror, translation: Translation) -> None:
    record = made.target[translation.asked] if translation.asked < len(made.target) else None
    here = made.source.index(record) if record is not None and record in made.source else None
    true = truth_to_source(made, translation.asked)
    if not is_readable(made, true, translation.asked):
        return
    assert translation.offset is not None
    # At the end the ledger may know that what follows is later than what was last seen, never earlier.
    assert made.source[translation.offset : true].count(None) == len(made.source[translation.offset : true]), (
        translation
    )
    assert translation.offset <= true
    match translation.kind:
        case "exact":
            assert here == translation.record == translation.offset
        case "reordered":
            assert here == translation.record
            assert translation.offset < (translation.record or 0)
        case "not_copied":
            assert here is None
            assert translation.reason == ("truncated" if record is not None else "foreign")
        case "at_end" | "before_map":
            assert record is None or not is_readable(made, here, translation.asked)
        case _:
            raise AssertionError(translation)


@HARDLY_ANY_ROOM
@given(SEEDS)
def test_every_offset_is_where_its_record_stands(seed: int) -> None:
    made = mirror(seed, COMPACTED)
    lane, end = made.map(), len(made.target)
    for offset in range(len(made.source) + 3):
        assert_to_target(made, lane.to_target(offset), end)
    for offset in range(len(made.target) + 3):
        assert_to_source(made, lane.to_source(offset))


@HARDLY_ANY_ROOM
@given(SEEDS)
def test_both_directions_are_monotone(seed: int) -> None:
    made = mirror(seed, COMPACTED)
    lane = made.map()
    there = [lane.to_target(offset).offset or 0 for offset in range(len(made.source) + 3)]
    back = [lane.to_source(offset).offset or 0 for offset in range(len(made.target) + 3)]
    assert there == sorted(there)
    assert back == sorted(back)


@HARDLY_ANY_ROOM
@given(SEEDS)
def test_a_copied_offset_comes_back(seed: int) -> None:
    made = mirror(seed, WHOLE)
    lane = made.map()
    for offset, record in enumerate(made.source):
        translation = lane.to_target(offset)
        if record is not None and translation.kind == "exact":
            assert lane.to_source(translation.offset or 0).offset == offset
    for offset, record in enumerate(made.target):
        if record is not None and is_readable(made, None, offset):
            translation = lane.to_source(offset)
            assert translation.kind == "exact"
            assert lane.to_target(translation.offset or 0).offset == offset


@HARDLY_ANY_ROOM
@given(SEEDS, st.integers(1, 4))
def test_an_older_resume_position_answers_nothing_after_it(seed: int, lag: int) -> None:
    made = mirror(seed, WILD)
    lane = made.map(lag)
    end = made.ends[max(-1 - lag, -len(made.ends))][1]
    for offset in range(len(made.source) + 3):
        translation = lane.to_target(offset)
        assert translation.offset is not None
        assert translation.offset <= end
        assert_to_target(made, translation, end)


@HARDLY_ANY_ROOM
@given(SEEDS)
@settings(max_examples=20)
def test_what_lies_below_both_log_starts_is_forgotten(seed: int) -> None:
    made = mirror(seed, WILD)
    for _ in range(30):
        made.step(made.chance.choice(("hole", "double", "truncate", "gap", "foreign")))
        made.step("copy")
        made.starts = (len(made.source) - 1, len(made.target) - 1)
        made.prune()
    held = (made.lane.source_runs, made.lane.target_runs, made.lane.holes, made.lane.truncations)
    # Pieces are moved as a whole; the newest two are not packed at all.
    assert max(map(len, held)) <= 8 + 2 * 2
