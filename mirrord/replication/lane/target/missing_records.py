"""Determines which source records are looked up when ordinals are missing from the target log."""

from collections.abc import Iterator

from mirrord.model.intervals import uncovered
from mirrord.replication.lane.signals import LaneRecord
from mirrord.replication.lane.source.copied_pieces import mapped
from mirrord.replication.lane.target.scan_result import Missing
from mirrord.replication.lane.target.target_scan import but_not_void


def pieces(record: LaneRecord, missing: Missing) -> Iterator[tuple[int, int, int]]:
    """Yield the pieces (ordinal, source offset, length) of missing ordinals, excluding records that the source has
    lost.

    Ordinals of the kind `last` that are in holes are also omitted, because nothing was appended under them. Their
    records are copied under later ordinals."""
    parts = [(missing.first, missing.last)]
    if missing.kind == "last":
        holes = [hole for hole in record.holes if not hole.is_open]
        parts = but_not_void(holes, missing.first, missing.last)
    for first, last in parts:
        yield from mapped(record, first, last)


def without_record(record: LaneRecord, missing: Missing) -> Iterator[int]:
    """Yield the missing ordinals whose records cannot be looked up, because `pieces` does not yield them."""
    found = ((ordinal, ordinal + length) for ordinal, _, length in pieces(record, missing))
    for start, end in uncovered((missing.first, missing.last + 1), found):
        yield from range(start, end)
