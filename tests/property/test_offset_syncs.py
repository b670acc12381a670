"""Pairs of offsets against the truth, as MirrorMaker 2 uses them: no group skips a record that was copied."""

import random

from hypothesis import example, given
from hypothesis import strategies as st

from mirrord.ledger.mm2_offset_pairs import PublishedPairs, due_syncs
from tests.fixtures.random_mirror import WILD, RandomMirror


class Store:
    """What OffsetSyncStore makes of the pairs, except for its 64 slots, which only make it forget some."""

    def __init__(self) -> None:
        self.pairs: list[tuple[int, int]] = []

    def read(self, upstream: int, downstream: int) -> None:
        if self.pairs and upstream < self.pairs[-1][0]:
            self.pairs.clear()
        self.pairs.append((upstream, downstream))

    def translate(self, upstream: int) -> int | None:
        found = next((pair for pair in reversed(self.pairs) if pair[0] <= upstream), None)
        if found is None:
            return None
        return found[1] + (upstream > found[0])


def truth(made: RandomMirror, upstream: int, end: int) -> int:
    """The first record of the target that the source holds at this offset or after it."""
    wanted = {record for record in made.source[upstream:] if record is not None}
    return next((at for at, record in enumerate(made.target[:end]) if record in wanted), end)


@given(st.integers(0, 2**32), st.sampled_from((0, 2, 100)), st.booleans())
@example(0, 0, False)
def test_no_group_skips_a_record(seed: int, lag_max: int, forgets: bool) -> None:
    chance = random.Random(seed)
    made, store, published = RandomMirror(chance), Store(), None
    for _ in range(chance.randrange(25)):
        made.step(chance.choice(WILD))
        if chance.random() < 0.3:
            continue
        if forgets and chance.random() < 0.2:
            published = None  # another holder of the flow
        next_ordinal, _ = made.ends[max(-1 - chance.randrange(2), -len(made.ends))]
        pairs, published = due_syncs(made.lane, next_ordinal, published, lag_max)
        assert isinstance(published, PublishedPairs)
        for pair in pairs:
            assert made.source[pair.upstream] is not None
            assert made.source[pair.upstream] == made.target[pair.downstream]
            store.read(pair.upstream, pair.downstream)
        for upstream in range(len(made.source)):
            translated = store.translate(upstream)
            assert translated is None or translated <= truth(made, upstream, len(made.target))
