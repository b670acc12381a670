"""What binds and what does not, rule by rule (the list in `mirrord.ledger.fold`)."""

from collections import Counter
from functools import partial
from typing import Literal

import msgspec
import pytest

from mirrord.ledger.facts.audit import RangeAudited
from mirrord.ledger.facts.core import (
    AnyFact,
    CopyForgotten,
    CopyNamed,
    Entry,
    FlowOpened,
    HoleFound,
    LaneHalted,
    LaneOpened,
    LaneResumed,
    LaneTaken,
    LeaseContinued,
    LeaseReleased,
    LeaseTaken,
    MapRebuilt,
    PartitionsGrown,
    Progress,
    SourceRun,
    TakeoverChecked,
    TargetRun,
    TopicCreated,
    Verdict,
    VerdictGiven,
)
from mirrord.ledger.fold import fold, writer_text
from mirrord.ledger.gaps import Gaps
from mirrord.ledger.state import FlowState, LaneState
from mirrord.ledger.verdict_tally import RECENT_VERDICTS, VerdictTally
from mirrord.model.names import ClusterId, LaneId, LaneKey, TopicId
from mirrord.model.runs import Run, Runs
from tests.fixtures.ledger import FLOW, HOLDER, RESTARTED, entry, lane_id, opened, plain

LANE = lane_id(0)


class Ledger:
    """A state and the next offset."""

    def __init__(self) -> None:
        self.state = FlowState()

    def add(self, *facts: AnyFact, epoch: int = 1, writer: str = "") -> tuple[bool, ...]:
        return fold(self.state, entry(*facts, epoch=epoch, writer=writer), self.state.next_offset)

    @property
    def lane(self) -> LaneState:
        return self.state.lanes[LANE]


@pytest.fixture
def ledger() -> Ledger:
    """A flow under lease 1 with one lane at grant 1."""
    ledger = Ledger()
    assert ledger.add(FLOW, epoch=0) == (True,)
    assert ledger.add(LeaseTaken(1, HOLDER, 6000), opened(), LaneTaken(LANE, 1, "r1")) == (True, True, True)
    return ledger


def test_nothing_binds_before_the_flow_is_opened() -> None:
    ledger = Ledger()
    assert ledger.add(LeaseTaken(1, HOLDER, 6000), opened()) == (False, False)
    assert ledger.add(FLOW, epoch=0) == (True,)
    assert ledger.add(FLOW, epoch=0) == (False,)
    other = FlowOpened("eu-us", ClusterId("another"), ClusterId("us-cluster"))
    assert ledger.add(other, epoch=0) == (False,)
    assert ledger.state.source_cluster == "eu-cluster"


@pytest.mark.parametrize(
    ("stated", "taken", "binds"), [(2, 2, True), (1, 1, False), (3, 3, False), (2, 3, False), (1, 2, False)]
)
def test_a_lease_follows_the_one_before(ledger: Ledger, stated: int, taken: int, *, binds: bool) -> None:
    assert ledger.add(LeaseTaken(taken, HOLDER, 9000), epoch=stated) == (binds,)
    assert ledger.state.lease_epoch == 1 + binds
    assert ledger.state.ttl_ms == (9000 if binds else 6000)


def test_a_lease_continues_with_another_process_of_the_same_daemon(ledger: Ledger) -> None:
    assert ledger.add(LeaseContinued(1, 2, HOLDER)) == (False,), "it has no daemon"
    assert ledger.add(LeaseTaken(2, RESTARTED, 6000), epoch=2) == (True,)
    again, other = (msgspec.structs.replace(RESTARTED, pid=pid, daemon=who) for pid, who in ((1, "daemon"), (2, "no")))
    assert ledger.add(LeaseContinued(2, 2, other), LeaseContinued(2, 3, again), epoch=2) == (False, False)
    assert ledger.add(LeaseContinued(1, 2, again), epoch=2) == (False,)
    assert ledger.add(LeaseContinued(2, 2, again), LeaseContinued(2, 2, RESTARTED), epoch=2) == (True, False)
    assert (ledger.state.lease_epoch, ledger.state.turn, ledger.state.holder) == (2, 2, again)
    assert ledger.add(LaneTaken(LANE, 2, "r2"), epoch=2) == (True,), "who writes under the lease goes on"
    assert ledger.add(LeaseReleased(2), LeaseContinued(2, 3, again), epoch=2) == (True, False)
    assert ledger.add(LeaseTaken(3, RESTARTED, 6000), epoch=3) == (True,)
    assert ledger.state.turn == 1


