"""Comparison of the source records with the target records, joined on the offset map. The result is the kind and the
offsets of each difference.

1. Each source record is compared with the target record at the offset that the map gives. Equal records need no further
   comparison.
2. Each remaining source record is paired with a target record that has the same content at a different offset, if such
   a record exists.
3. Records without a partner are classified. If the map assigns a source record and a target record to each other, the
   record counts as altered. Any other source record counts as missing. Any other target record counts as duplicated,
   extra or foreign (see `DifferenceKind`).

A deviation is not a difference if it is explained by retention, by compaction or by a verdict in the ledger.
"""

from bisect import bisect_left
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from itertools import accumulate

import msgspec

from mirrord.audit.rules.audit_range import AuditRange, MapPiece
from mirrord.audit.rules.reordering import mapped_disorder
from mirrord.audit.rules.results import (
    WITHHELD,
    Cause,
    Compared,
    Difference,
    DifferenceKind,
    Explained,
    Seen,
    Surroundings,
)
from mirrord.ledger.facts.core import Reason
from mirrord.model.names import Side

Content = Callable[[Seen], tuple[bytes, int]]
_NOWHERE = -1


def compare_records(
    wanted: AuditRange,
    source: Sequence[Seen],
    target: Sequence[Seen],
    around: Surroundings,
) -> Compared:
    """Compare all source records of a range with all target records of the range. Records outside the range are
    ignored.

    If the target is compacted, a missing record with a key is not a difference here. For such topics,
    `mirrord.audit.rules.key_compare` compares the newest record for each key.
    """
    return _Comparison(wanted, source, target, around).run()


class _Comparison:
    def __init__(
        self,
        wanted: AuditRange,
        source: Sequence[Seen],
        target: Sequence[Seen],
        around: Surroundings,
    ) -> None:
        self._wanted = wanted
        self._around = around
        self._source = {each.offset: each for each in source if wanted.source_start <= each.offset < wanted.source_end}
        self._target = {each.offset: each for each in target if wanted.target_start <= each.offset < wanted.target_end}
        timed = not any(each.has_append_time for each in self._target.values())
        self._content: Content = _timed if timed else _untimed
        self._equal: list[tuple[int, int]] = []
        """Pairs of (target offset, ordinal) for the records that are equal on the source and on the target."""
        self._sources: dict[int, int] = {}
        """Maps the source offset to the ordinal, for all records in the offset map that were not truncated."""
        self._targets: dict[int, tuple[MapPiece, int]] = {}
        """Maps the target offset to the part of the offset map that contains it, and to the corresponding source
        offset."""
        self._alone: dict[int, int] = {}
        """The source records without a counterpart: maps the source offset to the target offset that the record should
        have."""
        self._strange: list[int] = []
        """Offsets of target records without a counterpart."""
        self._placed: dict[tuple[bytes, int], int] = {}
        """Maps the content of a source record that has a counterpart to its source offset. Of several records with the
        same content, the first one counts."""
        self._differences: list[Difference] = []
        self._explained: list[Explained] = []

    def run(self) -> Compared:
        self._join()
        self._find_elsewhere()
        for offset in self._strange:
            self._judge_strange(offset)
        for offset, there in self._alone.items():
            self._judge_missing(offset, there)
        self._explained += mapped_disorder(self._wanted.pieces)
        return Compared(len(self._equal), together(self._differences), merged(self._explained))

    def _join(self) -> None:
        """Join the source records and the target records on the offset map. Equal records need no further
        comparison."""
        for piece in self._wanted.pieces:
            for at in range(piece.length):
                here, there = piece.source + at, piece.target + at
                self._targets[there] = (piece, here)
                original = None
                if not piece.truncated:
                    self._sources[here] = piece.ordinal + at
                    original = self._source.get(here)
                copy = self._target.get(there)
                if original is not None and copy is not None and self._content(original) == self._content(copy):
                    self._equal.append((there, piece.ordinal + at))
                    self._placed.setdefault(self._content(original), here)
                    continue
                if original is not None:
                    self._alone[here] = there
                if copy is not None:
                    self._strange.append(there)
                elif original is None:
                    self._judge_gone(piece, here, there)
        self._judge_unmapped()
        self._strange.sort()

    def _judge_unmapped(self) -> None:
        """Classify the records that the offset map does not contain."""
        for offset in self._source:
            if offset not in self._sources:
                verdict = self._wanted.verdict_at(offset)
                if verdict is not None and self._withholds(verdict.reason):
                    self._explain(verdict.reason, "source", offset)
                elif verdict is None and offset < self._wanted.forgotten_below:
                    self._explain("forgotten", "source", offset)
                else:
                    self._alone[offset] = _NOWHERE
        for offset in self._target:
            if offset in self._targets:
                continue
            if offset in self._wanted.brought_back:
                self._explain("brought-back", "target", offset)
            else:
                self._strange.append(offset)

    def _withholds(self, reason: Reason) -> bool:
        """Return whether a verdict with this reason explains why a record that the source still holds was not
        copied."""
        match reason:
            case "aborted":
                return not self._around.source_committed
            case "compacted":
                # Each replica is compacted independently, so a new leader may still hold records that the former leader
                # had removed.
                return self._around.source_compacted
            case _:
                return reason in WITHHELD

    def _find_elsewhere(self) -> None:
        """Pair the remaining target records, in the order of their offsets, with remaining source records that have the
        same content. If several source records have this content, the one with the lowest offset is paired first."""
        waiting: defaultdict[tuple[bytes, int], deque[int]] = defaultdict(deque)
        for offset in sorted(self._alone):
            waiting[self._content(self._source[offset])].append(offset)
        moved: list[tuple[int, int]] = []
        for there in self._strange:
            queue = waiting.get(self._content(self._target[there]))
            if queue:
                moved.append((there, queue.popleft()))
        for _, here in moved:
            del self._alone[here]
            self._placed.setdefault(self._content(self._source[here]), here)
        found = {there for there, _ in moved}
        self._strange = [there for there in self._strange if there not in found]
        known = sorted(self._sources)
        out_of_order = self._out_of_order([(there, self._rank(known, here)) for there, here in moved])
        for there, here in moved:
            self._add("reordered" if there in out_of_order else "displaced", here, there)

    def _rank(self, known: Sequence[int], here: int) -> int:
        """Return the position of a source record in copying order: its own ordinal, or the ordinal of the nearest
        earlier source record that has an ordinal."""
        at = bisect_left(known, here + 1) - 1
        return self._wanted.first if at < 0 else self._sources[known[at]]

    def _out_of_order(self, moved: Sequence[tuple[int, int]]) -> set[int]:
        """Return the target offsets of those moved records that are out of order: a record with a higher ordinal
        precedes them, or a record with a lower ordinal follows them. `moved` holds pairs of target offset and ordinal
        for the records that are not at the offset that the map gives."""
        if not moved:
            return set()
        placed = sorted([*self._equal, *moved])
        ranks = [rank for _, rank in placed]
        highest = [_NOWHERE, *accumulate(ranks, max)]
        lowest = [*reversed(list(accumulate(reversed(ranks), min))), ranks[-1]]
        return {
            there
            for at, (there, rank) in enumerate(placed)
            if highest[at] > rank or (at + 1 < len(ranks) and lowest[at + 1] < rank)
        }

    def _judge_strange(self, there: int) -> None:
        """Classify a target record whose content matches no unpaired source record."""
        copy = self._target[there]
        piece, here = self._targets.get(there, (None, _NOWHERE))
        if here in self._alone and piece is not None and not piece.truncated:
            del self._alone[here]
            self._add("altered", here, there)
            return
        if piece is not None:
            cause = self._source_cause(piece, here)
            if cause is not None:
                self._explain(cause, "target", there)
                return
        twin = self._placed.get(self._content(copy))
        if twin is not None:
            self._add("duplicated", twin, there)
        elif self._around.others_write and not copy.is_own and piece is None:
            self._explain("other-writers", "target", there)
        else:
            self._add("extra" if copy.is_own else "foreign", None, there)

    def _source_cause(self, piece: MapPiece, here: int) -> Cause | None:
        """Return why the source no longer holds the original of a copied record; None if no reason is known."""
        if piece.truncated:
            return "truncated"
        if here in self._source:
            return None
        if here < self._around.source_log_start:
            return "source-retention"
        return "source-compaction" if self._around.source_compacted else None

    def _judge_missing(self, here: int, there: int) -> None:
        original = self._source[here]
        cause: Cause | None = None
        if there != _NOWHERE:
            if there < self._around.target_log_start:
                cause = "target-retention"
            elif self._around.target_compacted and original.key is not None:
                cause = "target-compaction"
        if cause is not None:
            self._explain(cause, "source", here)
        else:
            self._add("missing", here, there if there != _NOWHERE else None)

    def _judge_gone(self, piece: MapPiece, here: int, there: int) -> None:
        """Classify a record of the offset map that neither the source nor the target holds."""
        if there < self._around.target_log_start:
            self._explain("target-retention", "source", here)
        elif self._around.target_compacted:
            self._explain("target-compaction", "source", here)
        else:
            self._add("missing", here if not piece.truncated else None, there)

    def _add(self, kind: DifferenceKind, source: int | None, target: int | None) -> None:
        self._differences.append(Difference(kind, source, target))

    def _explain(self, cause: Cause, side: Side, offset: int) -> None:
        self._explained.append(Explained(cause, side, offset, offset + 1))


