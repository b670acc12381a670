"""Stories that begin shortly before ordinal 2^31."""

from dataclasses import replace

import pytest

from mirrord.kafka.protocol.record_batch import HEADER
from tests.sim import toy
from tests.sim.past import acked_in_story
from tests.sim.scheduler import STEPS, Story
from tests.sim.stored import SEQUENCES, Stored
from tests.sim.target import FakeTarget
from tests.sim.themes import THEMES
from tests.sim.traps.setting import AT_WRAP, shape_with


def own(story: Story) -> list[Stored]:
    target = story.world.target
    return [stored for stored in target.brokers[target.leader].history if stored.producer >= 0]


def test_a_lane_passes_the_wrap_and_the_fake_knows_the_ordinals() -> None:
    story = Story(1, replace(THEMES["plain"], until_wrap=7))
    story.run(STEPS)
    batches = own(story)
    assert batches[0].ordinal == SEQUENCES - 7
    assert any(stored.sequence + stored.count > SEQUENCES for stored in batches), "a batch contains sequence number 0"
    assert batches[-1].sequence < batches[0].sequence
    assert batches[-1].ordinal == batches[-1].sequence + SEQUENCES
    assert acked_in_story(story.world.hosts[-1]) == sum(stored.count for stored in batches)


def test_a_story_without_the_wrap_begins_with_ordinal_0() -> None:
    story = Story(1, THEMES["plain"])
    story.run(STEPS)
    assert [own(story)[0].ordinal, story.world.target.brokers[0].start] == [0, 0]


@pytest.mark.parametrize(
    ("begin", "sequence", "ordinal"),
    [(0, 7, 7), (SEQUENCES - 3, SEQUENCES - 2, SEQUENCES - 2), (SEQUENCES - 3, 4, SEQUENCES + 4)],
)
def test_the_ordinal_of_a_batch(begin: int, sequence: int, ordinal: int) -> None:
    target = FakeTarget()
    target.first_ordinal = begin
    data = toy.encode(0, 0, [(0, 1001)], newest_ms=0, producer=(500, 0, sequence), leader_epoch=-1)
    assert HEADER.unpack_from(data)[11] == sequence
    assert target.produce(0, bytes(data), 0) == (0, 0)
    (stored,) = target.brokers[0].log
    assert (stored.sequence, stored.ordinal) == (sequence, ordinal)


@pytest.mark.parametrize("trap", AT_WRAP)
@pytest.mark.parametrize("theme", ["plain, old records", "unclean"])
def test_traps_at_the_wrap_strike(trap: str, theme: str) -> None:
    traps = (trap, "bytes_of_the_former_holder")
    story = Story(3, shape_with(replace(THEMES[theme], until_wrap=30), traps))
    story.run(300)
    assert any("at the wrap" in line or "after the wrap" in line for line in story.world.trail)
    assert own(story)[-1].ordinal > SEQUENCES
