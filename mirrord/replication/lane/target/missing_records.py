"""Determines which source records are looked up when ordinals are missing from the target log.

There may be keys whose newest record both logs have lost. The log cleaner of a compacted target removes a record
because the log has a newer one with the same key. If the target then loses the newer record in an election, and the
source loses it as well, the removed record is the newest one with its key in the source, and the target does not have
it. It may be anywhere below the lost records, so all records there are looked up (`cleaned_below`).
"""

from collections.abc import Iterator, Sequence

from mirrord.model.intervals import uncovered
from mirrord.model.runs import Run
from mirrord.replication.lane.signals import LaneRecord
from mirrord.replication.lane.source.copied_pieces import mapped
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.target.scan_result import Log, Missing
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


def cleaned_below(lane: Lane, log: Log, end: int, missing: Sequence[Missing]) -> tuple[Missing, ...]:
    """Return the ordinals below `end`, as far as they are not among `missing`, if the target is compacted. The target
    log has lost the records from the ordinal `end` onward.

    A lookup of these ordinals reads the source and the target from their beginnings. This is slow for a large topic,
    but is necessary only if both clusters have had an unclean election.
    """
    record = lane.record
    lowest = record.source_runs.first if record is not None else None
    if record is None or lowest is None or log.compacts is False:
        return ()
    found: list[Missing] = []
    for start, behind in uncovered((lowest.ordinal, end), sorted((each.first, each.last + 1) for each in missing)):
        for first, last in but_not_void(record.holes, start, behind - 1):
            # Without these runs, every record with the same key counts as newer, so nothing is copied over it.
            pieces = record.target_runs.between(first, last) if not lane.notes else ()
            runs = tuple(Run(ordinal, offset) for ordinal, offset, _ in pieces)
            found.append(Missing("below", first, last, 0, has_room=True, recorded_at=runs))
    return tuple(found)


def has_lost_from(lane: Lane, log: Log, first: int) -> bool:
    """Return whether the source has lost the record of an ordinal at or above `first`, according to the ledger, and the
    target is compacted. The target log may have had this record, whether or not an acknowledgement is known."""
    record = lane.record
    if record is None or not lane.log.cleaned or log.compacts is False:
        return False
    end = max((ordinal for ordinal, _ in record.truncations), default=0)
    return first < end and sum(length for _, _, length in mapped(record, first, end - 1)) < end - first
