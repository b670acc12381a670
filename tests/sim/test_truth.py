"""What the simulation counts as stale in a compacted target."""

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Literal, cast

import pytest

from mirrord.ledger.facts.core import (
    Displaced,
    Entry,
    LaneOpened,
    LaneTaken,
    SourceRun,
    TakeoverChecked,
    TargetRun,
    Verdict,
    VerdictGiven,
)
from mirrord.model.runs import Run
from mirrord.replication.lane.target.scan_result import Missing
from mirrord.replication.lane.target.superseded_records import AskSuperseded, SupersededAnswer
from tests.sim import toy
from tests.sim.after_retention import expects_a_copied_ordinal, is_repeat_of_deleted, was_cleaned
from tests.sim.at_end import were_deleted
from tests.sim.compacted_copy import is_older_than_copied
from tests.sim.comparing import asked_about, presumed
from tests.sim.host import LANE, Host, Hosts
from tests.sim.known import Limit, Lookup
from tests.sim.newer_records import has_newer, was_theirs
from tests.sim.order_of_keys import check_order_of_keys
from tests.sim.partition import false_verdicts
from tests.sim.target import FakeTarget, Memory, Stored
from tests.sim.target_retention import sent_meanwhile
from tests.sim.themes import shape_named
from tests.sim.unknown_records import are_apart, is_hidden_copy, left_no_trace
from tests.sim.untraced import taken_offsets
from tests.sim.violation import Violation
from tests.sim.world import World


def overwritten(*numbers: int) -> World:
    """Return a world whose target log has these records. Positive numbers are records of the source, of which the first
    three have the same key. Negative ones are foreign. All source records were acknowledged when there were no foreign
    ones yet."""
    world = World(1, shape_named("compacted copy, beside others"))
    world.target.keys = 1
    world.source.append(3, 0)
    first = min(world.source.offset_of)
    for offset, number in enumerate(numbers):
        producer = 7 if number > 0 else -1
        there = first + number - 1 if number > 0 else number
        world.target.brokers[0].append(Stored(offset, 1, producer, 0, max(number - 1, -1), 0, (there,), 1))
        if number > 0:
            world.known.taken[there], world.known.takers[there] = 0, ("r1", number - 1)
    return world


def test_a_record_of_the_source_after_a_newer_foreign_one_is_a_violation() -> None:
    with pytest.raises(Violation, match="source offset 1 was put over a newer record"):
        check_order_of_keys(overwritten(-1, 2))


def test_a_record_of_the_source_may_follow_late_bytes_that_a_foreign_record_did_not_keep_out() -> None:
    """The late bytes are the last value of the key, and are older than what follows. The cleaner removes the foreign
    record, and then nothing shows that it was there."""
    world = overwritten(-1, 1, 2)
    late = min(world.source.offset_of)
    world.known.late.add(late)
    world.known.limits[late] = Limit(0)
    check_order_of_keys(world)


def test_a_foreign_record_after_late_bytes_counts() -> None:
    world = overwritten(-1, 1, -2, 2)
    late = min(world.source.offset_of)
    world.known.late.add(late)
    world.known.limits[late] = Limit(0)
    with pytest.raises(Violation, match="source offset 1 was put over a newer record"):
        check_order_of_keys(world)


def test_a_record_may_follow_an_older_one_that_no_lookup_could_keep_from_following_a_foreign_one() -> None:
    """The foreign record was written between the lookup of both lost records and the append of the first one. After
    that, the key has an older value of the source, whether or not the second one is copied again."""
    world = overwritten(-1, 1, 2)
    world.known.limits[min(world.source.offset_of)] = Limit(0)
    world.known.limits[min(world.source.offset_of) + 1] = Limit(1)
    check_order_of_keys(world)


def test_a_record_may_not_follow_a_foreign_one_that_a_lookup_could_see() -> None:
    world = overwritten(-1, 1, -2, 2)
    world.known.limits[min(world.source.offset_of)] = Limit(0)
    world.known.limits[min(world.source.offset_of) + 1] = Limit(2)
    with pytest.raises(Violation, match="source offset 1 was put over a newer record"):
        check_order_of_keys(world)


