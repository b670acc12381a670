"""Sets traps in a story. A trap is a script: a generator that is advanced before each step of the story. It watches the
world, waits for a moment at which a rule of the lane matters, and strikes.

All that a trap does can happen in reality, but chance alone would hardly ever do it at that moment. Which traps a story
has is drawn from its seed.
"""

from typing import TYPE_CHECKING

from tests.sim.host import Shape
from tests.sim.traps import compacted, handover, losses, source, target
from tests.sim.traps.moments import Script, Trap

if TYPE_CHECKING:
    from tests.sim.scheduler import Story

_MOST = 3
"""Most traps of a story."""


def fitting(shape: Shape) -> list[Trap]:
    """Return the traps that can be set in a kind of world."""
    traps: list[Trap] = [
        target.own_bytes_of_a_dead_connection,
        handover.bytes_of_the_former_holder,
        handover.two_takers,
        handover.drain_in_doubt,
        handover.stale_position,
        handover.loss_before_a_handoff,
    ]
    traps += [target.election_in_the_sandwich] if shape.elections or shape.unclean else []
    if shape.unclean:
        traps += [target.election_while_idle, losses.lost_before_the_position_is_saved, losses.lost_twice]
    traps += [losses.foreign_where_copies_were] if shape.unclean and shape.foreign else []
    traps += [compacted.cleaned_before_a_takeover] * 2 if shape.cleans else []
    traps += [compacted.lost_and_cleaned] * 2 if shape.cleans and shape.unclean else []
    traps += [target.foreign_in_between] if shape.foreign else []
    traps += [target.bytes_that_everyone_gave_up] if shape.late else []
    traps += [handover.earlier_handoff] if shape.handed else []
    if shape.truncation:
        traps += [source.truncated_while_away, source.truncated_after_an_epoch, source.reused_offsets_under_way]
    traps += [source.removed_under_way] if shape.compaction else []
    traps += [source.expired_while_away] if shape.retention else []
    return traps


class Traps:
    """The traps of a story."""

    def __init__(self, story: "Story") -> None:
        self._story = story
        traps = fitting(story.shape)
        chosen = story.rng.sample(traps, min(story.rng.randint(1, _MOST), len(traps)))
        self._scripts: dict[Trap, Script | None] = dict.fromkeys(chosen)

    def step(self) -> None:
        """Advance each script. One that has ended begins again after a while."""
        for trap, script in self._scripts.items():
            if script is None:
                if self._story.rng.random() < 0.2:
                    self._scripts[trap] = trap(self._story)
                continue
            try:
                next(script)
            except StopIteration:
                self._scripts[trap] = None

    def end(self) -> None:
        """Set no more traps."""
        for script in self._scripts.values():
            if script is not None:
                script.close()
        for each in self._story.world.wire:
            each.kept = False
