"""Reconstruction of a lane's facts from the source log and the target log, for a flow that lost its ledger."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

import msgspec

from mirrord.audit.rules.rebuild_placement import CopiedRecords, Other, Placed, PlacedPiece, is_in_order, pieces
from mirrord.kafka.protocol.sequence import SEQUENCES
from mirrord.ledger.facts.core import (
    HoleFound,
    LaneFact,
    LaneOpened,
    LaneTaken,
    Mode,
    SourceRun,
    TargetRun,
    Verdict,
    VerdictGiven,
)
from mirrord.model.intervals import Interval, uncovered, within
from mirrord.model.names import LaneId
from mirrord.model.runs import Run, Runs
from mirrord.replication.lane.source.record_search import Unplaced

GRANT = 1
RUNS_AT_ONCE = 5_000
"""Maximum number of runs or verdicts in one fact. If a lane has more of them, several facts are written."""
LEFT_OUT = "the source holds these records, the lane has passed them, and the reason was lost with the ledger"
_MODE: Mode = "sequence"


class ReconstructedLane(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a lane, reconstructed from the source log and the target log."""

    source: tuple[Run, ...]
    target: tuple[tuple[Run, int], ...]
    """The runs of ordinals and target offsets, each with the leader epoch under which the target accepted it."""
    holes: tuple[tuple[int, int], ...]
    """Ranges (first, last) of the ordinals of batches that the target has refused."""
    verdicts: tuple[Verdict, ...]
    epochs: tuple[tuple[int, int], ...]
    records: int
    """Number of records on the target whose originals were found in the source."""
    expired: int
    """Number of records on the target whose originals the source no longer holds because they expired."""
    ordinal: int
    """The lane's next ordinal."""
    until: int
    """The ordinals from `ordinal` to this one, exclusive, are reserved for refused records that have not been copied
    again yet. Equal to `ordinal` if there are no such records."""
    source_offset: int
    """The source offset after that of the last copied record."""
    source_epoch: int
    target_offset: int
    """The target offset after that of the lane's last record."""
    target_epoch: int

    @property
    def left_out(self) -> int:
        """Number of records that the lane has skipped for an unknown reason."""
        return sum(verdict.end - verdict.start for verdict in self.verdicts if verdict.reason == "unexplained")


def standing(placed: Placed, others: Sequence[Other], log_start: int, *, filtered: bool = False) -> ReconstructedLane:
    """Derive the state of a lane from the source positions of the copied records. `log_start` is the log start offset
    of the source. `filtered` means that the flow has a filter, which may have skipped records.

    Raises Unplaced if the state is ambiguous, for example if it is not known which source records the target has
    refused.
    """
    found = pieces(placed, others, log_start)
    copies = placed.copies[placed.expired() :]
    holes = [(before.end, copy.ordinal - 1) for before, copy in pairwise(copies) if copy.ordinal > before.end]
    first = found[0].ordinal
    if 0 < copies[0].ordinal < SEQUENCES // 2 and copies[0].offset == 0:
        holes.insert(0, (0, copies[0].ordinal - 1))
    if holes and filtered:
        raise Unplaced(
            f"the target has refused ordinals {holes[0][0]} to {holes[0][1]}, and a filter has excluded records: it is "
            "not known which records of the source those were"
        )
    if not holes and not is_in_order(found):
        raise Unplaced("its records are in a different order on the target than on the source")
    covered = sorted((piece.offset, piece.offset + piece.length) for piece in found)
    begin, top = covered[0][0], max(end for _, end in covered)
    before = begin
    for other in reversed(others):
        before = other.start if other.end == before else before
    visible = [(each.offset, each.end) for each in placed.originals]
    lacking = list(_left((begin, top), covered, visible))
    missing = list(_refused(found, holes, visible, lacking))
    source = Runs(Run(piece.ordinal, piece.offset) for piece in found)
    ordinal = until = copies[-1].end
    for start, end in missing:
        source.add(until, start)
        until += end - start
    source.add(until, top)
    return ReconstructedLane(
        source=tuple(source),
        target=tuple(_target_runs([copy for copy in copies if copy.end > first])),
        holes=tuple(holes),
        verdicts=tuple(_verdicts((before, top), covered, visible, others, missing)),
        epochs=tuple(_epochs(found)),
        records=sum(piece.length for piece in found),
        expired=sum(copy.length for copy in placed.copies[: placed.expired()]),
        ordinal=ordinal,
        until=until,
        source_offset=top,
        source_epoch=max(found, key=lambda piece: piece.offset).epoch,
        target_offset=copies[-1].offset + copies[-1].length,
        target_epoch=copies[-1].epoch,
    )


def _left(whole: Interval, covered: Sequence[Interval], visible: Sequence[Interval]) -> Iterator[Interval]:
    """Yield the parts of `whole` that were not copied although a consumer of the source receives their records."""
    for gap in uncovered(whole, covered):
        yield from within(gap, visible)