def test_a_record_may_follow_a_newer_one_that_the_former_leader_hid() -> None:
    """The former leader's cleaner had removed records 1 and 2, and it had lost record 3. The holder copied all of them
    again there. Then a replica became the leader that still had record 2."""
    world = overwritten(2, 1, 2)
    with pytest.raises(Violation, match="source offset 0 stands after 1"):
        check_order_of_keys(world)
    world.target.hid[1, 1] = {min(world.source.offset_of) + 1}
    check_order_of_keys(world)


@pytest.mark.parametrize("deleted", [True, False])
@pytest.mark.parametrize("cleaned", [True, False])
@pytest.mark.parametrize("recorded", [True, False])
@pytest.mark.parametrize("holder", ["r1", "r2"])
def test_only_a_record_that_both_logs_removed_left_no_trace(
    *, deleted: bool, cleaned: bool, recorded: bool, holder: str
) -> None:
    """The record was acknowledged to r1. If `recorded`, the ledger says that it was deleted before it was copied."""
    world = overwritten(1)
    (number,) = world.known.taken
    world.hosts = Hosts([cast("Host", SimpleNamespace(name=holder))])
    world.source.expired = {number} if deleted else set()
    world.target.cleaned = {number} if cleaned else set()
    if recorded:
        offset = world.source.offset_of[number]
        world.gaps.take(VerdictGiven(LANE, 1, (Verdict(offset, offset + 1, "expired"),)), 0)
    assert left_no_trace(world, number) is (deleted and cleaned and recorded and holder == "r2")


def test_a_record_may_not_follow_a_newer_one_that_was_hidden_only_from_another_batch() -> None:
    world = overwritten(2, 1, 2)
    world.target.hid[2, 1] = {min(world.source.offset_of) + 1}
    with pytest.raises(Violation, match="source offset 0 stands after 1"):
        check_order_of_keys(world)


def test_a_record_may_not_follow_a_newer_one_that_only_the_other_replica_had_cleaned() -> None:
    world = overwritten(2, 1)
    second = min(world.source.offset_of) + 1
    world.target.cleaned.add(second)
    del world.known.taken[second]
    with pytest.raises(Violation, match="source offset 0 stands after 1"):
        check_order_of_keys(world)
    world.target.unseen[1, 1] = {second}
    check_order_of_keys(world)


@pytest.mark.parametrize("hidden_from", [0, 1, None])
def test_a_second_copy_is_excused_only_if_its_log_hid_the_first_one(hidden_from: int | None) -> None:
    world = overwritten(1, 1)
    if hidden_from is not None:
        world.target.hid[hidden_from, 1] = {min(world.source.offset_of)}
    assert is_hidden_copy(world, min(world.source.offset_of)) == (hidden_from == 1)


def test_a_hidden_copy_without_another_one_is_not_doubled() -> None:
    world = overwritten(1)
    world.target.hid[0, 1] = {min(world.source.offset_of)}
    assert not is_hidden_copy(world, min(world.source.offset_of))


def test_late_bytes_excuse_nothing_of_other_keys() -> None:
    """Record 1 came late, and has another key than record 2 and the foreign record."""
    world = overwritten(-2, 1, 2)
    world.target.keys = 2
    first = min(world.source.offset_of)
    world.excused.add(first)
    world.known.late.add(first)
    with pytest.raises(Violation, match="source offset 1 was put over a newer record"):
        check_order_of_keys(world)


