"""Sets traps in a story. A trap is a script: a generator that is advanced before each step of the story. It watches the
world, waits for a moment at which a rule of the lane matters, and strikes.

All that a trap does can happen in reality, but chance alone would hardly ever do it at that moment. The world of a
story is made to fit its traps, whichever rule is examined.
"""

import random
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.sim.host import Shape
from tests.sim.traps import answers, compacted, decisions, handover, histories, holes, losses, source, target
from tests.sim.traps.moments import Script, Trap

if TYPE_CHECKING:
    from tests.sim.scheduler import Story


class Setting(NamedTuple):
    """A trap, and what must exist in its world."""

    trap: Trap
    needs: Mapping[str, Any]
    """Fields of a `Shape`, and their values."""


_UNCLEAN = {"unclean": True}
_FORGETFUL = {"forgetting": True, "record_age_ms": 10 * 86_400_000}
_SETTINGS: tuple[tuple[Trap, Mapping[str, Any]], ...] = (
    (target.own_bytes_of_a_dead_connection, {}),
    (target.election_in_the_sandwich, {"elections": True}),
    (target.election_while_idle, _UNCLEAN),
    (target.foreign_in_between, {"foreign": True}),
    (target.bytes_that_everyone_gave_up, {"late": True}),
    (handover.bytes_of_the_former_holder, {}),
    (handover.two_takers, {}),
    (handover.drain_in_doubt, {}),
    (handover.stale_position, {}),
    (handover.loss_before_a_handoff, {}),
    (handover.earlier_handoff, {"handed": True}),
    (losses.lost_before_the_position_is_saved, _UNCLEAN),
    (losses.lost_twice, _UNCLEAN),
    (losses.foreign_where_copies_were, _UNCLEAN | {"foreign": True}),
    (compacted.cleaned_before_a_takeover, {"cleans": True}),
    (compacted.lost_and_cleaned, _UNCLEAN | {"cleans": True}),
    (source.truncated_while_away, {"truncation": True}),
    (source.truncated_after_an_epoch, {"truncation": True}),
    (source.reused_offsets_under_way, {"truncation": True}),
    (source.removed_under_way, {"compaction": True}),
    (source.expired_while_away, {"retention": True}),
    (histories.another_branch, {"truncation": True}),
    (holes.lost_beside_a_hole, _FORGETFUL | {"truncation": True}),
    (holes.deleted_under_late_bytes, _FORGETFUL | {"retention": True}),
    (holes.removed_beside_a_hole, _FORGETFUL | {"compaction": True, "starts_late": True}),
    (histories.lost_before_the_first_fetch, {"truncation": True}),
    (decisions.killed_with_decided_records, {"policies": True}),
    (decisions.disconnected_with_decided_records, {"policies": True}),
    (histories.lost_before_a_comparison, {"truncation": True}),
    (answers.answers_again, {"repeats": True}),
    (answers.a_gap_before_the_ledger_answers, {}),
    (decisions.sought_before_a_takeover, {"seeks": True}),
    (decisions.letters_in_doubt, {"poison": True, "on_reject": "skip"}),
)
TRAPS: dict[str, Setting] = {trap.__name__: Setting(trap, needs) for trap, needs in _SETTINGS}


_BLINDING = frozenset({"cleans", "compaction", "late", "policies"})
"""Fields of a `Shape` in whose worlds less can be checked."""
_APART = frozenset({"retention", "truncation"})
"""Fields of a `Shape` that no world has at the same time. Retention also deletes the evidence that the source lost
records."""


def draw_traps(chance: random.Random, most: int) -> tuple[str, ...]:
    """Return the names of some traps. All but the first one need no world in which less can be checked than in the
    world of the first one. Those that need such a world as well come first, because they fit few others."""
    first, *others = chance.sample(sorted(TRAPS), len(TRAPS))
    blinding, apart = _BLINDING & TRAPS[first].needs.keys(), _APART & TRAPS[first].needs.keys()
    fitting = [each for each in others if _BLINDING & TRAPS[each].needs.keys() <= blinding]
    fitting = [each for each in fitting if not apart or _APART & TRAPS[each].needs.keys() <= apart]
    fitting.sort(key=lambda each: not blinding & TRAPS[each].needs.keys())
    return (first, *fitting[: chance.randint(0, most - 1)])


def shape_with(shape: Shape, traps: tuple[str, ...]) -> Shape:
    """Return this kind of world with these traps, and with what they need."""
    for each in traps:
        shape = replace(shape, **TRAPS[each].needs)
    return replace(shape, traps=traps)


TURN = 150
"""Steps of a turn. In each turn, only one trap of a story is set, again and again: most of them wait until a lane has
copied something, and others would keep it from that."""


class Traps:
    """The traps of a story, which take turns."""

    def __init__(self, story: "Story") -> None:
        self._story = story
        self._script: Script | None = None
        self._steps = 0

    def step(self) -> None:
        """Advance the script of the trap whose turn it is. One that has ended begins again after a while. If no
        replicator is left, the supervisor soon starts one."""
        world, rng, names = self._story.world, self._story.rng, self._story.shape.traps
        if not any(host.alive for host in world.hosts) and rng.random() < 0.2:
            world.start_host(former_dead=False)
        turn, at = divmod(self._steps, TURN)
        self._steps += 1
        if at == 0 and len(names) > 1:
            self.end()
        if self._script is None:
            if rng.random() < 0.2:
                self._script = TRAPS[names[turn % len(names)]].trap(self._story)
            return
        try:
            next(self._script)
        except StopIteration:
            self._script = None

    def end(self) -> None:
        """Set no more traps for now. What they kept on the wire may arrive."""
        if self._script is not None:
            self._script.close()
            self._script = None
        for each in self._story.world.wire:
            each.kept = False
