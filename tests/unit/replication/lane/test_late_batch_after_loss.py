"""A batch that was sent before a loss arrives late, after the lane has planned which lost records it copies again. The
offset map is rebuilt, and its runs no longer show the plan."""

import pytest

from mirrord.ledger.facts.core import TargetRun
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    AskCheck,
    AskEnd,
    AskRebuild,
    CheckAnswer,
    OwnBatch,
    RebuildAnswer,
    TargetMoved,
)
from mirrord.replication.lane.source.recorded_epochs import recorded_at
from mirrord.replication.lane.target.relocation_result import Located
from mirrord.replication.lane.target.scan_result import Missing
from mirrord.replication.lane.target.superseded_records import AskSuperseded, SupersededJudge
from tests.unit.replication.lane.test_eighth_faults import judged, read
from tests.unit.replication.lane.test_fourth_faults import offsets, retake
from tests.unit.replication.lane.test_lost_again import told
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened

OWN = (OwnBatch(0, 15, 0, 0, 1),)
LATE = (*OWN, OwnBatch(16, 4, 15, 0, 3))
OTHERS = ((15, 16),)
THEIRS = (15, b"key", 3, -1)


def rebuilt(*, compacts: bool = True) -> tuple[Faulty, list[AskSuperseded]]:
    """Ordinals 0 to 22 were acknowledged in epoch 1. The leader of epoch 3 has 0 to 14, and another writer's record at
    15 that supersedes offsets 17 and 20. The others are planned. Then a batch of offsets 15 to 18 arrives late. Return
    the lookups after the map was rebuilt."""
    play = opened(BEGUN[0], TargetRun(LANE, 1, 0, 0, 1))
    retake(play, 23, 23, 23, epoch=1)
    asked = one(read(play, play.ask_target(16, epoch=3), (1, 15), own=OWN, others=OTHERS), AskSuperseded)
    told(play, play.tell(judged(asked, {17: b"key", 20: b"key"}, THEIRS)))
    assert (play.lane.phase, offsets(play, 15, 21)) == (Phase.COPYING, [15, 16, 18, 19, 21, 22, 23])
    play.tell(TargetMoved(4))
    effects = read(play, play.ask_target(20, epoch=4), (3, 20), own=LATE, others=OTHERS)
    for each in [each for each in effects if isinstance(each, AskSuperseded)]:
        effects = play.tell(judged(each, {}))
    play.bind_all(effects)
    check = one(effects, AskCheck)
    play.bind_all(play.tell(CheckAnswer(check.question, 0, check.first, check.last, "different", "ordinal 17")))
    effects = read(play, play.ask_target(20, epoch=4), (3, 20), own=LATE, others=OTHERS)
    located = Located((Run(15, 15),), (), (), 19)
    answer = RebuildAnswer(one(effects, AskRebuild).question, 0, LATE[1:], located, compacts=compacts)
    effects = play.bind_all(play.tell(answer))
    assert one(effects, AskEnd)
    effects = read(play, play.ask_target(20, epoch=4, last=18), (4, 20), own=LATE, others=OTHERS, compacts=compacts)
    return play, [each for each in effects if isinstance(each, AskSuperseded)]


@pytest.mark.parametrize(("keys", "copied"), [({20: b"key"}, [19, 21, 22, 23]), ({}, [19, 20, 21, 22, 23])])
def test_lost_records_are_looked_up_again_after_the_map_was_rebuilt(keys: dict[int, bytes], copied: list[int]) -> None:
    """STALE VALUE. The rebuilt map continues at offset 19 in source order. Offset 20, which the plan
    omitted, was copied over the newer record."""
    play, looked_up = rebuilt()
    (asked,) = looked_up
    assert [(each.kind, each.first, each.last, each.leader_epoch) for each in asked.missing] == [("lost", 19, 22, 1)]
    assert asked.epochs is not None  # the source epoch with which they were copied
    assert recorded_at(asked.epochs, 22) == 0
    told(play, play.tell(judged(asked, keys, THEIRS)))
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 19)
    assert offsets(play, 19, 30)[: len(copied)] == copied


def test_nothing_is_looked_up_in_a_topic_that_is_no_longer_compacted() -> None:
    _, looked_up = rebuilt(compacts=False)
    assert looked_up == []


LOST = (Missing("lost", 19, 22, 20, has_room=False, leader_epoch=1),)


@pytest.mark.parametrize(
    ("seen", "again"),
    [
        ([(15, 3, -1)], ()),
        ([(15, 3, -1), (18, 3, 17)], ((20, 20), (22, 22))),
        ([(15, 3, -1), (18, 3, 17), (20, 3, -1)], ()),
        ([(15, 3, -1), (18, 3, 21)], ((22, 22),)),
        ([(18, 3, 17), (19, 3, -1)], ()),
    ],
)
def test_a_late_record_after_a_newer_one_is_followed_by_the_lost_record(
    seen: list[tuple[int, int, int]], again: tuple[tuple[int, int], ...]
) -> None:
    """STALE VALUE. The log has a newer record of another writer, and after it an older one of the lane. The key kept
    the older value."""
    judge = SupersededJudge(AskSuperseded(1, LOST, 21))
    for ordinal in range(19, 23):
        judge.expect(LOST[0], ordinal, ordinal, b"key" if ordinal % 2 == 0 else b"other", 100)
    judge.see(15, b"other", 100, 3, -1)
    for offset, epoch, sequence in seen:
        judge.see(offset, b"key", 100, epoch, sequence)
    assert judge.answer().again == again