@pytest.mark.parametrize(("lost", "is_excused"), [(-2, True), (-1, False), (-3, False)])
def test_a_skipped_record_is_unknown_only_if_a_newer_record_of_its_key_is_lost(lost: int, *, is_excused: bool) -> None:
    """Record 2 was acknowledged after foreign record 1, and was skipped because of foreign record 2 or 4. Foreign
    record 3 has another key."""
    world = overwritten(-4, 2)
    world.target.keys = 2
    second = min(world.source.offset_of) + 1
    world.known.taken[second] = 1
    world.target.lost[lost] = 2
    world.ledger.append(Entry(1, 0, (VerdictGiven(LANE, 1, (Verdict(1, 2, "compacted"),)),)))
    with nullcontext() if is_excused else pytest.raises(Violation, match="put over a newer record"):
        check_order_of_keys(world)


def test_a_foreign_record_is_newer_than_a_record_that_was_in_the_target_before_it() -> None:
    world = overwritten(-2)
    number = min(world.source.offset_of)
    assert not has_newer(world, number), "never appended"
    world.known.first_appended[number] = 2
    assert not has_newer(world, number), "appended after the foreign record"
    world.known.first_appended[number] = 1
    assert has_newer(world, number)


def test_a_lost_record_need_not_arrive_after_a_later_copied_one_of_its_key() -> None:
    """Also if the cleaner has removed the later one, because of a foreign record that is lost as well (decision 95)."""
    world = overwritten(2)
    first = min(world.source.offset_of)
    assert is_older_than_copied(world, first)
    assert not is_older_than_copied(world, first + 1)
    assert not is_older_than_copied(world, first + 2)
    world.target.keys = 2
    assert not is_older_than_copied(world, first), "of another key"


def test_a_record_that_a_lookup_took_for_cleaned_need_not_arrive() -> None:
    world = overwritten(-2)
    world.known.presumed.add(min(world.source.offset_of))
    assert has_newer(world, min(world.source.offset_of))


@pytest.mark.parametrize(
    ("kind", "source_ms", "above", "again", "is_presumed"),
    [
        ("last", 5, 0, (), True),
        ("between", 5, 0, (), True),
        ("between", 6, 0, (), False),
        ("between", 5, 1, (), False),
        ("between", 5, 0, ((0, 0),), False),
        ("lost", 5, 0, (), False),
    ],
)
def test_a_lookup_takes_a_record_for_cleaned_if_a_later_one_of_its_key_follows(
    kind: Literal["last", "between", "lost"],
    source_ms: int,
    above: int,
    again: tuple[tuple[int, int], ...],
    *,
    is_presumed: bool,
) -> None:
    world = World(1, shape_named("compacted copy, beside others"))
    world.target.keys = 1
    world.source.append(1, source_ms)
    world.target.foreign(1, 5)
    world.target.high_watermark = 1
    number = min(world.source.offset_of)
    asked = {number: Missing(kind, 0, 0, above, has_room=True)}
    assert presumed(world, asked, SupersededAnswer(1, 0, again, 1)) == ({number} if is_presumed else set())


@pytest.mark.parametrize("is_presumed", [False, True])
def test_a_record_that_a_lookup_took_for_cleaned_may_be_missing_when_the_newer_one_is_deleted(
    *, is_presumed: bool
) -> None:
    """An election has removed the record. The foreign record that the lookup found has been deleted since."""
    world = overwritten(-1)
    number = min(world.source.offset_of)
    world.known.presumed = {number} if is_presumed else set()
    for broker in world.target.brokers:
        broker.expire(1)
    assert was_cleaned(world, world.source.offset_of[number]) is is_presumed


@pytest.mark.parametrize(
    ("seen", "count", "may_be_missing"),
    [(2, 2, True), (1, 2, True), (0, 2, False), (2, 0, False), (2, 1, False)],
    ids=["deleted", "a later one as well", "not seen by the lookup", "not deleted", "an older one"],
)
def test_a_record_that_a_plan_left_out_may_be_missing_when_the_newer_one_is_deleted(
    seen: int, count: int, *, may_be_missing: bool
) -> None:
    """An election has removed the record. In the last case, the first foreign record is older than it."""
    world = overwritten(-1, -2)
    number = min(world.source.offset_of)
    world.known.appended[number] = 1 if count == 1 else 0
    world.known.looked_up[number] = [Lookup("r1", seen, 2)]
    world.known.leave_out([number])
    for broker in world.target.brokers:
        broker.expire(count)
    assert was_cleaned(world, world.source.offset_of[number]) is may_be_missing


