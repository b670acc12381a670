"""Target topics whose cleanup policy is not known, because mirrord has no DESCRIBE_CONFIGS permission on them."""

import pytest

from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import AskConfigs, AskEnd, Effects, Halted, OwnBatch, Wake, Woken
from mirrord.replication.lane.target.superseded_records import AskShared, AskSuperseded
from mirrord.replication.lane.target.topic_configs import ConfigsAnswer
from tests.unit.replication.lane.target.test_out_of_order import resumed
from tests.unit.replication.lane.test_eighth_faults import judged, read
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened, progress_at

FIRST = (OwnBatch(0, 5, 0, 0, 1),)
OTHERS = ((5, 9),)
"""Offsets 5 to 7 belonged to the lane in epoch 1. Now others have written there in epoch 2."""
SUPERSEDED = ((5, b"6", 2, -1),)


def lost(play: Faulty, *, compacts: bool | None) -> AskSuperseded:
    """An election removes ordinals 5 to 7. Return the lookup of their records."""
    play.take(progress_at(8), cleanly=False)
    effects = play.ask_target(9, epoch=2)
    return one(read(play, effects, (1, 5), own=FIRST, others=OTHERS, compacts=compacts), AskSuperseded)


@pytest.fixture
def play() -> Faulty:
    return opened(*BEGUN)


def halted(play: Faulty) -> tuple[Halted, AskConfigs]:
    """Return the halt because of a superseded record, and the question about the configs that follows after a pause."""
    effects = play.tell(judged(lost(play, compacts=None), {}, *SUPERSEDED))
    play.bind_all(effects)
    wake = one(effects, Wake)
    play.now = wake.at
    return one(effects, Halted), one(play.tell(Woken(wake.question)), AskConfigs)


def after_release(play: Faulty, effects: Effects, *, compacts: bool | None) -> AskSuperseded:
    """The lane resumes by itself; the target log is as before."""
    effects += play.bind_all(effects)
    asked = [each for each in effects if isinstance(each, AskEnd)]
    assert (len(asked), play.lane.phase) == (1, Phase.RESUMING)
    read_again = play.ask_target(9, epoch=2)
    return one(read(play, read_again, (1, 5), own=FIRST, others=OTHERS, compacts=compacts), AskSuperseded)


def test_lost_records_are_copied_again_if_none_is_superseded(play: Faulty) -> None:
    """Compacted or not: they have to be copied again."""
    resumed(play, play.tell(judged(lost(play, compacts=None), {}, (5, b"x", 2, -1))))
    assert (play.lane.next_ordinal, play.lane.position) == (5, 5)


def test_a_lane_halts_if_the_policy_decides_what_is_copied_again(play: Faulty) -> None:
    """STALE VALUE if the topic is compacted, and lost records if it is not."""
    found, _ = halted(play)
    assert found.line.endswith("the topic eu.orders is compacted: grant DESCRIBE_CONFIGS on this topic on the target")
    assert play.record.verdicts.counts == {}


def test_the_lane_resumes_when_it_may_read_the_policy(play: Faulty) -> None:
    _, asked = halted(play)
    wake = one(play.tell(ConfigsAnswer(asked.question, "")), Wake)  # still not permitted
    play.now = wake.at
    asked = one(play.tell(Woken(wake.question)), AskConfigs)
    again = after_release(play, play.tell(ConfigsAnswer(asked.question, "settings")), compacts=True)
    effects = play.tell(judged(again, {}, *SUPERSEDED))
    play.bind_all(effects)
    assert (play.lane.phase, play.lane.position, play.record.verdicts.counts) == (Phase.COPYING, 5, {"compacted": 1})


def test_all_lost_records_are_copied_again_once_it_is_known_that_the_topic_is_not_compacted(play: Faulty) -> None:
    _, asked = halted(play)
    effects = play.tell(ConfigsAnswer(asked.question, "settings"))
    effects += play.bind_all(effects)
    fetch = resumed(play, read(play, play.ask_target(9, epoch=2), (1, 5), own=FIRST, others=OTHERS, compacts=False))
    assert (play.lane.next_ordinal, fetch.position, play.record.verdicts.counts) == (5, 5, {})


def test_a_lane_halts_although_a_cleaner_has_removed_other_records(play: Faulty) -> None:
    """The topic was compacted at some time. It may no longer have been when the log lost its end."""
    play.take(progress_at(8), cleanly=False)
    own = (OwnBatch(0, 2, 0, 0, 1), OwnBatch(4, 1, 4, 0, 1))
    effects = read(play, play.ask_target(9, epoch=2), (1, 5), own=own, others=OTHERS, compacts=None)
    effects = play.tell(judged(one(effects, AskSuperseded), {}, *SUPERSEDED))
    assert play.lane.phase is Phase.HALTED


def test_records_that_a_cleaner_removed_do_not_halt_a_lane(play: Faulty) -> None:
    """The log has lost nothing, and it has empty offsets where the missing records were."""
    play.take(progress_at(5), cleanly=False)
    own = (*FIRST, OwnBatch(8, 2, 8, 0, 1))
    effects = read(play, play.ask_target(12), (1, 12), own=own, others=((10, 12),), compacts=None)
    effects = play.tell(judged(one(effects, AskSuperseded), {}, *((10, b"%d" % key, 1, -1) for key in (5, 6, 7))))
    resumed(play, effects)
    assert play.lane.next_ordinal == 10


def test_a_record_that_came_back_does_not_halt_a_lane(play: Faulty) -> None:
    asked = lost(play, compacts=None)
    answer = judged(asked, {}, (9, b"6", 2, 6))
    assert (answer.again, answer.depends_on_policy) == (((5, 5), (7, 7)), False)


def test_gaps_between_own_batches_are_looked_up(play: Faulty) -> None:
    """STALE VALUE. The gap has no empty offsets: the records at 5 and 6 were lost, or were never appended."""
    play.take(progress_at(5), cleanly=False)
    own = (*FIRST, OwnBatch(5, 2, 7, 0, 1))
    asked = one(read(play, play.ask_target(8), (1, 8), own=own, others=((7, 8),), compacts=None), AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("between", 5, 6)]
    assert judged(asked, {}, (7, b"5", 1, -1)).depends_on_policy


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_lane_does_not_ask_for_more_if_nothing_is_missing(play: Faulty, epoch: int) -> None:
    """As quickly as for a topic that is known not to be compacted, even under another leader."""
    play.take(progress_at(8), cleanly=False)
    effects = play.ask_target(9, epoch=epoch)
    assert not [each for each in effects if isinstance(each, AskShared)]
    effects = read(play, effects, (1, 8), own=(OwnBatch(0, 8, 0, 0, 1),), others=((8, 9),), compacts=None)
    assert play.lane.log.shared == -2  # not asked
    resumed(play, effects)
    assert play.lane.next_ordinal == 8


def test_a_broker_that_remembers_more_than_its_log_has_is_not_explained_by_a_cleaner(play: Faulty) -> None:
    """LOSS or DOUBLE. The log has no empty offsets."""
    play.take(progress_at(5), cleanly=False)
    effects = read(play, play.ask_target(6, last=6), (1, 6), own=FIRST, others=((5, 6),), compacts=None)
    assert "remembers ordinal 6 as the lane's last one" in one(effects, Halted).line
