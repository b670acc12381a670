"""The unit that an audit compares: a range of a lane, with the part of the offset map and the verdicts that apply to
this range."""

from bisect import bisect_right

import msgspec

from mirrord.ledger.facts.core import Verdict
from mirrord.model.names import LaneId


class MapPiece(msgspec.Struct, frozen=True, array_like=True):
    """A part of the offset map: `length` records with consecutive ordinals, consecutive source offsets and consecutive
    target offsets."""

    ordinal: int
    source: int
    target: int
    length: int
    truncated: bool = False
    """Whether the source lost these records after they were copied. The source then reuses their offsets for other
    records."""


class AuditRange(msgspec.Struct, frozen=True, kw_only=True):
    """The unit of comparison: a range of ordinals of a lane, with the surrounding source offsets and target offsets.

    On both the source and the target, the ranges of a lane are contiguous and do not overlap. Each offset is therefore
    examined exactly once. If a part of the map is truncated, the source has lost the records of that part and reuses
    their offsets for other records. Only the target offsets of such a part belong to the range. A range without any
    part of the map covers only source offsets, and the ledger has verdicts on all of them.
    """

    lane: LaneId
    producer_id: int
    first: int
    end: int
    """The ordinal after the last one in the range."""
    source_start: int
    source_end: int
    target_start: int
    target_end: int
    pieces: tuple[MapPiece, ...]
    """The parts of the offset map, in the order of their ordinals. An ordinal that is not in any of the parts has no
    record, because the target refused its batch."""
    verdicts: tuple[Verdict, ...] = ()
    """Verdicts on source offsets outside the parts of the map, in the order of the offsets. Each offset has at most one
    of these verdicts."""
    forgotten_below: int = 0
    """A source offset. Before the ledger was trimmed, it may have held more verdicts on offsets below this one. Such a
    verdict might have explained why a record was not copied. The value is 0 if the ledger still holds all verdicts."""
    brought_back: tuple[int, ...] = ()
    """Target offsets of the records that were skipped and later appended by `mirrord quarantine replay`, in ascending
    order."""

    def verdict_at(self, offset: int) -> Verdict | None:
        """Return the verdict on a source offset, or None if there is none."""
        at = bisect_right(self.verdicts, offset, key=_start) - 1
        return self.verdicts[at] if at >= 0 and offset < self.verdicts[at].end else None


def _start(verdict: Verdict) -> int:
    return verdict.start
