"""Why the target lacks source records when the offset map is rebuilt: not all of them are copied, and of a compacted
target it is not always known whether its cleaner has removed them."""

from dataclasses import dataclass

import msgspec
import pytest

from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import AnyFact, SourceRun, TargetRun, Verdict, VerdictGiven
from mirrord.ledger.facts.quarantine import Quarantined
from mirrord.ledger.facts.seeks import LaneSought, SeekDone
from mirrord.model.runs import Run
from mirrord.replication.lane.signals import Append, Halted
from tests.unit.replication.lane.test_rebuilding import LANE, Play

REFUSED = Quarantined(LANE, 1, 12, 14, 87, "refused", skip=True)
SOUGHT = (LaneSought(LANE, 12, 14, 0, Origin("ada@host", "broken", 0)), SeekDone(LANE, 1, 12, 14))
REJECTED = SourceRun(LANE, 1, (Run(12, 14),), (Verdict(12, 14, "rejected"),))
FILTERED = SourceRun(LANE, 1, (Run(12, 14),), (Verdict(12, 14, "filtered"),))


@dataclass
class Rebuilt:
    play: Play
    lines: list[str]
    """Why the lane stays halted."""
    given: list[Verdict]

    def offsets(self) -> list[int | None]:
        """The source offsets of ordinals 10 to 18."""
        return [self.play.record.source_runs.offset_of(ordinal) for ordinal in range(10, 19)]


def rebuilt(
    *facts: AnyFact, source: tuple[tuple[int, int], ...] = ((0, 3),), compacts: bool, has_others: bool = True
) -> Rebuilt:
    """The source has records at the offsets 12 and 13, and the target lacks them. If `has_others` is set, another
    client has written their keys to the target. `source` contains the leader epochs of the source, by offset. According
    to the ledger, the records up to then are of epoch 3."""
    play = Play.opened()
    play.fold(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 3),)), TargetRun(LANE, 1, 0, 0, 1))
    for each in facts:
        assert play.fold(each) == (True,)
    play.bind(play.differ())
    play.sandwich(16)
    answer = play.relocated()
    assert answer.located is not None
    located = msgspec.structs.replace(answer.located, epochs=source)
    unclear = ((12, 14),) if has_others else ()
    effects = play.tell(msgspec.structs.replace(answer, located=located, compacts=compacts, unclear=unclear))
    recorded = [fact for each in effects if isinstance(each, Append) for fact in each.facts]
    play.bind(effects)
    lines = [each.line for each in effects if isinstance(each, Halted)]
    return Rebuilt(play, lines, [each for fact in recorded if isinstance(fact, VerdictGiven) for each in fact.verdicts])


@pytest.mark.parametrize("compacts", [False, True])
@pytest.mark.parametrize(("facts", "reason"), [((REFUSED,), "rejected"), (SOUGHT, "skipped")])
def test_records_that_a_decision_skips_are_not_missing(
    facts: tuple[AnyFact, ...], reason: str, *, compacts: bool
) -> None:
    """NEEDLESS HALT. Nobody will append them. The holder that was to record a run after them ended before it did."""
    found = rebuilt(*facts, compacts=compacts)
    assert found.lines == []
    assert found.offsets() == [10, 11, 14, 14, 15, 16, 17, 18, 19]
    assert [(each.start, each.end) for each in found.given if each.reason == reason] == [(12, 14)]
    assert found.play.record.verdicts.counts[reason] == 2  # type: ignore[index]


@pytest.mark.parametrize("compacts", [False, True])
@pytest.mark.parametrize(
    "facts", [(REFUSED, SourceRun(LANE, 1, (Run(12, 14),), (Verdict(12, 14, "rejected"),))), (FILTERED,)]
)
def test_a_decision_that_the_former_map_followed_keeps_its_verdict(
    facts: tuple[AnyFact, ...], *, compacts: bool
) -> None:
    """The flow need not have a filter any more."""
    found = rebuilt(*facts, compacts=compacts)
    assert (found.lines, found.offsets()) == ([], [10, 11, 14, 14, 15, 16, 17, 18, 19])
    assert [each.reason for each in found.given] == ["doubled"]
    assert sum(found.play.record.verdicts.counts.values()) == 2 + 1