def test_a_lookup_takes_a_deleted_record_for_cleaned_together_with_those_after_it() -> None:
    world = World(1, shape_named("compacted copy, beside others"))
    world.target.keys = 1
    world.source.append(1, 5)
    world.source.append(1, 5)
    world.source.expire(1)
    world.target.foreign(1, 5)
    world.target.high_watermark = 1
    runs = SimpleNamespace(source_runs=SimpleNamespace(offset_of=lambda ordinal: ordinal))
    question = AskSuperseded(1, (Missing("last", 0, 1, 0, has_room=True),), 1)
    asked = asked_about(world, runs, question)
    assert presumed(world, asked, SupersededAnswer(1, 0, (), 2)) == set(world.source.offset_of)


def test_the_verdict_that_a_record_was_cleaned_is_false_without_a_newer_one() -> None:
    world = overwritten(-1)
    number = min(world.source.offset_of)
    world.write((LaneOpened(LANE, "orders", "eu.orders", 0, 7, 0, "p"),), 1)
    world.write((LaneTaken(LANE, 1, "r1", (0, 0)),), 1)
    world.write((VerdictGiven(LANE, 1, (Verdict(0, 1, "compacted"),)),), 1)
    world.start_host(former_dead=True)
    assert false_verdicts(world) == "verdicts that are not true: [(0, 'compacted')]"
    world.target.foreign_numbers = 1
    world.known.first_appended[number] = 1
    assert false_verdicts(world), "the foreign record was there before"
    world.known.first_appended[number] = 0
    assert not false_verdicts(world)


@pytest.mark.parametrize(
    ("seen", "lost", "may_be_missing"),
    [(1, {-1}, True), (0, {-1}, False), (1, set(), False)],
    ids=["lost", "not seen by the lookup", "not lost"],
)
def test_a_key_may_be_missing_if_a_foreign_record_because_of_which_a_plan_left_it_out_was_lost(
    seen: int, lost: set[int], *, may_be_missing: bool
) -> None:
    """An election removed the copied record, a foreign one of its key was written, and the next election removed it."""
    world = overwritten()
    number = min(world.source.offset_of)
    world.target.lost = dict.fromkeys(lost | {number}, 2)
    assert not was_theirs(world, number)
    world.known.looked_up[number] = [Lookup("r1", seen, 2)]
    world.known.leave_out([number])
    assert was_theirs(world, number) is may_be_missing


@pytest.mark.parametrize(
    ("lost", "truncated", "end", "appended", "may_be_missing"),
    [
        ({-2}, 3, 3, False, True),
        ({-2}, 2, 3, False, True),
        ({-2}, 1, 3, False, False),
        ({-2}, 1, 1, False, True),
        ({-1}, 3, 3, False, False),
        (set(), 3, 3, False, False),
        ({-2}, 3, 3, True, False),
    ],
    ids=[
        "lost",
        "lost with what followed",
        "lost with its place",
        "lost with what the holder did not read",
        "an older one",
        "not lost",
        "appended since",
    ],
)
def test_a_key_may_be_missing_if_a_foreign_record_because_of_which_a_record_was_taken_for_cleaned_was_lost(
    monkeypatch: pytest.MonkeyPatch, lost: set[int], truncated: int, end: int, *, appended: bool, may_be_missing: bool
) -> None:
    """The cleaner had removed what was at offsets 0 and 1, because of the foreign record at 2. A record of the lane may
    have been there. The holder read the log up to `end`."""
    world = overwritten()
    number, leader = min(world.source.offset_of), world.target.brokers[0]
    for offset, foreign in enumerate((0, -1, -2)):
        leader.append(Stored(offset, 1, -1, -1, -1, 0, (foreign,), 1))
    del leader.log[:2]
    world.known.presume([number], leader, end, world.target.key)
    world.target.lost = dict.fromkeys(lost, 2)
    leader.truncate(truncated)
    if appended:
        monkeypatch.setattr(toy, "records", lambda number: [(0, number)])
        world.known.came_late(cast("bytes", number), 0)
    assert was_theirs(world, number) is may_be_missing


