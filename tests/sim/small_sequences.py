"""A small range of sequences, so that they wrap around within a story."""

from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from mirrord.kafka.protocol import sequence
from mirrord.replication.host import own_batch_scan, superseded_lookup
from mirrord.replication.lane import intake, rebuilding
from mirrord.replication.lane.lane_report import resume_position
from mirrord.replication.lane.target import evidence, unconfirmed_limit
from tests.sim import target
from tests.sim.host import Host


@contextmanager
def range_of(sequences: int) -> Generator[None]:
    """Let sequences wrap around after this many for the duration of the block."""
    with ExitStack() as patches:
        for module in (sequence, rebuilding, evidence, own_batch_scan, superseded_lookup, target):
            patches.enter_context(patch.object(module, "SEQUENCES", sequences))
        patches.enter_context(patch.object(intake, "SEQUENCE_MASK", sequences - 1))
        patches.enter_context(patch.object(unconfirmed_limit, "MOST", sequences // 4))
        yield


def save_often(host: Host) -> None:
    """Save the position before it is far from the saved one, as a host does every second."""
    progress, known = host.world.progress, resume_position(host.lane).ordinal
    if host.lane.grant and known - (progress.ordinal if progress is not None else 0) >= sequence.SEQUENCES // 8:
        host.save_progress()
