"""Sets traps in a story. A trap is a script: a generator that is advanced before each step of the story. It watches the
world, waits for a moment at which a rule of the lane matters, and strikes.

All that a trap does can happen in reality, but chance alone would hardly ever do it at that moment. The world of a
story is made to fit its traps, whichever rule is examined.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from tests.sim.host import Shape
from tests.sim.themes import OLD_MS
from tests.sim.traps import (
    answers,
    compacted,
    daemons,
    decisions,
    elections,
    forgotten,
    handover,
    histories,
    holes,
    in_between,
    lookups,
    losses,
    positions,
    short,
    source,
    target,
    transactions,
    views,
    wraps,
)
from tests.sim.traps.moments import Script, Trap

if TYPE_CHECKING:
    from tests.sim.scheduler import Story


class Setting(NamedTuple):
    """A trap, and what must exist in its world."""

    trap: Trap
    needs: Mapping[str, Any]
    """Fields of a `Shape`, and their values."""


_UNCLEAN = {"unclean": True}
_YOUNG = {"record_age_ms": 0}
_FORGETS = {"forgetting": True, "record_age_ms": OLD_MS}
_LOOKED_UP = _FORGETS | {"cleans": True, "foreign": True}
_REMEMBERS = {"forgetting": False, "record_age_ms": 0}
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
    (daemons.lease_of_a_suspended_daemon, {"daemons": True}),
    (daemons.lease_before_a_fact_is_written, {"daemons": True}),
    (handover.earlier_handoff, {"handed": True}),
    (losses.lost_before_the_position_is_saved, _UNCLEAN),
    (losses.lost_twice, _UNCLEAN),
    (losses.foreign_where_copies_were, _UNCLEAN | {"foreign": True}),
    (compacted.cleaned_before_a_takeover, {"cleans": True}),
    (compacted.lost_and_cleaned, _UNCLEAN | {"cleans": True}),
    (lookups.last_records_cleaned, _LOOKED_UP | {"poison": True, "on_reject": "skip-unparked"}),
    (
        lookups.last_records_cleaned_behind_a_filter,
        _LOOKED_UP | {"policies": True, "steady": True},
    ),
    (lookups.lost_beside_others, _LOOKED_UP | _UNCLEAN),
    (lookups.removed_from_its_batch, _LOOKED_UP | _UNCLEAN),
    (lookups.newest_lost_on_both_sides, _UNCLEAN | {"cleans": True, "truncation": True}),
    (lookups.later_batches_follow_lost_ones, _LOOKED_UP | _UNCLEAN),
    (lookups.isolation_changed, _LOOKED_UP | _UNCLEAN | {"isolations": True}),
    (lookups.lost_and_expired, _LOOKED_UP | _UNCLEAN | {"retention": True}),
    (source.truncated_while_away, {"truncation": True}),
    (source.truncated_after_an_epoch, {"truncation": True}),
    (source.reused_offsets_under_way, {"truncation": True, "starts_late": True}),
    (source.removed_under_way, {"compaction": True}),
    (source.expired_while_away, {"retention": True}),
    (forgotten.bytes_after_the_next_holder, _FORGETS),
    (forgotten.bytes_after_a_reconnect, _FORGETS),
    (forgotten.bytes_after_a_drain, _FORGETS),
    (forgotten.position_behind_a_repeat, _FORGETS),
    (positions.position_of_a_slow_first_holder, {}),
    (positions.everything_lost_before_a_handoff, _UNCLEAN | {"foreign": True, "handed": True} | _YOUNG),
    (views.older_epoch_under_way, _YOUNG | {"truncation": True}),
    (views.newer_epoch_under_way, _YOUNG | {"truncation": True}),
    (views.removed_under_a_dead_holder, _YOUNG | {"compaction": True}),
    (views.removed_under_a_former_holder, _YOUNG | {"compaction": True}),
    (short.source_ends_below_the_copies, {"truncation": True}),
    (short.lost_after_a_leap, {"truncation": True, "seeks": True}),
    (short.expired_before_it_arrives, {"retention": True}),
    (short.expired_and_compared_again, {"retention": True}),
    (forgotten.handover_of_an_earlier_holder, _FORGETS | {"handed": True}),
    (histories.another_branch, {"truncation": True}),
    (holes.lost_beside_a_hole, _FORGETS | {"truncation": True}),
    (holes.deleted_under_late_bytes, _FORGETS | {"retention": True}),
    (holes.removed_beside_a_hole, _FORGETS | {"compaction": True, "starts_late": True}),
    (histories.lost_before_the_first_fetch, {"truncation": True}),
    (decisions.killed_with_decided_records, {"policies": True}),
    (decisions.disconnected_with_decided_records, {"policies": True}),
    (histories.lost_before_a_comparison, {"truncation": True}),
    (answers.answers_again, {"repeats": True}),
    (answers.a_gap_before_the_ledger_answers, {}),
    (decisions.sought_before_a_takeover, {"seeks": True}),
    (decisions.letters_in_doubt, {"poison": True, "on_reject": "skip"}),
    (in_between.foreign_between_two_batches, {"foreign": True, "together": True}),
    (in_between.unreplicated_at_the_start, {"foreign": True}),
    (in_between.late_before_the_confirmation, _FORGETS),
    (in_between.late_before_the_repeat, _FORGETS),
    (in_between.late_after_others, _FORGETS),
    (in_between.refused_and_forgotten, _FORGETS),
    (in_between.unreadable_gap, _FORGETS | {"foreign": True}),
    (in_between.two_takers_at_once, _FORGETS),
    (elections.leader_in_the_sandwich, _REMEMBERS | {"elections": True}),
    (elections.others_where_all_copies_were, _UNCLEAN | {"foreign": True}),
    (elections.batch_where_copies_were, _UNCLEAN | {"foreign": True}),
    (elections.foreign_tail_lost, _UNCLEAN | {"foreign": True}),
    (elections.lost_while_idle, _UNCLEAN),
    (elections.refused_batches_come_back, _UNCLEAN | {"truncation": True}),
)
ENDINGS: frozenset[Trap] = frozenset({in_between.late_before_the_repeat, in_between.late_after_others})
"""Traps that strike only at the end of a story, because the lane cannot repair what they cause."""
AT_WRAP = tuple(trap.__name__ for trap in wraps.TRAPS)
"""Traps that are drawn only for stories in which the sequence numbers start again at 0 (`Shape.until_wrap`)."""
_BESIDE: tuple[tuple[Trap, Mapping[str, Any]], ...] = (
    (transactions.killed_beside_an_open_transaction, {}),
    (transactions.marker_beside_a_resume, {}),
    (transactions.aborted_around_batches, {}),
    (transactions.marker_with_the_producer_id_of_the_lane, {}),
    (transactions.election_with_an_open_transaction, {"elections": True}),
    (transactions.difference_beside_an_open_transaction, _YOUNG | {"compaction": True}),
    (transactions.lost_beside_transactions, _LOOKED_UP | _UNCLEAN),
    (transactions.cleaned_beside_transactions, _LOOKED_UP),
)
TRAPS: dict[str, Setting] = {trap.__name__: Setting(trap, needs) for trap, needs in _SETTINGS}
_DRAWN = sorted(TRAPS)
_FIRST = sorted([*TRAPS, "leader_in_the_sandwich", "lost_after_a_leap", "newer_epoch_under_way"])
"""Traps of which the first one of a story is drawn. Hardly any other trap shows the rules that those show that are
listed twice, and two of these agree with few others."""
TRAPS |= {trap.__name__: Setting(trap, {}) for trap in wraps.TRAPS}
TRAPS |= {trap.__name__: Setting(trap, needs) for trap, needs in _BESIDE}


_COMPACTED_SHARE = 0.5
_BLINDING = frozenset({"cleans", "compaction", "late", "policies"})
"""Fields of a `Shape` in whose worlds less can be checked."""


def draw_traps(chance: random.Random, most: int) -> tuple[str, ...]:
    """Return the names of some traps. If the first one needs a world in which less can be checked, those with the same
    need come first among the others; all traps in a compacted target go together. The others need no world in which
    less can be checked than in that of the first one, and none needs another value of a field than those before it."""
    first = chance.choice(_FIRST)
    others = [each for each in chance.sample(_DRAWN, len(_DRAWN)) if each != first]
    needed, many = dict(TRAPS[first].needs), chance.randint(1, most)
    blinding, drawn = _BLINDING & needed.keys(), [first]
    others.sort(key=lambda each: not blinding & TRAPS[each].needs.keys())
    for each in others:
        needs = TRAPS[each].needs
        agrees = all(needed.get(name, value) == value for name, value in needs.items())
        is_fitting = "cleans" in needs if "cleans" in blinding else _BLINDING & needs.keys() <= blinding
        if len(drawn) < many and agrees and is_fitting:
            drawn.append(each)
            needed |= needs
    return tuple(drawn)


def draw_beside_transactions(chance: random.Random) -> tuple[str, ...]:
    """Return the names of one or two traps that need other clients' transactions on the target (`Shape.others`), in
    equal parts of compacted targets and of others."""
    compacted = chance.random() < _COMPACTED_SHARE
    fitting = [trap.__name__ for trap, needs in _BESIDE if ("cleans" in needs) == compacted]
    return tuple(chance.sample(fitting, chance.randint(1, 2)))


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
        self._scripts: dict[Trap, Script | None] = dict.fromkeys(TRAPS[each].trap for each in story.shape.traps)

    def step(self) -> None:
        """Advance each script. One that has ended begins again after a while. If no replicator is left, the supervisor
        soon starts one."""
        world, rng = self._story.world, self._story.rng
        if not world.hosts.living and rng.random() < 0.2:
            world.start_host(former_dead=False)
        for trap, script in self._scripts.items():
            if trap in ENDINGS:
                continue
            if script is None:
                if rng.random() < 0.2:
                    self._scripts[trap] = trap(self._story)
                continue
            try:
                next(script)
            except StopIteration:
                self._scripts[trap] = None

    def another(self, chance: random.Random) -> Trap | None:
        """Return one of the traps that also strike at other moments than the wrap, or None if there is none."""
        others = [each for each in self._scripts if each not in ENDINGS and each not in wraps.TRAPS]
        return chance.choice(others) if others else None

    def end(self) -> None:
        """Set no more traps for now. What they kept on the wire may arrive."""
        for script in self._scripts.values():
            if script is not None:
                script.close()
        for each in self._story.world.wire:
            each.kept = False

    def once_more(self) -> Iterator[Script]:
        """Yield a script of each trap, those that end a story last."""
        for trap in sorted(self._scripts, key=lambda each: each in ENDINGS):
            yield trap(self._story)