@pytest.mark.parametrize(
    ("standing", "lost", "hidden"),
    [((), {2}, {1}), ((2,), {3}, set()), ((1,), {2}, set()), ((-1,), {2}, set()), ((), set(), set())],
    ids=["all is gone", "a newer one is there", "it is there", "a foreign one is there", "nothing was lost"],
)
def test_a_log_hides_cleaned_records_of_which_it_has_lost_the_newer_ones(
    standing: tuple[int, ...], lost: set[int], hidden: set[int]
) -> None:
    target = FakeTarget()
    target.keys, target.lost = 1, dict.fromkeys(lost, 1)
    target.brokers[0].append(Stored(0, 1, 7, 0, 0, 0, (1,), 1))
    target.brokers[0].log.clear()
    for number in standing:
        stored = Stored(0 if number == 1 else 1, 1, 7, 0, 1, 0, (number,), 1)
        target.brokers[0].log.append(stored)
    assert target.hidden(0) == hidden


@pytest.mark.parametrize(
    ("runs", "is_look_up", "apart"),
    [
        ((Run(0, 0),), True, False),
        ((Run(0, 0), Run(2, 3)), True, True),
        ((Run(0, 0), Run(3, 4)), True, True),
        ((Run(0, 0), Run(1, 2)), True, False),
        ((Run(0, 0), Run(2, 3)), False, False),
    ],
)
def test_a_lane_may_halt_if_a_rebuilt_map_would_move_looked_up_ordinals(
    runs: tuple[Run, ...], *, is_look_up: bool, apart: bool
) -> None:
    """Ordinals 0 and 1 were compared, and a lookup took ordinals 2 and 3 for appended."""
    world = overwritten(1)
    displaced = (Displaced(2, 3, 5, 1, is_look_up),)
    world.write((LaneOpened(LANE, "orders", "eu.orders", 0, 7, 0, "p"), LaneTaken(LANE, 1, "r1", (0, 0))), 1)
    world.write((SourceRun(LANE, 1, runs), TargetRun(LANE, 1, 4, 6, 1, displaced)), 1)
    world.write((TakeoverChecked(LANE, 1, 0, 1, "different"),), 1)
    assert are_apart(world.truth.lanes[LANE]) == apart


@pytest.mark.parametrize(("regiven", "expired", "deleted"), [(True, 2, True), (True, 1, False), (False, 2, False)])
def test_a_lane_may_halt_if_records_under_reassigned_ordinals_were_deleted_before_a_comparison(
    *, regiven: bool, expired: int, deleted: bool
) -> None:
    """Ordinals 0 and 1 were given to the records at source offsets 0 and 1, and could not be compared."""
    world = World(1, shape_named("retention"))
    world.source.append(1, 0)
    world.source.append(1, 0)
    world.source.append(1, 0)
    world.write((LaneOpened(LANE, "orders", "eu.orders", 0, 7, 0, "p"), LaneTaken(LANE, 1, "r1", (0, 0))), 1)
    world.write((SourceRun(LANE, 1, (Run(0, 0),), regiven=regiven), TargetRun(LANE, 1, 0, 0, 1)), 1)
    world.write((TakeoverChecked(LANE, 1, 0, 1, "different"),), 1)
    world.source.expire(expired)
    assert not were_deleted(world, world.truth.lanes[LANE]), "the map was not rebuilt"
    world.known.unplaced = 0
    assert were_deleted(world, world.truth.lanes[LANE]) is deleted