def test_whatever_a_filter_excludes_does_not_halt_the_lane() -> None:
    """NEEDLESS HALT. The verdict on the excluded records was no longer among the newest ones."""
    play = Play.opened()
    runs = (Run(0, 0), Run(12, 14))
    play.fold(SourceRun(LANE, 1, runs, (), ((0, 3),)), TargetRun(LANE, 1, 0, 0, 1))
    play.bind(play.differ())
    play.sandwich(16)
    play.lane.has_policies = True
    play.lane.acknowledged = ((15, 1),)
    answer = play.relocated()
    assert answer.located is not None
    located = msgspec.structs.replace(answer.located, epochs=((0, 3),))
    effects = play.tell(msgspec.structs.replace(answer, located=located, compacts=True, unclear=((12, 14),)))
    lines = [each.line for each in effects if isinstance(each, Halted)]
    assert not any("another client" in line for line in lines), lines


@pytest.mark.parametrize("compacts", [False, True])
def test_a_record_in_the_place_of_a_refused_one_is_missing(*, compacts: bool) -> None:
    """LOSS. The source has lost one of the refused records, and has another one at its offset. It was never produced:
    the ledger does not have its epoch."""
    found = rebuilt(msgspec.structs.replace(REFUSED, epoch=3), source=((0, 3), (13, 4)), compacts=compacts)
    assert (found.lines, found.offsets()) == ([], [10, 11, 14, 14, 15, 16, 13, 17, 18])
    assert Verdict(12, 13, "rejected") in found.given


@pytest.mark.parametrize("compacts", [False, True])
@pytest.mark.parametrize(
    ("epochs", "source", "copied"),
    [
        ((), ((0, 3), (13, 4)), [13]),
        (((12, 4),), ((0, 3), (13, 4)), []),
        (((12, 4),), ((0, 3), (13, 5)), [13]),
        (((12, 4),), ((0, 3), (12, 5)), [12, 13]),
        (((12, -1),), ((0, 3), (13, 5)), []),
        ((), ((0, 3), (13, -1)), []),
    ],
)
def test_a_record_in_the_place_of_a_filtered_one_is_missing(
    epochs: tuple[tuple[int, int], ...], source: tuple[tuple[int, int], ...], copied: list[int], *, compacts: bool
) -> None:
    """LOSS. The source has lost a filtered record, and has another one at its offset. The record before the filtered
    ones has epoch 3. The epoch of the one after them is 3 as well, or the ledger has another one."""
    found = rebuilt(msgspec.structs.replace(FILTERED, epochs=epochs), source=source, compacts=compacts)
    assert found.lines == []
    assert found.offsets() == [10, 11, 14, 14, 15, 16, *copied, 17, 18, 19][:9]


@pytest.mark.parametrize(
    ("source", "start"),
    [(((0, 3),), 12), (((0, 3), (13, 4)), 12), (((0, 2), (12, 4), (13, 3)), 13), (((0, 3), (12, 2)), 12), ((), 12)],
)
def test_a_compacted_target_may_have_had_records_of_a_recorded_epoch(
    source: tuple[tuple[int, int], ...], start: int
) -> None:
    """STALE VALUE. Copied again, they could follow newer records of their keys."""
    (line,) = rebuilt(source=source, compacts=True).lines
    assert f"lacks the records of source offsets [{start}, " in line


@pytest.mark.parametrize(("source", "copied"), [(((0, 3),), None), (((0, 3), (12, 4)), [12, 13])])
def test_a_record_in_the_place_of_one_that_gave_way_to_a_newer_one_is_missing(
    source: tuple[tuple[int, int], ...], copied: list[int] | None
) -> None:
    """NEEDLESS HALT. The target had lost the records at the offsets 12 and 13, which were not copied again, because
    another client had written newer ones. The source has lost them as well, and has others there."""
    given = VerdictGiven(LANE, 1, (Verdict(12, 14, "compacted"),), epochs=((12, 14, 3),))
    found = rebuilt(SourceRun(LANE, 1, (Run(12, 14),)), given, source=source, compacts=True)
    assert bool(found.lines) == (copied is None)
    if copied is not None:
        assert found.offsets() == [10, 11, 14, 14, 15, 16, *copied, 17]


def test_records_whose_keys_nobody_has_written_are_copied() -> None:
    """NEEDLESS HALT. If the cleaner had removed them, the target would have newer records with their keys."""
    found = rebuilt(compacts=True, has_others=False)
    assert (found.lines, found.offsets()) == ([], [10, 11, 14, 14, 15, 16, 12, 13, 17])


def test_a_compacted_target_never_had_records_of_a_later_epoch() -> None:
    """NEEDLESS HALT. An epoch is recorded before its first record is produced."""
    found = rebuilt(source=((0, 3), (12, 4)), compacts=True)
    assert (found.lines, found.offsets()) == ([], [10, 11, 14, 14, 15, 16, 12, 13, 17])