def test_what_follows_a_lost_lease_does_not_take_effect(ledger: Ledger) -> None:
    assert ledger.add(LeaseTaken(2, HOLDER, 6000), epoch=2) == (True,)
    # Its writer believed it would become holder 2 as well: the entry has the epoch of the present lease.
    assert ledger.add(opened(1), LeaseTaken(2, HOLDER, 6000), opened(2), epoch=2) == (True, False, False)


@pytest.mark.parametrize("epoch", [0, 1, 3])
def test_facts_of_another_lease_do_not_bind(ledger: Ledger, epoch: int) -> None:
    ledger.add(LeaseTaken(2, HOLDER, 6000), epoch=2)
    before = plain(ledger.state)
    assert ledger.add(opened(1), LaneTaken(LANE, 2, "r2"), epoch=epoch) == (False, False)
    assert plain(ledger.state) == before | {"next_offset": ledger.state.next_offset}


def test_nothing_binds_under_a_released_lease(ledger: Ledger) -> None:
    assert ledger.add(LeaseReleased(2)) == (False,)
    assert ledger.add(LeaseReleased(1)) == (True,)
    assert ledger.add(LeaseReleased(1), opened(1)) == (False, False)
    assert ledger.add(LeaseTaken(2, HOLDER, 6000), opened(1), epoch=2) == (True, True)
    assert not ledger.state.released


def test_the_first_opening_of_a_lane_binds(ledger: Ledger) -> None:
    again = LaneOpened(LANE, "orders", "eu.orders", 0, 99, 0, "all")
    assert ledger.add(again) == (False,)
    assert ledger.lane.producer_id == 1000
    assert ledger.lane.partition == 0


@pytest.mark.parametrize("text", ["", "a.b.c", "a.1", "a.07.b", "a.٣.b", "a.2.b", f"a.{'9' * 5000}.b"])
def test_a_lane_whose_id_is_none_does_not_bind(ledger: Ledger, text: str) -> None:
    assert ledger.add(LaneOpened(LaneId(text), "orders", "eu.orders", 7, 99, 0, "all")) == (False,)


@pytest.mark.parametrize(("grant", "binds"), [(1, False), (2, True), (3, False)])
def test_a_grant_follows_the_one_before(ledger: Ledger, grant: int, *, binds: bool) -> None:
    assert ledger.add(LaneTaken(LANE, grant, "r2")) == (binds,)
    assert ledger.lane.replicator == ("r2" if binds else "r1")


@pytest.mark.parametrize(("grant", "binds"), [(0, False), (1, True), (2, False)])
def test_facts_of_a_lane_carry_its_grant(ledger: Ledger, grant: int, *, binds: bool) -> None:
    assert ledger.add(SourceRun(LANE, grant, (Run(0, 5),)), TargetRun(LANE, grant, 0, 7, 1)) == (binds, binds)
    assert ledger.lane.source_runs == Runs([Run(0, 5)] if binds else [])
    assert ledger.lane.target_runs == Runs([Run(0, 7)] if binds else [])


def test_facts_of_an_unknown_lane_do_not_bind(ledger: Ledger) -> None:
    assert ledger.add(LaneTaken(lane_id(5), 1, "r1"), SourceRun(lane_id(5), 0, ())) == (False, False)


