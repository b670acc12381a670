"""A lane that has copied almost 2^31 records before the story begins, so that its sequence numbers soon start again at
0.

Retention has deleted all of these records from both logs, the brokers have forgotten the lane's producer, and the
ledger has dropped the runs that ended before the story. The first holder of the story takes the lane from a former one.
The logs are as in any other story, except that they do not begin at offset 0: the fakes do not need to know how the
lane got to this ordinal.
"""

from typing import TYPE_CHECKING, NamedTuple

from mirrord.ledger.facts.core import LaneOpened, LaneTaken, Progress, SourceRun, TargetRun
from mirrord.model.runs import Run
from tests.sim.host import LANE, REQUEST_S, TTL_S
from tests.sim.target import SEQUENCES

if TYPE_CHECKING:
    from tests.sim.host import Host
    from tests.sim.world import World

_SOURCE_OFFSET, _TARGET_OFFSET = 40, 25
"""Where the logs begin. Neither the two offsets nor their differences to the ordinal must be confused."""
_FAR = 1 << 20
"""No story has so many records."""


class Past(NamedTuple):
    """Where the lane is when the story begins."""

    ordinal: int = 0
    source_offset: int = 0
    target_offset: int = 0

    def is_in_story(self, ordinal: int) -> bool:
        """Whether the story may have an ordinal. A lane that confuses ordinals is far away."""
        return self.ordinal <= ordinal < self.ordinal + _FAR


def begin(world: "World", until_wrap: int) -> Past:
    """Begin the story so many records before the sequence numbers start again at 0, or at ordinal 0 if it is 0."""
    if not until_wrap:
        return Past()
    past = Past(SEQUENCES - until_wrap, _SOURCE_OFFSET, _TARGET_OFFSET)
    world.source.begin_at(past.source_offset)
    target = world.target
    target.start = target.high_watermark = past.target_offset
    target.first_ordinal = past.ordinal
    for broker in target.brokers:
        broker.began = broker.origin = past.target_offset
    times = (int(TTL_S * 1000), int(REQUEST_S * 1000))
    opened = LaneOpened(LANE, "orders", "eu.orders", 0, world.producer_ids, 0, "p", world.shape.mode)
    source = SourceRun(LANE, 1, (Run(past.ordinal, past.source_offset),), (), ((past.ordinal, 0),))
    placed = TargetRun(LANE, 1, past.ordinal, past.target_offset, target.epoch)
    world.write((opened, LaneTaken(LANE, 1, "r0", times)), 1)
    world.write((source, placed), 1)
    world.progress = Progress(
        LANE,
        1,
        1,
        past.ordinal,
        past.target_offset,
        target.epoch,
        past.source_offset,
        past.source_offset,
        world.record_ms(),
        world.wall_ms,
        protected=False,
        state="copying",
        replicator="r0",
        source_epoch=0,
        epochs_told=True,
        settled=True,
    )
    return past


def acked_in_story(host: "Host") -> int:
    """The number of records that the target has acknowledged to a lane in this story, by its ordinals."""
    return host.lane.acked - host.world.past.ordinal
