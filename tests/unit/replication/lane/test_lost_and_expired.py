"""A compacted target loses acknowledged records, and the source deletes or cleans some of them before they are copied
again. The records after these get lower ordinals, and are looked up again if the target loses more."""

import pytest

from mirrord.ledger.facts.core import HoleFound, MapRebuilt, Reason, SourceRun, TargetRun, Verdict, VerdictGiven
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AskDivergence,
    Chunk,
    DivergenceAnswer,
    Effects,
    FetchFrom,
    OwnBatch,
    TargetMoved,
)
from mirrord.replication.lane.target.acknowledged_records import AcknowledgedPart, assigned_again
from mirrord.replication.lane.target.evidence import known_until
from mirrord.replication.lane.target.superseded_records import AskSuperseded, SupersededAnswer
from tests.unit.replication.lane.target.test_position_rewind_failed import taken_again
from tests.unit.replication.lane.test_eighth_faults import again, bound, chunk, judged, lost_five_to_nine, read
from tests.unit.replication.lane.test_fourth_faults import offsets, retake
from tests.unit.replication.lane.test_lost_again import told
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import Faulty, one, opened

OUT_OF_RANGE = 1


def expired(play: Faulty, effects: Effects, start: int) -> Effects:
    """The source has deleted the records below this offset."""
    question = one(effects, FetchFrom).question
    return play.tell(Chunk(question, OUT_OF_RANGE, 20, 20, start, (), bytearray(), 0, 0))


def looked_up(play: Faulty) -> AskSuperseded:
    """The target loses its last records again, and other clients have written since."""
    play.tell(TargetMoved(4))
    own, others = (OwnBatch(1, 5, 0, 0, 1),), ((0, 1), (6, 8))
    return one(read(play, play.ask_target(8, epoch=4), (3, 6), own=own, others=others), AskSuperseded)


def fetched(play: Faulty, effects: Effects, *batches: tuple[int, int, int]) -> None:
    """The lane reads these batches (first offset, last offset, epoch), after the source has confirmed that the records
    before them are its own."""
    asked = one(play.tell(chunk(one(effects, FetchFrom).question, *batches)), AskDivergence)
    told(play, play.tell(DivergenceAnswer(asked.question, 0, asked.epoch, 20)))


def shifted(epochs: tuple[tuple[int, int], ...] = ((0, 0),)) -> tuple[Faulty, Effects]:
    """Ordinals 5 to 9 are lost, and the source has deleted offsets 5 and 6: offset 7 follows as ordinal 5."""
    play, effects = lost_five_to_nine(epochs)
    effects = expired(play, effects, 7)
    effects = bound(play, effects)
    assert offsets(play, 5, 7) == [7, 8, 9]
    return play, effects


def test_records_after_deleted_ones_are_still_acknowledged() -> None:
    """STALE VALUE. Another client writes a newer record of the key of offset 8."""
    play, _ = shifted()
    asked = looked_up(play)
    assert [(each.kind, each.first, each.last, each.leader_epoch) for each in asked.missing] == [("lost", 5, 7, 1)]
    answer = judged(asked, {6: b"key"}, (7, b"key", 4, -1))
    assert again(answer) == {5, 7}
    told(play, play.tell(answer))
    assert play.lane.phase is Phase.COPYING
    assert offsets(play, 5, 7) == [7, 9, 10]


def test_records_after_each_gap_of_the_source_are_still_acknowledged() -> None:
    """STALE VALUE. The source's cleaner removes offset 8, too. Offset 10 was never copied."""
    play, effects = shifted()
    fetched(play, effects, (7, 7, 0), (9, 11, 0))
    assert offsets(play, 5, 7) == [7, 9, 10]
    assert [(each.first, each.last) for each in looked_up(play).missing] == [(5, 6)]


def test_saved_positions_are_revoked_once() -> None:
    play, effects = shifted()
    fetched(play, effects, (7, 7, 0), (9, 11, 0))
    assert [rewound.first for _, rewound in play.record.rewinds] == [5]


def test_saved_positions_are_revoked_after_a_plan_that_changed_no_ordinal() -> None:
    """LOSS. A plan copies all lost records again, under their former ordinals, so no saved position is too high. Then
    the source deletes them, and offset 12 follows as ordinal 5. If the next holder trusted a position above ordinal 9,
    it would take the records from offset 12 on for records that the target has lost."""
    play = opened(SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 0),)), TargetRun(LANE, 1, 0, 1, 1))
    retake(play, 10, 11, 10, epoch=1)
    asked = one(read(play, play.ask_target(7, epoch=3), (1, 6)), AskSuperseded)
    effects = bound(play, play.tell(SupersededAnswer(asked.question, 0, ((5, 6), (7, 9)))))
    assert offsets(play, 5, 9) == [5, 6, 7, 8, 9]
    assert play.record.rewinds == ()
    bound(play, expired(play, effects, 12))
    assert offsets(play, 5, 6) == [12, 13]
    assert [(rewound.first, rewound.ordinal) for _, rewound in play.record.rewinds] == [(5, 5)]