def test_a_later_run_supersedes(ledger: Ledger) -> None:
    ledger.add(SourceRun(LANE, 1, (Run(0, 5), Run(10, 20), Run(20, 40))))
    ledger.add(LaneTaken(LANE, 2, "r2"))
    ledger.add(SourceRun(LANE, 2, (Run(10, 16),), (Verdict(15, 16, "control"),)))
    assert ledger.lane.source_runs == Runs([Run(0, 5), Run(10, 16)])
    assert ledger.lane.changed_at == 4
    assert ledger.lane.verdicts.counts == {"control": 1}


def test_what_other_records_may_have_been_sent_as_is_known_until_it_is_compared(ledger: Ledger) -> None:
    ledger.add(SourceRun(LANE, 1, (Run(0, 0),)), SourceRun(LANE, 1, (Run(9, 20),), regiven=True))
    ledger.add(SourceRun(LANE, 1, (Run(5, 10),), regiven=True), SourceRun(LANE, 1, (Run(7, 15),)))
    ledger.add(TakeoverChecked(LANE, 1, 0, 4, "equal"), TakeoverChecked(LANE, 1, 6, 9, "unverifiable"))
    ledger.add(TakeoverChecked(LANE, 1, 0, 9, "different"))
    assert ledger.lane.regiven == 5
    ledger.add(TakeoverChecked(LANE, 1, 5, 5, "unverifiable"))  # what it leaves open is recorded with it
    assert ledger.lane.regiven == -1


def test_ordinals_after_a_comparison_stay_open_while_more_is_to_be_compared(ledger: Ledger) -> None:
    ledger.add(SourceRun(LANE, 1, (Run(0, 0),)), SourceRun(LANE, 1, (Run(4, 20),), regiven=True))
    ledger.add(TakeoverChecked(LANE, 1, 4, 5, "equal", more=True))
    assert ledger.lane.regiven == 6
    ledger.add(TakeoverChecked(LANE, 1, 4, 9, "equal"))
    assert ledger.lane.regiven == -1


def test_a_halted_lane_is_resumed(ledger: Ledger) -> None:
    halted = LaneHalted(LANE, 1, "poison", "a batch was refused", 5, 6)
    ledger.add(halted)
    assert ledger.lane.halted == halted
    ledger.add(LaneResumed(LANE, 1))
    assert ledger.lane.halted is None


def audited(first: int, end: int, level: Literal["digest", "records"] = "digest", newest_ms: int = 5) -> RangeAudited:
    return RangeAudited(LANE, level, first, end, end + 100, newest_ms, 0)


def test_a_proof_continues_where_the_last_one_ends_also_without_a_holder(ledger: Ledger) -> None:
    assert ledger.add(audited(3, 10)) == (True,)
    assert ledger.add(LeaseReleased(1)) == (True,)
    assert ledger.add(audited(11, 20), audited(5, 9), audited(3, 10)) == (False, False, False)
    assert ledger.add(audited(10, 20, "records", newest_ms=2)) == (True,)
    # As thorough as the less thorough part.
    assert ledger.lane.audited == audited(3, 20)
    assert ledger.add(audited(3, 20, "records")) == (True,)
    assert ledger.lane.audited == audited(3, 20, "records")
    assert ledger.add(audited(20, 30)) == (True,)
    assert ledger.lane.audited == audited(3, 30)


def record(ledger: Ledger, gaps: Gaps, *facts: AnyFact) -> None:
    """Facts that bind, as a reader of the ledger takes them."""
    ledger.add(*facts)
    for fact in facts:
        gaps.take(fact, 0)


def test_what_nobody_could_name_is_unexplained_until_its_ordinals_are_reassigned(ledger: Ledger) -> None:
    gaps = Gaps(ledger.state)
    tell = partial(record, ledger, gaps)
    tell(SourceRun(LANE, 1, (Run(0, 10),)))
    tell(HoleFound(LANE, 1, 2, 3, 4, 4), VerdictGiven(LANE, 1, (Verdict(12, 14, "unexplained"),)))
    tell(SourceRun(LANE, 1, (Run(6, 20),), (Verdict(16, 20, "compacted"),)))
    assert ledger.lane.verdicts.counts == {"unexplained": 2, "compacted": 4}
    assert [(gap.start, gap.end, gap.reason) for gap in gaps] == [(12, 14, "unexplained"), (16, 20, "compacted")]
    trimmed = Gaps(ledger.state)  # as a reader that finds a snapshot begins
    again = SourceRun(LANE, 1, (Run(2, 12),))
    tell(again)
    trimmed.take(again, 0)
    assert ledger.lane.holes == ()
    assert ledger.lane.verdicts.counts["unexplained"] == 0
    for facts in (gaps, trimmed):
        assert [(gap.start, gap.end, gap.reason) for gap in facts] == [(16, 20, "compacted")]


