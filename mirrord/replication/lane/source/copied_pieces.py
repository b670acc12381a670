"""The source records that ordinals stand for, as pieces: without those that the source has lost since, and without
those that the target leapt over."""

from collections.abc import Iterator
from itertools import pairwise

from mirrord.model.intervals import Interval
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.signals import LaneRecord
from mirrord.replication.lane.target.target_scan import but_not_void


def mapped(record: LaneRecord, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Yield the pieces (ordinal, offset, length) of the ordinals first..last, without those that were cut."""
    cuts = record.truncations
    for ordinal, offset, length in record.source_runs.between(first, last):
        # A run that continues the one before it is not stored, even if the source was truncated between the two.
        edges = sorted({ordinal, ordinal + length, *(cut for cut, _ in cuts if ordinal < cut < ordinal + length)})
        for begin, end in pairwise(edges):
            at = offset + begin - ordinal
            limit = min((start for beyond, start in cuts if begin < beyond), default=NEVER)
            if limit > at:
                yield begin, at, min(end - begin, limit - at)


def copied_within(record: LaneRecord, below: int, start: int, end: int) -> Iterator[Interval]:
    """Yield the parts of the source offsets [start, end) that ordinals below `below` are known to hold, in any order.
    Between two turns of the runs offsets ascend, so each part is found by bisection."""
    runs, first_hole = record.source_runs, min((hole.first for hole in record.holes), default=below)
    edge = below
    for begin in (*(turn for turn in reversed(runs.turns) if turn < below), runs.at(0).ordinal):
        at = max(runs.floor(start, runs.position(begin), runs.position(edge)), runs.position(begin))
        for piece in but_not_void(record.holes, runs.at(at).ordinal, edge - 1):
            for _, offset, length in mapped(record, *piece):
                if offset >= end:
                    break
                if offset + length > start:
                    yield max(offset, start), min(offset + length, end)
        if begin <= first_hole and runs.at(at).offset <= start:
            return  # what was copied before, and the source has not lost, has lower offsets
        edge = begin
