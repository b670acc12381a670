"""How the simulation compares what a lane did not write itself with the source, and finds it there again."""

from functools import partial
from typing import TYPE_CHECKING, Any

from mirrord.flow.lineage import epoch_at, is_cut
from mirrord.flow.ranges import ranges
from mirrord.flow.reading import but_not_void
from mirrord.flow.relocate import (
    Original,
    Range,
    Standing,
    Unplaced,
    covered_below,
    is_open,
    last_below,
    locate,
    search_range,
)
from mirrord.flow.signals import AskCheck, AskRebuild, Checked, OwnBatch, Relocated
from mirrord.wire.batch import CONTROL

if TYPE_CHECKING:
    from tests.sim.world import World


def compared(world: "World", record: Any, question: AskCheck) -> Checked:
    """Compare what stands in the target with the source (`mirrord.shell.compare`)."""
    error = 0 if world.target.high_watermark >= question.end else 7
    runs = record.source_runs
    outcome, note, gone = "equal", "", list[int]()
    for stored in world.target.read(question.start, question.end):
        if stored.producer != question.producer_id:
            continue
        for at, number in enumerate(stored.numbers):
            ordinal = stored.sequence + at
            if not but_not_void(record.holes, ordinal, ordinal) or not question.first <= ordinal <= question.last:
                continue
            offset = runs.offset_of(ordinal) or 0
            gone += [ordinal] if world.source.at(offset) is None and offset < world.source.end else []
            there, epoch = world.source.at(offset), epoch_at(question.epochs, ordinal)
            is_another = epoch >= 0 and world.source.epoch_of(offset) != epoch
            if is_cut(record, ordinal, offset) or (is_another and there != number):
                there = None
            if there is None and outcome == "equal":
                outcome = "unverifiable"
            elif there is not None and there != number:
                outcome, note = "different", f"ordinal {ordinal}"
    behind = next((each for each in world.source.log if each.base < question.position <= each.last + 1), None)
    epoch = -1 if behind is None else behind.epoch
    end = world.source.end if world.source.end < question.position else -1
    told = (question.question, error, question.first, question.last, outcome, note, epoch, end, ranges(gone))
    return Checked(*told)  # type: ignore[arg-type]


def relocated(world: "World", record: Any, question: AskRebuild) -> Relocated:
    """Find in the source what stands in the target (`mirrord.shell.relocation`)."""
    read = world.target.read(question.start, question.end)
    stored = [each for each in read if each.producer == question.producer_id]
    own = tuple(OwnBatch(each.base, each.count, each.sequence, 0) for each in stored)
    if world.target.high_watermark < question.end:
        return Relocated(question.question, 7, (), None)
    if world.shape.policies:
        # As the host of a lane answers (`mirrord.shell.host`): such a lane is to wait, so that nothing has to be found.
        return Relocated(question.question, 0, own, None, "its records go through a policy")
    first = question.first
    standing = [
        Standing(max(each.sequence, first), each.numbers[max(first - each.sequence, 0) :])
        for each in stored
        if each.sequence + each.count > first
    ]
    last = max((each.first + len(each.contents) for each in standing), default=first) - 1
    searched = search_range(record, first, last)
    searched = Range(searched.start, max(min(searched.end, world.source.last_stable), searched.start))
    lost = world.source.aborted_offsets()
    originals = [
        Original(each.base, each.last + 1, {} if uncopied else dict(each.records), not uncopied, each.epoch)
        for each in world.source.log
        for uncopied in (bool(each.attributes & CONTROL) or each.base in lost,)
        if each.last >= searched.start and each.base < searched.end
    ]
    try:
        below = covered_below(record, first), last_below(record, first)
        located = locate(standing, originals, *below, searched, partial(is_open, record), record.source_runs.offset_of)
    except Unplaced as why:
        return Relocated(question.question, 0, own, None, str(why))
    return Relocated(question.question, 0, own, located)
