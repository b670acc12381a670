"""An unclean election removes records between the questions about the target log and the scan of it."""

from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import AskEnd, AskScan, Effects, Halted, OwnBatch, ScanAnswer, Wake, Woken
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened, progress_at

OWN = (OwnBatch(4, 1, 4, 0, 1),)
"""The record before the resume position."""


def scanned(leader_epoch: int) -> tuple[Faulty, Effects]:
    """The leader of epoch 1 remembers ordinal 5, and its log ends at offset 6. Then a scan finds another client's
    record at offset 5, in a log whose newest batch has this leader epoch."""
    play = opened(*BEGUN)
    play.take(progress_at(5), cleanly=False)
    play.lane.log.must_read_log = True
    asked = one(play.ask_target(6, last=5), AskScan)
    answer = ScanAnswer(asked.question, 0, asked.purpose, asked.start, asked.end, OWN, ((5, 6),), False, leader_epoch)
    return play, play.tell(answer)


def test_a_scan_of_a_later_leaders_log_does_not_contradict_the_former_leader() -> None:
    """NEEDLESS HALT. The new leader lacks ordinal 5, and has another record at its offset."""
    play, effects = scanned(2)
    assert play.lane.phase is Phase.WAITING
    wake = one(effects, Wake)
    assert wake.refresh
    play.now = wake.at
    one(play.tell(Woken(wake.question)), AskEnd)
    play.read(play.ask_target(6, epoch=2, last=4), OWN, ((5, 6),))
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 5)


def test_a_leader_whose_log_lacks_what_it_remembers_halts_the_lane() -> None:
    _, effects = scanned(1)
    assert "remembers ordinal 5 as the lane's last one" in one(effects, Halted).line
