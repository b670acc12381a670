"""How the simulation answers what a lane asks, apart from produce requests."""

from typing import TYPE_CHECKING, Any

from mirrord.replication.lane.signals import (
    AskCheck,
    AskConfigs,
    AskDivergence,
    AskEnd,
    AskOrigins,
    AskProducerId,
    AskProducers,
    AskRebuild,
    AskScan,
    AskShared,
    AskStart,
    AskSuperseded,
    AskVisible,
    Chunk,
    ConfigsAnswer,
    DivergenceAnswer,
    EndAnswer,
    FetchFrom,
    Input,
    OriginsAnswer,
    Park,
    ProducerEntry,
    ProducerIdAnswer,
    ProducersAnswer,
    SharedAnswer,
    StartAnswer,
    VisibleAnswer,
)
from tests.sim import slow_brokers
from tests.sim.comparing import compared, looked_up, relocated, scanned
from tests.sim.source import OUT_OF_RANGE

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.world import World


def fetch(world: "World", host: "Host", effect: FetchFrom) -> tuple[str, Any]:
    """Return what the host gets for a fetch: records of the source, now or later."""
    end, start = world.source.end, world.source.start
    expired = effect.position < start
    # A broker looks at the epochs first, but not before the start of its log (Partition.readRecords).
    epoch, parts = (-1, -1) if expired else world.source.diverging(effect.position, effect.last_epoch)
    error = OUT_OF_RANGE if expired or (effect.position > end and parts < 0) else 0
    # A fast handoff fetches before the ledger has been read to its end, and may do so in vain.
    counts = host.lane.takeover.fast_handoff is None
    if (error or parts >= 0) and counts and not world.source.cut and not expired:
        raise AssertionError(f"{host.name} would learn of a truncation at {parts} that never happened: {effect}")
    data, aborted = bytearray(), list[tuple[int, int]]()
    if not error and parts < 0:
        data, aborted = world.source.fetch(effect.position, world.rng.randint(1, 4), host.lane.read_committed)
    stable = world.source.last_stable
    records = (data, 0, len(data), None)
    chunk = Chunk(
        effect.question, error, end, stable, start, aborted, *records, epoch, parts, world.source.leader_epoch
    )
    return slow_brokers.fetched(world, chunk)


def answer(  # noqa: C901, PLR0911 -- one case per kind of question
    world: "World", host: "Host", question: Any, broker: int
) -> Input:
    """Return the answer to a question."""
    target, epoch = world.target, world.target.brokers[broker].epoch
    match question:
        case AskEnd():
            error, leader_epoch, end = target.end_for(broker, epoch)
            return EndAnswer(question.question, error, leader_epoch, end)
        case AskProducers():
            error, entry = target.producers(broker, question.producer_id, world.wall_ms)
            return ProducersAnswer(question.question, error, ProducerEntry(*entry) if entry else None)
        case AskVisible():
            error, watermark, start = target.visible(broker, question.leader_epoch)
            return VisibleAnswer(question.question, error, watermark, start)
        case AskProducerId():
            world.producer_ids += 1
            world.given.add(world.producer_ids)
            return ProducerIdAnswer(question.question, 0, world.producer_ids, 0)
        case AskDivergence():
            error, diverging, end = world.source.parting(question.position, question.epoch)
            leader_epoch = -1 if error else world.source.leader_epoch
            return DivergenceAnswer(question.question, error, diverging, end, leader_epoch)
        case AskStart():
            return StartAnswer(question.question, 0, world.source.begin)
        case AskScan():
            return scanned(world, question)
        case AskCheck():
            return compared(world, host.record(), question)
        case AskShared():
            return SharedAnswer(question.question, *target.shared(broker, epoch, question.epoch))
        case AskSuperseded():
            return looked_up(world, host, question)
        case AskRebuild():
            return relocated(world, host, question)
        case AskOrigins():
            return OriginsAnswer(question.question, world.writers())
        case AskConfigs() | Park():
            return _of_refused(world, question)
        case _:
            raise AssertionError(question)


def _of_refused(world: "World", question: AskConfigs | Park) -> Input:
    if isinstance(question, Park):
        return world.letters.park(question, world.rng if world.faults else None)
    if world.faults and world.rng.random() < 0.2:
        return ConfigsAnswer(question.question, "", "nobody answers", may_pass=True)
    return ConfigsAnswer(question.question, f"settings {world.target.settings}")