def test_what_was_left_out_of_what_the_source_has_truncated_stays_left_out(ledger: Ledger) -> None:
    """The offsets of ordinals 0 and 1 belong to other records by then. Skipped, they make one run of what was copied
    before and after."""
    gaps = Gaps(ledger.state)
    tell = partial(record, ledger, gaps)
    tell(SourceRun(LANE, 1, (Run(0, 10),)))
    tell(SourceRun(LANE, 1, (Run(2, 10),), (Verdict(10, 12, "truncated"),)))
    tell(SourceRun(LANE, 1, (Run(2, 12),), (Verdict(10, 12, "skipped"),)))
    assert list(ledger.lane.source_runs.beginning_in(0, 9)) == [Run(0, 10)]
    tell(SourceRun(LANE, 1, (Run(5, 17),), (Verdict(15, 17, "compacted"),)))
    assert sorted((gap.start, gap.end, gap.reason) for gap in gaps) == [
        (10, 12, "skipped"), (10, 12, "truncated"), (15, 17, "compacted"),
    ]  # fmt: skip
    assert ledger.lane.verdicts.counts["skipped"] == 2


def test_an_open_hole_ends_where_its_ordinals_are_reassigned(ledger: Ledger) -> None:
    gaps = Gaps(ledger.state)
    tell = partial(record, ledger, gaps)
    tell(SourceRun(LANE, 1, (Run(0, 10),)))
    tell(HoleFound(LANE, 1, 2, 7, 8, 8), VerdictGiven(LANE, 1, (Verdict(12, 18, "unexplained"),)))
    trimmed = Gaps(ledger.state)
    again = SourceRun(LANE, 1, (Run(5, 15),))
    tell(again)
    trimmed.take(again, 0)
    assert ledger.lane.holes == (HoleFound(LANE, 1, 2, 4, 5, 5),)
    assert ledger.lane.verdicts.counts["unexplained"] == 3
    for facts in (gaps, trimmed):
        assert [(gap.start, gap.end, gap.reason) for gap in facts] == [(12, 15, "unexplained")]
    tell(SourceRun(LANE, 1, (Run(3, 13),)))
    assert [(gap.start, gap.end, gap.reason) for gap in gaps] == [(12, 13, "unexplained")]
    assert ledger.lane.verdicts.counts["unexplained"] == 1


def test_a_mended_hole_stays_while_later_ordinals_are_reassigned(ledger: Ledger) -> None:
    hole = HoleFound(LANE, 1, 2, 7, 8, 14)
    ledger.add(SourceRun(LANE, 1, (Run(0, 10),)), hole, SourceRun(LANE, 1, (Run(8, 12), Run(14, 18))))
    ledger.add(SourceRun(LANE, 1, (Run(11, 15),)))
    assert ledger.lane.holes == (hole,)
    ledger.add(SourceRun(LANE, 1, (Run(2, 12),)))
    assert ledger.lane.holes == ()


