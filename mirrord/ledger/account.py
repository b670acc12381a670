"""What a lane's ledger and the ends of both logs prove without reading a record: every source offset has its place."""

import msgspec

from mirrord.ledger.state import LaneState
from mirrord.model.facts import Progress


class Account(msgspec.Struct, frozen=True):
    """One lane's sums."""

    copied: int
    """Records."""
    explained: int
    """Source offsets with a verdict instead of a copy."""
    counted: bool
    """Whether both were compared with the offsets that the lane has passed; not where the ledger holds the beginning
    no longer, or tells of holes."""
    differences: tuple[str, ...] = ()
    """Lines for people; empty when all that is known agrees."""


def account(lane: LaneState, progress: Progress | None, source_end: int, target_end: int | None) -> Account:
    """The lane's sums, compared with the end of the source log that it should have reached.

    `target_end` is the high watermark of the target log, None when the partition is not there. `progress` is the lane's
    last mark.
    """
    if progress is None:
        missing = () if source_end == 0 else (f"nothing is known of it, and the source ends at {source_end}",)
        return Account(0, 0, counted=False, differences=missing)
    differences: list[str] = []
    if progress.source_offset < source_end:
        differences.append(f"copied up to source offset {progress.source_offset}, the source ended at {source_end}")
    if target_end is None:
        differences.append("its target partition does not exist")
    elif target_end < progress.target_offset:
        differences.append(f"the target ends at {target_end}, but {progress.target_offset} was acknowledged")
    explained = sum(lane.verdicts.counts.values())
    begin = _begin(lane)
    if begin is not None and progress.ordinal + explained != (passed := progress.source_offset - begin):
        differences.append(
            f"{progress.ordinal} records copied and {explained} offsets explained, but {passed} offsets passed since "
            f"{begin}"
        )
    return Account(progress.ordinal, explained, begin is not None, tuple(differences))


def _begin(lane: LaneState) -> int | None:
    """The source offset where the lane began; None when the ledger does not tell it for sure, or offsets were used
    twice."""
    if lane.holes or lane.verdicts.counts.get("truncated"):
        return None
    recent = lane.verdicts.recent
    if sum(verdict.end - verdict.start for verdict in recent) != sum(lane.verdicts.counts.values()):
        return None
    first, target = lane.source_runs.first, lane.target_runs.first
    if first is None or first.ordinal or (target is not None and target.ordinal):
        return None
    return min([first.offset, *(verdict.start for verdict in recent)])
