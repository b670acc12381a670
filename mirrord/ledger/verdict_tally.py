"""Counts the source offsets of a lane that were not copied, by reason."""

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise
from typing import get_args

import msgspec

from mirrord.ledger.decided_verdicts import DECIDED, NOT_COPIED
from mirrord.ledger.facts.core import Reason, Verdict
from mirrord.model.intervals import Interval, joined, uncovered, within

RECENT_VERDICTS = 128
REST_VERDICTS = 4
"""When no further verdicts are expected soon, the kept ranges are stored in encoded form if there are more than this
number. Fewer ranges take less memory as they are."""
_OVERRULED: frozenset[Reason] = frozenset(get_args(Reason)) - {"truncated"}
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(tuple[Verdict, ...])


class VerdictTally:
    """Counts the source offsets with each verdict and keeps the exact ranges of the newest verdicts. The ledger holds
    all verdicts.

    A newer verdict replaces older ones: where it overlaps one of the kept ranges, the older verdict no longer counts.
    This happens, for example, when a replicator takes over a lane and records some verdicts again. If a record was not
    copied because of a decision, such as that of a filter, and is copied later, the verdict on it no longer counts
    either. A `truncated` verdict always counts, because the source uses its offsets again for different records.
    """

    __slots__ = ("_recent", "beyond", "counts", "decided")

    def __init__(self, counts: dict[Reason, int] | None = None, recent: Iterable[Verdict] = ()) -> None:
        """`recent` contains the kept ranges, the newest last."""
        self.counts: dict[Reason, int] = {} if counts is None else counts
        self._recent: list[Verdict] | tuple[Verdict, ...] | bytes = tuple(recent)
        self.beyond = max((verdict.end for verdict in self._recent), default=0)
        """No range in `recent` extends beyond this offset. A verdict on higher offsets overlaps no range, so no search
        is needed. This saves time when a filter produces thousands of consecutive verdicts."""
        self.decided = _decided(self._recent)
        """No range in `recent` whose verdict records a decision, for example that of a filter, extends beyond this
        offset. These are the verdicts with a reason in `DECIDED`."""

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, VerdictTally) and self.counts == other.counts and list(self.recent) == list(other.recent)
        )

    def __hash__(self) -> int:
        raise TypeError("a tally grows, so it is no key")

    def __repr__(self) -> str:
        return f"VerdictTally({self.counts}, {list(self.recent)})"

    @property
    def recent(self) -> Sequence[Verdict]:
        """The kept ranges, the newest last."""
        return _decoder.decode(self._recent) if isinstance(self._recent, bytes) else self._recent

    def rest(self) -> None:
        """Reduce the memory of a tally that is not expected to change soon: keep the ranges in encoded form, if this
        saves memory. They are decoded each time they are read."""
        if not isinstance(self._recent, bytes):
            several = len(self._recent) > REST_VERDICTS
            self._recent = _encoder.encode(self._recent) if several else tuple(self._recent)

    def add(self, verdicts: Iterable[Verdict]) -> None:
        """Add verdicts to the tally."""
        given = [verdict for verdict in verdicts if verdict.start < verdict.end]
        if any(after.start < before.end for before, after in pairwise(given)):
            for verdict in given:  # a later verdict replaces an earlier one
                self._add((verdict,))
        elif given:
            self._add(given)
        if given:
            del self._list()[:-RECENT_VERDICTS]

    def _add(self, verdicts: Sequence[Verdict]) -> None:
        """Add verdicts that are in ascending order and do not overlap. The older verdicts are searched only once,
        because an entry may contain hundreds of thousands of verdicts."""
        if verdicts and verdicts[0].start < self.beyond:
            self._take_back([(verdict.start, verdict.end) for verdict in verdicts], _OVERRULED)
        for verdict in verdicts:
            self.counts[verdict.reason] = self.counts.get(verdict.reason, 0) + verdict.end - verdict.start
            if verdict.reason in DECIDED:
                self.decided = max(self.decided, verdict.end)
            self.beyond = max(self.beyond, verdict.end)
        self._list().extend(verdicts)

    def _list(self) -> list[Verdict]:
        """Return the kept ranges as a list, which the caller may change."""
        if not isinstance(self._recent, list):
            self._recent = list(self.recent)
        return self._recent

    def invalidate_decided(self, ranges: Sequence[Interval]) -> None:
        """Withdraw those verdicts on these source offsets that record a decision not to copy a record: `filtered`,
        `rejected` and `skipped`. Keep all other verdicts."""
        self._take_back(ranges, DECIDED)
        self.decided = _decided(self.recent)

    def explained(self, ranges: Sequence[Interval]) -> None:
        """Withdraw the verdict "unexplained" on these source offsets, because other facts now give the reason."""
        self._take_back(ranges, ("unexplained",))

    def copied(self, ranges: Sequence[Interval]) -> None:
        """Withdraw the verdicts that give a reason why these source offsets are not copied, because a rebuilt map has
        shown that they are copied."""
        self._take_back(ranges, NOT_COPIED)

    def _take_back(self, ranges: Iterable[Interval], reasons: Collection[Reason]) -> None:
        taken, recent = joined(ranges), self.recent
        if not taken or not any(old.reason in reasons and any(within((old.start, old.end), taken)) for old in recent):
            return
        kept: list[Verdict] = []
        for old in recent:
            if old.reason not in reasons:
                kept.append(old)
                continue
            whole = (old.start, old.end)
            pieces = [Verdict(*piece, old.reason) for piece in uncovered(whole, within(whole, taken))]
            self.counts[old.reason] -= old.end - old.start - sum(piece.end - piece.start for piece in pieces)
            kept.extend(pieces)
        self._recent = kept


def _decided(recent: Iterable[Verdict]) -> int:
    return max((verdict.end for verdict in recent if verdict.reason in DECIDED), default=0)