def test_a_rebuilt_map_withdraws_verdicts_on_copied_records(ledger: Ledger) -> None:
    """A replicator recorded that offsets 12 to 15 were compacted. The target has the records of offsets 12, 13 and 15
    from another one, and gets the record of offset 20 again. It lacks ordinal 4, which the map assigns to offset 14."""
    gaps = Gaps(ledger.state)
    tell = partial(record, ledger, gaps)
    verdicts = (Verdict(12, 16, "compacted"), Verdict(20, 21, "expired"))
    tell(SourceRun(LANE, 1, (Run(0, 10), Run(2, 16)), verdicts))
    trimmed = Gaps(ledger.state)
    runs = SourceRun(LANE, 1, (Run(2, 12), Run(6, 20), Run(7, 21)))
    doubled = VerdictGiven(LANE, 1, (Verdict(11, 13, "doubled"),))
    rebuilt = MapRebuilt(LANE, 1, 2, 5, 7, withdraws_verdicts=True)
    facts = (runs, HoleFound(LANE, 1, 4, 4, 6, 7), doubled, rebuilt)
    tell(*facts)
    for fact in facts:
        trimmed.take(fact, 0)
    assert ledger.lane.verdicts.counts == {"compacted": 1, "expired": 0, "doubled": 2}
    for found in (gaps, trimmed):
        assert sorted((gap.start, gap.end, gap.reason) for gap in found) == [(11, 13, "doubled"), (14, 15, "compacted")]


def test_a_rebuilt_map_with_many_verdicts(ledger: Ledger) -> None:
    """Every other source offset is a control record. Only the newest ranges are kept, and the counts are exact."""
    gaps, many = Gaps(ledger.state), 1000
    tell = partial(record, ledger, gaps)
    tell(SourceRun(LANE, 1, (Run(0, 0),)), VerdictGiven(LANE, 1, (Verdict(0, 2 * many, "unexplained"),)))
    control = tuple(Verdict(2 * at + 1, 2 * at + 2, "control") for at in range(many))
    tell(
        SourceRun(LANE, 1, tuple(Run(at, 2 * at) for at in range(many + 1))),
        MapRebuilt(LANE, 1, 0, many - 1, many, withdraws_verdicts=True),
        VerdictGiven(LANE, 1, control),
    )
    assert ledger.lane.verdicts.counts == {"unexplained": 0, "control": many}
    assert list(ledger.lane.newest_verdicts) == list(control[-RECENT_VERDICTS:])
    assert [(gap.start, gap.end, gap.reason) for gap in gaps] == [(each.start, each.end, "control") for each in control]


def test_a_trimmed_ledger_has_the_runs_that_follow_a_rebuilt_map(ledger: Ledger) -> None:
    """The target then loses all records from ordinal 2 on, and they are copied again after ordinal 6."""
    gaps = Gaps(ledger.state)
    tell = partial(record, ledger, gaps)
    facts = [
        SourceRun(LANE, 1, (Run(0, 10), Run(2, 16)), (Verdict(12, 16, "compacted"),)),
        SourceRun(LANE, 1, (Run(2, 12), Run(6, 16))),
        MapRebuilt(LANE, 1, 2, 5, 6, withdraws_verdicts=True),
        HoleFound(LANE, 1, 2, 5, 6, 10),
        SourceRun(LANE, 1, (Run(6, 12), Run(10, 16))),
    ]
    tell(*facts)
    trimmed = Gaps(ledger.state)
    for fact in facts:
        trimmed.take(fact, 0)
    assert [*gaps] == [*trimmed] == []
    assert +Counter(ledger.lane.verdicts.counts) == Counter()


def test_a_rebuilt_map_with_a_late_batch_in_an_older_hole(ledger: Ledger) -> None:
    """Ordinals 2 to 5 were missing. The target has got ordinals 4 and 5 all the same."""
    gaps = Gaps(ledger.state)
    tell = partial(record, ledger, gaps)
    tell(SourceRun(LANE, 1, (Run(0, 10),)), SourceRun(LANE, 1, (Run(6, 12), Run(10, 16))))
    tell(HoleFound(LANE, 1, 2, 5, 6, 10), VerdictGiven(LANE, 1, (Verdict(14, 16, "compacted"),)))
    tell(SourceRun(LANE, 1, (Run(4, 14), Run(6, 16))), MapRebuilt(LANE, 1, 4, 5, 6, withdraws_verdicts=True))
    assert [*gaps] == []
    assert +Counter(ledger.lane.verdicts.counts) == Counter()


