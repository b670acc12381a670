"""The unit of comparison of an audit: a range of a lane, with the part of the offset map and the verdicts that apply to
it."""

from bisect import bisect_right

import msgspec

from mirrord.ledger.facts.core import Verdict
from mirrord.model.names import LaneId


class MapPiece(msgspec.Struct, frozen=True, array_like=True):
    """A part of the offset map: `length` records with consecutive ordinals and with consecutive offsets on both
    sides."""

    ordinal: int
    source: int
    target: int
    length: int
    truncated: bool = False
    """Whether the source lost these records after they were copied, and uses their offsets again."""


class AuditRange(msgspec.Struct, frozen=True, kw_only=True):
    """The unit of comparison: ordinals of a lane, with the offsets around them on both sides.

    The ranges of a lane follow each other without gap or overlap on both sides, so each offset is examined once.
    Truncated parts of the map belong to the range only at the target. A range without a part of the map covers only
    source offsets, and the ledger has verdicts on all of them.
    """

    lane: LaneId
    producer_id: int
    first: int
    end: int
    """The ordinal after the last one of the range."""
    source_start: int
    source_end: int
    target_start: int
    target_end: int
    pieces: tuple[MapPiece, ...]
    """The parts of the offset map, in the order of their ordinals. Ordinals that are in none of them have no record,
    because the target refused their batch."""
    verdicts: tuple[Verdict, ...] = ()
    """Verdicts on source offsets that are in none of the parts, in the order of the offsets. No offset has two of
    them."""
    forgotten_below: int = 0
    """The source offset below which the ledger may have held more verdicts before it was trimmed; 0 if it holds all of
    them. Records below it that were not copied may therefore have been excluded on purpose."""
    brought_back: tuple[int, ...] = ()
    """Target offsets of records that were skipped and appended later, in ascending order."""

    def verdict_at(self, offset: int) -> Verdict | None:
        """Return the verdict on a source offset."""
        at = bisect_right(self.verdicts, offset, key=_start) - 1
        return self.verdicts[at] if at >= 0 and offset < self.verdicts[at].end else None


def _start(verdict: Verdict) -> int:
    return verdict.start