def _timed(seen: Seen) -> tuple[bytes, int]:
    return seen.content, seen.time_ms


def _untimed(seen: Seen) -> tuple[bytes, int]:
    return seen.content, 0


def together(differences: Iterable[Difference]) -> tuple[Difference, ...]:
    """Merge differences that are of the same kind and have consecutive offsets, and sort the result by kind and target
    offset."""
    found: list[Difference] = []

    def place(each: Difference) -> tuple[str, int, int]:
        return each.kind, _NOWHERE if each.target is None else each.target, each.source or 0

    for each in sorted(differences, key=place):
        if found and _follows(found[-1], each):
            found[-1] = msgspec.structs.replace(found[-1], length=found[-1].length + each.length)
        else:
            found.append(each)
    return tuple(found)


def _follows(before: Difference, after: Difference) -> bool:
    def adjoins(first: int | None, second: int | None) -> bool:
        return second == (None if first is None else first + before.length)

    sides = (before.source is None) == (after.source is None) and (before.target is None) == (after.target is None)
    return (
        before.kind == after.kind
        and sides
        and adjoins(before.source, after.source)
        and adjoins(before.target, after.target)
    )


def merged(explained: Iterable[Explained]) -> tuple[Explained, ...]:
    """Merge explanations that have the same cause, the same side and consecutive offsets, and sort the result."""
    found: list[Explained] = []
    for each in sorted(explained):
        last = found[-1] if found else None
        if last is not None and (last.cause, last.side, last.end) == (each.cause, each.side, each.start):
            found[-1] = msgspec.structs.replace(last, end=each.end)
        else:
            found.append(each)
    return tuple(found)
