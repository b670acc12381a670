"""Selects the runs that a compaction (`mirrord compact`) moves from the ledger to files. These are the packed runs
below the resume position of each lane. They are moved in parts, and each part consists of several pieces.

The newest runs of a lane are not packed, so they stay in the ledger. A lane may resume slightly below its latest resume
position, and the runs that it then needs are still in the ledger.
"""

from array import array
from collections.abc import Iterator
from sys import byteorder
from typing import NamedTuple

from mirrord.kafka.protocol.crc32c import checksum
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.archived_runs import ArchivedRuns
from mirrord.model.names import LaneId, Side
from mirrord.model.run_codec import Packed, RunColumns
from mirrord.model.run_memory import PIECE_RUNS, PackedPiece

PART_RUNS = 8 * PIECE_RUNS
"""Number of runs in a part. If any run of a part is needed, the whole part is read. The description of a part takes
about fifty bytes in a snapshot."""


class Part(NamedTuple):
    """Consecutive runs that a compaction moves, from the source side or the target side of a lane."""

    topic: str
    partition: int
    lane: LaneId
    side: Side
    pieces: tuple[PackedPiece, ...]

    @property
    def runs(self) -> int:
        """The number of runs in this part."""
        return sum(piece.count for piece in self.pieces)

    def archived(self, generation: int, runs_checksum: int) -> ArchivedRuns:
        """Return the summary of this part that the ledger stores after the runs of the part have been moved to a
        file."""
        first, last = self.pieces[0], self.pieces[-1]
        return ArchivedRuns(
            generation=generation,
            count=self.runs,
            first_ordinal=first.first_ordinal,
            first_offset=first.first_offset,
            last_ordinal=last.last_ordinal,
            last_offset=last.last_offset,
            checksum=runs_checksum,
            turns=tuple(turn for piece in self.pieces for turn in piece.turns),
        )


def parts(state: FlowState, *, most: int = PART_RUNS, least: int = PART_RUNS) -> Iterator[Part]:
    """Yield the runs that can be moved, in parts of up to `most` runs. Parts with fewer than `least` runs are
    omitted."""
    for lane_id, lane in sorted(state.lanes.items()):
        progress = state.progress.get(lane_id)
        if progress is not None:
            # When a lane resumes, it scans all ordinals after a hole. Runs from the first hole on are therefore not
            # moved.
            end = min([progress.ordinal, *(hole.first for hole in lane.holes)])
            for side in ("source", "target"):
                yield from _of_side(lane_id, lane, side, end, most, least)


def _of_side(lane_id: LaneId, lane: LaneState, side: Side, end: int, most: int, least: int) -> Iterator[Part]:
    runs = lane.source_runs if side == "source" else lane.target_runs
    group: list[PackedPiece] = []
    for piece in (*runs.pieces, None):
        movable = piece is not None and piece.archived is None and piece.last_ordinal < end
        held = sum(each.count for each in group)
        if group and (not movable or piece is None or held + piece.count > most):
            if held >= least:
                yield Part(lane.source_topic, lane.partition, lane_id, side, tuple(group))
            group = []
        if piece is not None and movable:
            group.append(piece)


def unpacked(packed: Iterator[bytes]) -> RunColumns:
    """Return consecutive packed runs as two columns: ordinals and offsets. Raises ValueError if the bytes are
    damaged."""
    ordinals, offsets = array("q"), array("q")
    for each in packed:
        more = Packed(each).unpack()
        ordinals += more[0]
        offsets += more[1]
    return ordinals, offsets


def columns_checksum(columns: RunColumns) -> int:
    """Return the checksum of two columns of runs, as defined for `ArchivedRuns.checksum`."""
    both = columns[0] + columns[1]
    if byteorder == "big":
        both.byteswap()
    return checksum(both.tobytes())
