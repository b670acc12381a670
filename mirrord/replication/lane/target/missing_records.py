"""Determines which source records are looked up when ordinals are missing from the target log."""

from collections.abc import Iterator

from mirrord.model.intervals import uncovered
from mirrord.replication.lane.signals import LaneRecord
from mirrord.replication.lane.source.copied_pieces import mapped
from mirrord.replication.lane.target.scan_result import Missing
from mirrord.replication.lane.target.target_scan import but_not_void


def pieces(record: LaneRecord, missing: Missing) -> Iterator[tuple[int, int, int]]:
    """Yield the missing ordinals whose records can be looked up, as pieces (ordinal, source offset, length). Records
    that the source has lost are omitted.

    If the missing ordinals are of the kind `last` (`Missing.kind`), those that are in holes are also omitted. Either
    nothing was appended under them, and their records are copied under later ordinals, or it is not known which records
    they have (`HoleFound.is_open`)."""
    parts = [(missing.first, missing.last)]
    if missing.kind == "last":
        parts = but_not_void(record.holes, missing.first, missing.last)
    for first, last in parts:
        yield from mapped(record, first, last)


def without_record(record: LaneRecord, missing: Missing) -> Iterator[int]:
    """Yield the missing ordinals that are not in any of the `pieces`, so that their records cannot be looked up."""
    found = ((ordinal, ordinal + length) for ordinal, _, length in pieces(record, missing))
    for start, end in uncovered((missing.first, missing.last + 1), found):
        yield from range(start, end)
