"""The second path: batches that cannot take the raw path are rebuilt record by record."""

from bisect import bisect_right
from collections.abc import Callable

import msgspec

from mirrord.ledger.facts.core import Verdict
from mirrord.replication.lane.limits import NEVER


class RebuiltBatch(msgspec.Struct, frozen=True):
    """A batch built on the second path: its new bytes, and the source offsets of its records."""

    data: bytearray
    pieces: tuple[tuple[int, int], ...]
    """Ranges (offset, length) of source offsets. Empty if the policies keep none of the records; in that case, `data`
    is also empty."""
    newest_ms: int
    left_out: tuple[Verdict, ...] = ()
    """Verdicts on records that a policy did not keep, in ascending order. Their offsets do not overlap with
    `pieces`."""
    is_cut: bool = False
    """Whether the batch contains only some of the requested records because it would otherwise have been too large."""


class Decided(msgspec.Struct, frozen=True):
    """A filter's decision on source offsets below `end`: the offsets in `pieces` are copied, and no others.

    The ledger already contains the decision and could no longer record a different one, so the filter is not called
    again.
    """

    pieces: tuple[tuple[int, int], ...]
    """Ranges (offset, length) in ascending order."""
    end: int
    open: tuple[tuple[int, int], ...] = ()
    """Offsets [start, end) for which the ledger has no decision."""

    def keeps(self, offset: int) -> bool | None:
        """Return whether the record at an offset is copied, or None if no decision has been made."""
        if offset >= self.end:
            return None
        at = bisect_right(self.pieces, (offset, NEVER)) - 1
        if at >= 0 and offset < sum(self.pieces[at]):
            return True
        return None if any(start <= offset < end for start, end in self.open) else False


ALL = Decided(((0, NEVER),), NEVER)
"""The decision for records that are copied again: they have already been copied once, so all of them are kept."""
NOT_YET = Decided((), 0)


class RebuildRequest(msgspec.Struct, frozen=True):
    """A request to rebuild records of the batch buffer[start:end]: at most `most` records, with source offsets in
    [`from_offset`, `until_offset`)."""

    buffer: bytearray
    start: int
    end: int
    from_offset: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    most: int = 1 << 31
    until_offset: int = 1 << 62
    decided: Decided = NOT_YET
    refused_codecs: frozenset[int] = frozenset()
    """Codecs that the new batch must not use."""

    def codec(self, own: int) -> int:
        """Return the codec with which to compress the new batch. `own` is the codec of the source batch."""
        return next(each for each in (own, *INSTEAD) if each not in self.refused_codecs)


INSTEAD = (3, 1, 0)
"""Replacements for a codec that the target does not accept, in order of preference: lz4, which is the cheapest; gzip,
which every Kafka version supports; and no compression. A target never refuses an uncompressed batch because of its
codec (see `target.refused_retry`)."""


class PolicyRefused(Exception):
    """Raised when one of the flow's policies fails for a record. The message says why, and `offset` is the record's
    source offset."""

    def __init__(self, line: str, offset: int) -> None:
        super().__init__(line)
        self.offset = offset


class Postponed(Exception):
    """Raised when a batch is so large that it is rebuilt later, while other work continues. `work` is what remains to
    be done. The lane passes it on with the effect `RebuildLater` and requests the same again afterwards. If `work` is
    None, only some time has to pass."""

    def __init__(self, work: object) -> None:
        super().__init__()
        self.work = work


Rebuilder = Callable[[RebuildRequest], RebuiltBatch | None]
"""Rebuilds a batch record by record, or returns None if the request selects no record. Raises ValueError if the batch
cannot be read, PolicyRefused if a policy fails for a record, and Postponed."""