def _refused(
    found: Sequence[PlacedPiece], holes: Sequence[Interval], visible: Sequence[Interval], lacking: Sequence[Interval]
) -> Iterator[Interval]:
    """Yield the source ranges that have to be copied again: the target refused their records, and they were not copied
    later. `holes` are the refused ordinals. Raises Unplaced if it cannot be determined which records had these
    ordinals."""
    ordinals = [piece.ordinal for piece in found]
    for first, last in holes:
        at = bisect_left(ordinals, last)
        before = found[at - 1].offset + found[at - 1].length if at else 0
        behind = found[at].offset if at < len(found) else before
        inside = list(within((before, behind), visible)) if before < behind else []
        still = list(within((before, behind), lacking)) if before < behind else []
        many = sum(end - start for start, end in inside)
        if many == last - first + 1:
            yield from still
        elif still or many < last - first + 1:
            raise Unplaced(
                f"the target has refused ordinals {first} to {last}, and it is not known which records of the source "
                f"between the offsets {before} and {behind} those were"
            )


def _target_runs(copies: Sequence[CopiedRecords]) -> Iterator[tuple[Run, int]]:
    runs = Runs()
    for copy in copies:
        if not runs or runs.offset_of(copy.ordinal) != copy.offset:
            runs.add(copy.ordinal, copy.offset)
            yield Run(copy.ordinal, copy.offset), copy.epoch


def _verdicts(
    whole: Interval,
    covered: Sequence[Interval],
    visible: Sequence[Interval],
    others: Sequence[Other],
    missing: Sequence[Interval],
) -> Iterator[Verdict]:
    """Yield a verdict on every source offset that was not copied and does not have to be copied again, in the order of
    the offsets."""
    explained = [(each.start, each.end) for each in others]
    known = sorted([*visible, *explained])
    made: list[Verdict] = []
    again = sorted(missing)
    for gap in uncovered(whole, covered):
        made += [Verdict(*part, "compacted") for part in uncovered(gap, within(gap, known))]
        for part in within(gap, visible):
            made += [Verdict(*left, "unexplained") for left in uncovered(part, again)]
        at = bisect_left(explained, gap[0], key=_end)
        for other in others[at:]:
            if other.start >= gap[1]:
                break
            start, end = max(other.start, gap[0]), min(other.end, gap[1])
            if start < end:
                made.append(Verdict(start, end, other.reason))
    yield from sorted(made, key=_start)


def _start(verdict: Verdict) -> int:
    return verdict.start


def _end(interval: Interval) -> int:
    return interval[1]


def _epochs(found: Sequence[PlacedPiece]) -> Iterator[tuple[int, int]]:
    last = None
    for piece in found:
        if piece.epoch != last:
            last = piece.epoch
            yield piece.ordinal, piece.epoch


class LaneNames(msgspec.Struct, frozen=True, kw_only=True):
    """The names and ids under which a lane is recorded in the ledger."""

    lane: LaneId
    source_topic: str
    target_topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    policy: str
    by: str
    """The replicator to which the ledger assigns the lane."""


def facts(named: LaneNames, reconstructed: ReconstructedLane) -> Iterator[LaneFact]:
    """Yield the facts that the ledger has to contain about the lane, in order."""
    lane = named.lane
    yield LaneOpened(
        lane,
        named.source_topic,
        named.target_topic,
        named.partition,
        named.producer_id,
        named.producer_epoch,
        named.policy,
        _MODE,
    )
    yield LaneTaken(lane, GRANT, named.by)
    epochs = list(reconstructed.epochs)
    for at in range(0, len(reconstructed.source), RUNS_AT_ONCE):
        runs = reconstructed.source[at : at + RUNS_AT_ONCE]
        behind = (
            reconstructed.source[at + RUNS_AT_ONCE].ordinal
            if at + RUNS_AT_ONCE < len(reconstructed.source)
            else reconstructed.until + 1
        )
        here = tuple(each for each in epochs if each[0] < behind)
        epochs = epochs[len(here) :]
        yield SourceRun(lane, GRANT, runs, (), here)
    for at in range(0, len(reconstructed.verdicts), RUNS_AT_ONCE):
        verdicts = reconstructed.verdicts[at : at + RUNS_AT_ONCE]
        note = LEFT_OUT if any(verdict.reason == "unexplained" for verdict in verdicts) else ""
        yield VerdictGiven(lane, GRANT, verdicts, note)
    is_open = reconstructed.until > reconstructed.ordinal
    for first, last in reconstructed.holes:
        again, until = (reconstructed.ordinal, reconstructed.until) if is_open else (last + 1, last + 1)
        yield HoleFound(lane, GRANT, first, last, again, until)
    for run, epoch in reconstructed.target:
        yield TargetRun(lane, GRANT, run.ordinal, run.offset, epoch)
