"""How the simulation compares what a lane did not write itself with the source."""

from typing import TYPE_CHECKING

from mirrord.flow.lineage import epoch_at, is_cut
from mirrord.flow.signals import AskCheck, Checked
from tests.sim.host import Host

if TYPE_CHECKING:
    from tests.sim.world import World


def compared(world: "World", host: Host, question: AskCheck) -> Checked:
    """What a comparison of both logs finds."""
    error = 0 if world.target.high_watermark >= question.end else 7
    runs = host.record().source_runs
    outcome, note = "equal", ""
    for stored in world.target.read(question.start, question.end):
        if stored.producer != question.producer_id:
            continue
        for at, number in enumerate(stored.numbers):
            ordinal = stored.sequence + at
            if not question.first <= ordinal <= question.last:
                continue
            offset = runs.offset_of(ordinal) or 0
            there, epoch = world.source.at(offset), epoch_at(question.epochs, ordinal)
            if is_cut(host.record(), ordinal, offset) or (epoch >= 0 and world.source.epoch_of(offset) != epoch):
                there = None
            if there is None and outcome == "equal":
                outcome = "unverifiable"
            elif there is not None and there != number:
                outcome, note = "different", f"ordinal {ordinal}"
    behind = next((each for each in world.source.log if each.base < question.position <= each.last + 1), None)
    epoch = -1 if behind is None else behind.epoch
    end = world.source.end if world.source.end < question.position else -1
    told = (question.question, error, question.first, question.last, outcome, note, epoch, end)
    return Checked(*told)  # type: ignore[arg-type]