def test_a_map_that_an_older_version_rebuilt_keeps_its_verdicts(ledger: Ledger) -> None:
    given = VerdictGiven(LANE, 1, (Verdict(10, 12, "unexplained"),))
    ledger.add(SourceRun(LANE, 1, (Run(0, 10),)), given, MapRebuilt(LANE, 1, 0, 1, 2))
    assert ledger.lane.verdicts.counts == {"unexplained": 2}


@pytest.mark.parametrize("at", [9, 10])
@pytest.mark.parametrize("kind", [SourceRun, TargetRun, HoleFound, MapRebuilt])
def test_a_proof_falls_with_what_it_was_about(ledger: Ledger, kind: type[AnyFact], at: int) -> None:
    facts: dict[type[AnyFact], AnyFact] = {
        SourceRun: SourceRun(LANE, 1, (Run(at, 500),)),
        TargetRun: TargetRun(LANE, 1, at, 500, 2),
        HoleFound: HoleFound(LANE, 1, at, at + 1, at + 5, at + 7),
        MapRebuilt: MapRebuilt(LANE, 1, at, at + 1, at + 2),
    }
    assert ledger.add(audited(0, 10), facts[kind]) == (True, True)
    assert ledger.lane.audited == (audited(0, 10) if at == 10 else None)


@pytest.mark.parametrize("told_last", ["truncation", "proof"])
def test_what_a_truncated_source_writes_again_is_not_proven(ledger: Ledger, told_last: str) -> None:
    """Ordinals 0 to 9 were audited, which were source offsets up to 109; from 103 on there will be other records."""
    facts = [audited(0, 10), SourceRun(LANE, 1, (Run(10, 103),), (Verdict(103, 110, "truncated"),))]
    ledger.add(*(facts if told_last == "truncation" else reversed(facts)))
    assert ledger.lane.audited == RangeAudited(LANE, "digest", 0, 10, 103, -1, 0)
    # An audit that has seen them.
    ledger.add(RangeAudited(LANE, "digest", 10, 15, 108, 7, 0))
    assert ledger.lane.audited == RangeAudited(LANE, "digest", 0, 15, 108, 7, 0)


def test_topics_are_created_once_and_only_grow(ledger: Ledger) -> None:
    created = TopicCreated("orders", TopicId("s"), "eu.orders", TopicId("t"), 3)
    assert ledger.add(created, created) == (True, False)
    grown = [PartitionsGrown("eu.orders", TopicId("t"), count) for count in (3, 5, 4)]
    assert ledger.add(*grown) == (False, True, False)
    assert ledger.add(PartitionsGrown("eu.others", TopicId("u"), 2)) == (True,)
    topics = ledger.state.topics
    assert [(topic.topic, topic.partitions, topic.created) for topic in topics.values()] == [
        ("eu.orders", 5, True),
        ("eu.others", 2, False),
    ]


def test_a_copy_is_named_once_and_no_two_have_one_name(ledger: Ledger) -> None:
    second, third = TopicId("second"), TopicId("third")
    assert ledger.add(CopyNamed("orders", second, "eu.orders")) == (False,), "it is that of a former topic's copy"
    assert ledger.add(CopyNamed("orders", second, "eu.orders.2")) == (True,)
    assert ledger.add(CopyNamed("orders", second, "eu.orders.3")) == (False,)
    assert ledger.add(CopyNamed("orders", third, "eu.orders.2")) == (False,)
    assert ledger.add(CopyNamed("orders", third, "eu.orders.3")) == (True,)
    assert [each.target_topic for each in ledger.state.named.values()] == ["eu.orders.2", "eu.orders.3"]


def test_the_name_of_a_forgotten_copy_is_forgotten_unless_the_topic_has_another_copy(ledger: Ledger) -> None:
    second = TopicId("second")
    keys = [LaneKey(second, 0, TopicId(target)) for target in ("lost", "again")]
    ledger.add(CopyNamed("orders", second, "eu.orders.2"))
    ledger.add(*(LaneOpened(key.id, "orders", "eu.orders.2", 0, 7, 0, "all") for key in keys))
    assert ledger.add(CopyForgotten("orders", second, "eu.orders.2", TopicId("lost"))) == (True,)
    assert second in ledger.state.named
    assert ledger.add(CopyForgotten("orders", second, "eu.orders.2", TopicId("again"))) == (True,)
    assert not ledger.state.named


