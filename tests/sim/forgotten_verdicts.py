"""The verdicts that the ledger's state counts, although it has forgotten their ranges.

The state keeps the ranges of the newest verdicts only. If a filter later decides differently on a record, or if a
record is copied after all, the state cannot subtract a verdict whose range it has forgotten
(docs/explanation/gaps.md, "Open cases"). The ledger itself has all verdicts.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from mirrord.ledger.facts.core import AnyFact, Reason, SourceRun, Verdict, VerdictGiven
from mirrord.ledger.gaps import Gap
from mirrord.ledger.state import LaneState

MOST_RANGES = 128
"""Number of ranges that the state keeps."""

_Judged = tuple[int, Reason]
"""A source offset, and a reason why its record is not copied."""


class ForgottenVerdicts:
    """Counts the verdicts whose ranges the state has forgotten."""

    def __init__(self) -> None:
        self._counts: Counter[_Judged] = Counter()

    def kept_by(self, lane: LaneState | None) -> Sequence[Verdict]:
        """Return the ranges that the state keeps."""
        return tuple(lane.verdicts.recent) if lane is not None else ()

    def note(
        self, kept: Sequence[Verdict], facts: Iterable[AnyFact], lane: LaneState | None, gaps: Iterable[Gap]
    ) -> None:
        """An entry with these facts has been folded. `kept` are the ranges that the state kept before, and `gaps` are
        all verdicts that now apply according to the ledger. If the state keeps as many ranges as it can, it has
        forgotten those of them that still apply and that it does not keep."""
        if len(now := self.kept_by(lane)) < MOST_RANGES or now == kept:
            return
        given = (each for fact in facts if isinstance(fact, SourceRun | VerdictGiven) for each in fact.verdicts)
        self._counts.update((_judged(kept) | _judged(given)) & _judged(gaps) - _judged(now))

    def counted(self, applies: Mapping[int, Reason], lane: LaneState) -> Counter[Reason]:
        """Return the counts that the state must have. `applies` are the verdicts that apply. One that the state has
        forgotten counts even if it no longer applies. If it was recorded again, it counts twice."""
        counts = Counter[Reason](reason for offset, reason in applies.items() if not self._counts[offset, reason])
        counts.update(reason for _, reason in self._counts.elements())
        counts.update(reason for _, reason in _judged(lane.verdicts.recent) & self._counts.keys())
        return counts


def _judged(verdicts: Iterable[Verdict | Gap]) -> set[_Judged]:
    return {(offset, each.reason) for each in verdicts for offset in range(each.start, each.end)}
