"""The map is rebuilt while only a lookup shows that the last ordinals were in a compacted target log."""

import msgspec
import pytest

from mirrord.ledger.facts.core import Displaced, SourceRun, TargetRun
from mirrord.model.runs import Run
from mirrord.replication.lane import difference
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    AskCheck,
    AskRebuild,
    AskScan,
    CheckAnswer,
    Effects,
    Halted,
    OwnBatch,
    RebuildAnswer,
    TargetMoved,
)
from mirrord.replication.lane.state import ResumePosition
from mirrord.replication.lane.target.relocation_result import Located
from mirrord.replication.lane.target.superseded_records import AskSuperseded, SupersededAnswer
from tests.unit.replication.lane.target.test_out_of_order import refused, resumed
from tests.unit.replication.lane.test_eighth_faults import read
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import Faulty, one, opened

OWN = (OwnBatch(0, 5, 0, 0, 1),)
FOREIGN = ((8, 12),)
"""The offsets 5 to 7 are empty."""
BEGUN = (SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 0),), regiven=True), TargetRun(LANE, 1, 0, 0, 1))
DELETED = Located((), (), (), 5, open=((0, 5),), source_start=5)
"""The source has deleted the records of ordinals 0 to 4, and nothing follows them before offset 5."""


def compared() -> tuple[Faulty, AskCheck]:
    """A lookup finds that ordinals 5 and 6 were appended. All ordinals were assigned twice, so they are compared."""
    play = opened(*BEGUN)
    play.take(None, cleanly=False)
    asked = one(read(play, play.ask_target(12), (1, 12), own=OWN, others=FOREIGN), AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("last", 5, 7)]
    effects = play.tell(SupersededAnswer(asked.question, 0, (), 7))
    play.bind_all(effects)
    check = one(effects, AskCheck)
    assert (check.first, check.last) == (0, 6)
    return play, check


def expired() -> tuple[Faulty, AskRebuild]:
    """The comparison shows that the source has deleted the records of ordinals 0 to 4."""
    play, check = compared()
    gone = CheckAnswer(check.question, 0, 0, 6, "unverifiable", gone=((0, 5),))
    play.bind_all(play.tell(gone))
    return play, one(read(play, play.ask_target(12), (1, 12), own=OWN, others=FOREIGN), AskRebuild)


def rebuilt(play: Faulty, asked: AskRebuild, own: tuple[OwnBatch, ...], located: Located) -> Effects:
    effects = play.tell(RebuildAnswer(asked.question, 0, own, located, compacts=True))
    play.bind_all(effects)
    return effects


def test_only_ordinals_in_the_log_count_as_different() -> None:
    play, check = compared()
    (halted,) = [
        each
        for each in play.tell(CheckAnswer(check.question, 0, 0, 6, "different", "ordinal 2"))
        if isinstance(each, Halted)
    ]
    assert halted.line == "orders-0: target and source differ at ordinals 0 to 4: ordinal 2"
    assert play.lane.comparison.differs is not None
    assert (play.lane.comparison.differs.first, play.lane.comparison.differs.last) == (0, 4)


def test_they_are_looked_up_again_in_the_rebuilt_map() -> None:
    """Halting would be unnecessary. If the records of these ordinals were copied without another lookup, they could be
    appended after newer records with the same keys."""
    play, asked = expired()
    rebuilt(play, asked, OWN, DELETED)
    assert play.record.halted is None
    assert play.lane.resume_position == ResumePosition(5, 5, 1)
    again = one(read(play, play.ask_target(12), (1, 12), own=OWN, others=FOREIGN), AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in again.missing] == [("last", 5, 7)]
    effects = play.tell(SupersededAnswer(again.question, 0, (), 7))
    play.bind_all(effects)
    assert play.record.displaced == (Displaced(5, 6, 5, 1, by_look_up=True),)
    check = one(effects, AskCheck)
    assert (check.first, check.last) == (5, 6)
    play.bind_all(play.tell(CheckAnswer(check.question, 0, 5, 6, "equal")))
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 7, 7)


def test_they_are_copied_if_nothing_newer_is_left() -> None:
    play, asked = expired()
    rebuilt(play, asked, OWN, DELETED)
    again = one(read(play, play.ask_target(12), (1, 12), own=OWN, others=FOREIGN), AskSuperseded)
    play.bind_all(play.tell(SupersededAnswer(again.question, 0)))
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 5, 5)


def test_they_are_looked_up_again_even_if_the_target_has_refused_the_next_ordinal() -> None:
    """STALE VALUE. A lane does not look for records after its last batch if the broker remembers the producer, as the
    refusal shows. Without a lookup, the records of ordinals 5 and 6 would be appended after newer ones."""
    play, check = compared()
    effects = play.tell(CheckAnswer(check.question, 0, 0, 6, "equal"))
    refused(play, resumed(play, effects))
    resumed(play, read(play, play.ask_target(12), (1, 12), own=OWN, others=FOREIGN))
    difference.differ(play.lane, play.now, CheckAnswer(-1, 0, 0, 4, "different"))
    play.bind_all(play.tell(TargetMoved(1)))  # the epoch is not new: the lane only begins to rebuild the map
    asked = one(read(play, play.ask_target(12), (1, 12), own=OWN, others=FOREIGN), AskRebuild)
    rebuilt(play, asked, OWN, DELETED)
    again = one(read(play, play.ask_target(12), (1, 12), own=OWN, others=FOREIGN), AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in again.missing] == [("last", 5, 7)]


def test_the_next_holder_rebuilds_the_map_as_well() -> None:
    play, _ = expired()
    play.take(None, cleanly=False)
    scan = one(play.ask_target(12), AskScan)
    asked = one(read(play, [scan], (1, 12), own=OWN, others=FOREIGN), AskRebuild)
    rebuilt(play, asked, OWN, DELETED)
    assert play.record.halted is None
    assert play.lane.resume_position == ResumePosition(5, 5, 1)


@pytest.mark.parametrize(("next_offset", "missing"), [(4, ()), (6, ()), (5, ((4, 5),))])
def test_the_lane_stays_halted_if_they_would_get_other_records(
    next_offset: int, missing: tuple[tuple[int, int], ...]
) -> None:
    """LOSS. A lookup would be about these, and nothing would show that the former ones may have been appended."""
    play, asked = expired()
    located = msgspec.structs.replace(DELETED, next_offset=next_offset, missing=missing, epochs=((0, 1),))
    effects = rebuilt(play, asked, OWN, located)
    assert "no longer has ordinals 5 to 6, and the new map would give them other" in one(effects, Halted).line


def test_the_lane_stays_halted_if_removed_records_would_get_other_ordinals() -> None:
    """Ordinal 4 was compared, and has been removed since."""
    play, asked = expired()
    own = (OwnBatch(0, 4, 0, 0, 1),)
    effects = rebuilt(play, asked, own, msgspec.structs.replace(DELETED, open=((0, 4),)))
    assert "no longer has ordinals 5 to 6, and the new map would give them other" in one(effects, Halted).line