@pytest.mark.parametrize(
    ("batches", "start", "is_stuck"),
    [
        ([(3, 3, 3), (0, 2, 4)], 4, True),
        ([(3, 3, 3), (0, 2, 4)], 3, False),
        ([(3, 4, 2), (0, 2, 4)], 4, False),
        ([(2, 2, 2), (0, 2, 4)], 4, False),
        ([(3, 3, 3)], 4, False),
    ],
)
def test_a_lane_may_halt_if_the_broker_takes_its_next_record_for_a_deleted_one(
    batches: list[tuple[int, int, int]], start: int, *, is_stuck: bool
) -> None:
    """The broker remembers these batches (first and last sequence, base offset). A longer batch could be split."""
    world = World(1, shape_named("target retention"))
    world.write((LaneOpened(LANE, "orders", "eu.orders", 0, 7, 0, "p"), LaneTaken(LANE, 1, "r1", (0, 0))), 1)
    broker = world.target.brokers[world.target.leader]
    broker.start = start
    assert not is_repeat_of_deleted(world)
    broker.memory[7] = Memory(0, 0, batches)
    assert is_repeat_of_deleted(world) is is_stuck


@pytest.mark.parametrize(("last", "is_behind"), [(0, True), (1, False)])
def test_a_leader_expects_an_ordinal_that_retention_has_deleted(last: int, *, is_behind: bool) -> None:
    """HALT. A holder copied deleted records again, because it did not know a position that was saved meanwhile."""
    world = World(1, shape_named("target retention"))
    world.write((LaneOpened(LANE, "orders", "eu.orders", 0, 7, 0, "p"), LaneTaken(LANE, 1, "r1", (0, 0))), 1)
    broker = world.target.brokers[world.target.leader]
    first = Stored(0, 2, 7, 0, 0, 0, (1, 2), 1)
    broker.append(first)
    broker.expire(2)
    broker.memory[7] = Memory(0, 0, [(0, last, 2)])
    assert not expects_a_copied_ordinal(world), "no holder has copied a deleted record again"
    world.target.unknown.appended(first, first.copies())
    assert expects_a_copied_ordinal(world) is is_behind


@pytest.mark.parametrize(("log_end", "excused"), [(0, {3, 4}), (2, {4}), (3, set[int]())])
def test_a_deleted_copy_counts_if_the_sender_of_a_second_one_had_read_the_first(
    log_end: int, excused: set[int]
) -> None:
    """DOUBLED. Retention has deleted records 3, 4 and 5, and records 3 and 4 are appended again."""
    broker = FakeTarget().brokers[0]
    broker.append(Stored(0, 2, 7, 0, 0, 0, (3, 5), 1))
    broker.append(Stored(2, 1, 7, 0, 2, 0, (4,), 1))
    broker.expire(3)
    assert {number for _, number in sent_meanwhile(broker, {3, 4}, log_end)} == excused


@pytest.mark.parametrize("is_recorded", [False, True])
def test_left_out_offsets_that_the_source_has_used_again_without_a_trace(*, is_recorded: bool) -> None:
    """The source loses the records from offset 1 on: an aborted one, the marker, and a copied one. It writes others
    there and deletes them before they are read. Unless the ledger says what the source has lost, nothing shows it."""
    world = World(1, shape_named("source truncated"))
    source = world.source
    source.append(1, 0)
    source.append(1, 0, producer=3)
    source.finish(3, 0, commit=False)
    source.append(1, 0)
    copied = {number for number, offset in source.offset_of.items() if offset in {0, 3}}
    left_out = Verdict(1, 2, "aborted"), Verdict(2, 3, "control")
    world.write((LaneOpened(LANE, "orders", "eu.orders", 0, 7, 0, "p"), LaneTaken(LANE, 1, "r1", (0, 0))), 1)
    world.write((SourceRun(LANE, 1, (Run(0, 0), Run(1, 3)), left_out),), 1)
    source.truncate(3)
    if is_recorded:
        source.notice(1)
    source.append(4, 0)
    assert taken_offsets(world, copied) == set()
    source.expire(2)
    assert taken_offsets(world, copied) == (set() if is_recorded else {1, 2, 3})