def test_an_entry_takes_effect_once_however_often_it_is_in_the_log(ledger: Ledger) -> None:
    first, second = writer_text("w", 1), writer_text("w", 2)
    assert ledger.add(SourceRun(LANE, 1, (Run(0, 5),)), writer=first) == (True,)
    assert ledger.add(SourceRun(LANE, 1, (Run(10, 25),)), writer=second) == (True,)
    assert ledger.add(SourceRun(LANE, 1, (Run(0, 5),)), writer=first) == (False,)
    assert len(ledger.lane.source_runs) == 2
    # An entry that came too early does not bind later.
    assert ledger.add(LaneTaken(LANE, 2, "r2"), epoch=2, writer=writer_text("v", 1)) == (False,)
    assert ledger.add(LeaseTaken(2, HOLDER, 6000), epoch=2, writer=writer_text("u", 1)) == (True,)
    assert ledger.add(LaneTaken(LANE, 2, "r2"), epoch=2, writer=writer_text("v", 1)) == (False,)
    assert set(ledger.state.writers) == {"u", "v"}


@pytest.mark.parametrize("writer", ["", "w", "w#", "w#x", "w#٣", "w#" + "9" * 5000])
def test_an_entry_of_an_unknown_writer_is_taken_as_it_is(ledger: Ledger, writer: str) -> None:
    assert ledger.add(SourceRun(LANE, 1, ()), writer=writer) == (True,)
    assert ledger.add(SourceRun(LANE, 1, ()), writer=writer) == (True,)


def test_an_entry_below_the_next_offset_is_ignored(ledger: Ledger) -> None:
    assert fold(ledger.state, Entry(1, 0, (opened(1),)), 1) == (False,)
    assert ledger.state.next_offset == 2


def test_progress_of_an_older_grant_is_not_taken_over(ledger: Ledger) -> None:
    def progress(lease_epoch: int, grant: int, ordinal: int) -> Progress:
        return Progress(LANE, lease_epoch, grant, ordinal, 0, 0, 0, 0, 0, 0, protected=True, state="copying")

    records = [progress(1, 1, 10), progress(1, 1, 8), progress(2, 2, 5), progress(1, 2, 20), progress(2, 1, 30)]
    assert [ledger.state.accept_progress(record) for record in records] == [True, True, True, False, False]
    assert ledger.state.progress[LANE].ordinal == 5


def test_the_newer_verdict_counts() -> None:
    tally = VerdictTally()
    tally.add([Verdict(0, 10, "aborted"), Verdict(10, 11, "control"), Verdict(10, 11, "control")])
    assert tally.counts == {"aborted": 10, "control": 1}
    tally.add([Verdict(4, 6, "compacted"), Verdict(3, 3, "expired")])
    assert tally.counts == {"aborted": 8, "control": 1, "compacted": 2}
    assert list(tally.recent) == [
        Verdict(0, 4, "aborted"),
        Verdict(6, 10, "aborted"),
        Verdict(10, 11, "control"),
        Verdict(4, 6, "compacted"),
    ]


def test_a_truncated_range_stands() -> None:
    tally = VerdictTally()
    tally.add([Verdict(0, 10, "truncated"), Verdict(3, 4, "control")])
    assert tally.counts == {"truncated": 10, "control": 1}


def test_only_the_newest_verdicts_are_kept_exactly() -> None:
    tally = VerdictTally()
    tally.add(Verdict(offset, offset + 1, "control") for offset in range(0, 1000, 2))
    assert tally.counts == {"control": 500}
    assert len(tally.recent) == RECENT_VERDICTS
    assert tally.recent[-1] == Verdict(998, 999, "control")