@pytest.mark.parametrize("reason", ["unexplained", "compacted"])
def test_a_plan_keeps_the_verdicts_on_records_that_are_unknown(reason: Reason) -> None:
    """FALSE COUNT. A rebuilt map does not know the records of ordinals 5 and 6, which the source has deleted. The
    target log loses them as well, and the plan to copy the lost records again supersedes the hole."""
    facts = HoleFound(LANE, 1, 5, 6, 7, 7), MapRebuilt(LANE, 1, 5, 6, 7), SourceRun(LANE, 1, (Run(7, 7),))
    given = VerdictGiven(LANE, 1, (Verdict(5, 7, reason),))
    begun = SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 0),)), TargetRun(LANE, 1, 0, 1, 1)
    play = opened(*begun, *facts, given)
    retake(play, 10, 11, 10, epoch=1)
    asked = one(read(play, play.ask_target(6, epoch=3), (1, 5), own=(OwnBatch(1, 4, 0, 0, 1),)), AskSuperseded)
    assert [(each.first, each.last) for each in asked.missing] == [(4, 4), (7, 9)]
    bound(play, play.tell(SupersededAnswer(asked.question, 0, ((4, 4), (8, 9)))))
    assert offsets(play, 4, 7) == [4, 8, 9, 10]
    assert play.record.verdicts.counts == (
        {"compacted": 1, "unexplained": 2} if reason == "unexplained" else {"compacted": 3}
    )


def test_saved_positions_are_revoked_again_while_the_first_fact_is_in_doubt() -> None:
    """LOSS. The ledger may lose the first fact and take the second one."""
    play, effects = lost_five_to_nine(((0, 0),))
    fetch = one(expired(play, effects, 7), FetchFrom)
    asked = one(play.tell(chunk(fetch.question, (7, 7, 0), (9, 11, 0))), AskDivergence)
    append = one(play.tell(DivergenceAnswer(asked.question, 0, asked.epoch, 20)), Append)
    (run,) = [fact for fact in append.facts if isinstance(fact, SourceRun)]
    assert run.runs == (Run(5, 7), Run(6, 9))
    assert run.rewound is not None
    assert (run.rewound.first, run.rewound.ordinal) == (5, 5)


def test_records_of_a_later_epoch_at_the_same_offsets_were_not_acknowledged() -> None:
    """LOSS. The source has other records from offset 8 on, which were never copied."""
    play, effects = shifted()
    fetched(play, effects, (7, 7, 0), (8, 9, 2))
    assert [(each.first, each.last) for each in looked_up(play).missing] == [(5, 5)]


def test_records_of_an_unknown_epoch_may_be_others() -> None:
    """LOSS. The ledger does not record with which epoch of the source the lost records were copied."""
    play, _ = shifted(epochs=())
    assert known_until(play.lane) == 5


def test_acknowledgements_return_if_the_ledger_did_not_take_the_other_ordinals() -> None:
    """STALE VALUE. Ordinals 5 to 9 still belong to the lost records."""
    play, effects = lost_five_to_nine(((0, 0),))
    (append, *_) = [each for each in expired(play, effects, 7) if isinstance(each, Append)]
    assert known_until(play.lane) == 8
    taken_again(play, append)
    assert known_until(play.lane) == 10


@pytest.mark.parametrize(
    ("runs", "found"),
    [
        ([Run(5, 7)], [(5, 8, 1, 0)]),
        ([Run(4, 6)], []),
        ([Run(5, 8), Run(7, 12)], [(5, 7, 1, 0), (7, 9, 3, 2), (9, 11, 4, 2)]),
        ([Run(5, 8), Run(6, 12), Run(7, 20)], [(5, 6, 1, 0), (6, 7, 3, 2)]),
        ([Run(5, 12)], [(5, 7, 3, 2), (7, 9, 4, 2)]),
        ([Run(5, 13), Run(6, 14)], [(5, 6, 3, 2), (6, 8, 4, 2)]),
        ([Run(5, 13)], [(5, 6, 3, 2), (6, 8, 4, 2)]),
        ([Run(5, 16)], []),
    ],
)
def test_ordinals_of_acknowledged_records_end_before_the_first_other_record(
    runs: list[Run], found: list[tuple[int, int, int, int]]
) -> None:
    records = [AcknowledgedPart(7, 10, 1, 0), AcknowledgedPart(12, 14, 3, 2), AcknowledgedPart(14, 16, 4, 2)]
    assert assigned_again(records, runs) == found
