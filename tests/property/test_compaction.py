"""A map that is moved into a dataset remains the same map, whatever happens before, meanwhile and afterwards."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrord.ledger.codec import encode_state
from mirrord.ledger.fold import fold
from mirrord.ledger.offset_map import Translation
from mirrord.ledger.snapshot import snapshots
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import LedgerEnd
from mirrord.ledger.state_topic_rows import Kept
from mirrord.model.archived_runs import ArchiveLost
from mirrord.model.names import TopicId
from mirrord.model.run_memory import RunMemory
from mirrord.model.runs import Runs
from tests.fixtures.attic import scarce
from tests.fixtures.ledger import plain
from tests.fixtures.random_mirror import COMPACTED, LANE, WILD, RandomMirror

SEEDS = st.integers(0, 2**32)
HARDLY_ANY_ROOM = scarce(fewest=2, most=8, block=3)


class Unpruned(RandomMirror):
    """A mirror that writes no facts about pruning: pieces are pruned as a whole."""

    def prune(self) -> None:
        """Do nothing."""


def long_mirror(seed: int, kinds: tuple[str, ...] = WILD, kind: type[RandomMirror] = RandomMirror) -> RandomMirror:
    made = kind(random.Random(seed))
    for _ in range(made.chance.randrange(5, 40)):
        made.step(made.chance.choice((*kinds, "gap", "foreign")))
    return made


def answers(made: RandomMirror, source: int = 0, target: int = 0) -> tuple[list[Translation], list[Translation]]:
    """The translations of all offsets from these on."""
    lane = made.map()
    return (
        [lane.to_target(offset) for offset in range(source, len(made.source) + 3)],
        [lane.to_source(offset) for offset in range(target, len(made.target) + 3)],
    )


def archived(made: RandomMirror) -> int:
    return sum(piece.archived is not None for runs in sides(made) for piece in runs.pieces)


def sides(made: RandomMirror) -> tuple[Runs, Runs]:
    return made.lane.source_runs, made.lane.target_runs


def snapshot_bytes(made: RandomMirror) -> int:
    cut = snapshots(made.state, Kept(), LedgerEnd(TopicId("ledger"), 0, 0))
    return sum(len(encode_state(record)) for record in cut.records)


@HARDLY_ANY_ROOM
def test_snapshots_hold_the_newest_runs_alone() -> None:
    made = RandomMirror(random.Random(1))
    for _ in range(600):
        made.gap()
        made.foreign()
    made.step("copy")
    before, answered = snapshot_bytes(made), answers(made)
    made.compact(meanwhile=0)
    assert archived(made) > 1
    assert snapshot_bytes(made) < before / 5
    assert answers(made) == answered
    assert made.archive.reads > 0
    made.restart()
    made.archive.is_away = True
    with pytest.raises(ArchiveLost):
        answers(made)


@HARDLY_ANY_ROOM
@given(SEEDS)
def test_every_answer_is_the_same_before_and_after(seed: int) -> None:
    made = long_mirror(seed)
    before, runs = answers(made), plain(made.state)["lanes"]
    made.compact(meanwhile=0)
    assert answers(made) == before
    made.restart()
    assert answers(made) == before
    after = plain(made.state)["lanes"]
    for side in ("source_runs", "target_runs"):
        assert after[LANE][side] == runs[LANE][side]


@HARDLY_ANY_ROOM
@given(SEEDS)
def test_every_reader_folds_it_alike(seed: int) -> None:
    """However many of the runs it has packed."""
    made = long_mirror(seed, COMPACTED, Unpruned)
    reader = FlowState(memory=RunMemory(archive=made.archive))
    for offset, entry in enumerate(made.entries):
        fold(reader, entry, offset)
    reader.progress = made.state.progress
    assert plain(reader) == plain(made.state)


@HARDLY_ANY_ROOM
@given(SEEDS)
def test_what_is_new_is_answered_without_the_dataset(seed: int) -> None:
    made = RandomMirror(random.Random(seed))
    for _ in range(made.chance.randrange(40)):
        made.step(made.chance.choice(("copy", "gap", "foreign")))
    made.compact(meanwhile=0)
    made.archive.is_away = True
    source, target = len(made.source), len(made.target)
    for _ in range(3):
        made.step(made.chance.choice(("copy", "gap", "foreign")))
    made.restart()
    answered = answers(made, source, target)
    assert all(each.offset is not None for each in (*answered[0], *answered[1]))
