"""Batches that the target refuses as out of order, although its log was read before they were sent."""

import pytest

from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.ledger.facts.core import Progress, Rewound, VerdictGiven
from mirrord.model.intervals import Interval
from mirrord.replication.lane.lane_report import progress_record
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AskCheck,
    AskEnd,
    Batch,
    CheckAnswer,
    Effects,
    EndAnswer,
    FetchFrom,
    Halted,
    OwnBatch,
    Produce,
    ProduceAnswer,
    Wake,
    Woken,
)
from mirrord.replication.lane.state import SplitLimit
from mirrord.replication.lane.target import out_of_order
from mirrord.replication.lane.target.out_of_order import MOST_REFUSALS
from mirrord.replication.lane.target.superseded_records import AskSuperseded, SupersededAnswer
from tests.unit.replication.lane.target.test_target_retention import sandwich
from tests.unit.replication.lane.test_eighth_faults import read
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened, progress_at

OUT_OF_ORDER = 45
LAST = (OwnBatch(0, 5, 0, 0, 1),)
FOREIGN = ((5, 6), (9, 12))
"""The offsets 6 to 8 are empty: the cleaner removed records there."""


@pytest.fixture
def play() -> Faulty:
    play = opened(*BEGUN)
    play.take(None, cleanly=False)
    return play


def resumed(play: Faulty, effects: Effects) -> FetchFrom:
    """Compare the records with the source, and begin to copy."""
    for each in [each for each in effects if isinstance(each, AskCheck)]:
        effects += play.tell(CheckAnswer(each.question, 0, each.first, each.last, "equal", equal_until=each.last + 1))
    effects += play.bind_all(effects)
    assert play.lane.phase is Phase.COPYING
    return [each for each in effects if isinstance(each, FetchFrom)][-1]


def by_look_up(play: Faulty) -> FetchFrom:
    """Ordinals 0 to 4 are in the log. A lookup finds that records of another client are later than those of ordinals 5
    to 7, so these count as appended and removed."""
    asked = one(read(play, play.ask_target(12), (1, 12), own=LAST, others=FOREIGN), AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("last", 5, 7)]
    fetch = resumed(play, play.tell(SupersededAnswer(asked.question, 0, (), 8)))
    assert play.lane.next_ordinal == 8
    return fetch


def sent(play: Faulty, fetch: FetchFrom, end: int = 12) -> Produce:
    """Copy the next record."""
    effects = play.chunk(fetch, play.lane.position)
    effects += play.bind_all(effects)
    asked = one(effects, AskEnd)
    return one(play.tell(EndAnswer(asked.question, 0, 1, end)), Produce)


def refused(play: Faulty, fetch: FetchFrom, end: int = 12) -> Effects:
    """Copy the next record; the target refuses it. Return what follows after the pause."""
    produce = sent(play, fetch, end)
    effects = play.tell(ProduceAnswer(produce.round, produce.batches[0], OUT_OF_ORDER, -1))
    if play.lane.phase is Phase.HALTED:
        return effects
    wake = one(effects, Wake)
    play.now = wake.at
    return play.tell(Woken(wake.question))


def refused_twice(play: Faulty) -> Effects:
    """Return the effects after the target has been read for the second time since the lookup."""
    refused(play, by_look_up(play))
    fetch = resumed(play, read(play, play.ask_target(12), (1, 12), own=LAST, others=FOREIGN))
    assert play.lane.next_ordinal == 8
    refused(play, fetch)
    return read(play, play.ask_target(12), (1, 12), own=LAST, others=FOREIGN)


def in_doubt(play: Faulty, own: tuple[OwnBatch, ...], others: tuple[Interval, ...], *, until: int) -> AskSuperseded:
    """A lookup takes the last ordinals below `until` for appended, and the target refuses the next one twice. Return
    the lookup that follows."""
    asked = one(read(play, play.ask_target(12), (1, 12), own=own, others=others), AskSuperseded)
    (last,) = asked.missing
    assert (last.kind, last.last) == ("last", until - 1)
    refused(play, resumed(play, play.tell(SupersededAnswer(asked.question, 0, (), until))))
    refused(play, resumed(play, read(play, play.ask_target(12), (1, 12), own=own, others=others)))
    return one(read(play, play.ask_target(12), (1, 12), own=own, others=others), AskSuperseded)


def gone_back(play: Faulty, *, compacts: bool = True) -> tuple[Progress, FetchFrom]:
    """A holder saves the position after the lookup and ends. The target refuses the next holder's batches. Nothing is
    newer than ordinals 5 to 7 any more, so that holder goes back to 5 and copies all three records again."""
    by_look_up(play)
    saved = progress_record(play.lane, 1, 1)
    assert saved is not None
    assert (saved.ordinal, saved.target_offset) == (8, 12)
    play.take(saved, cleanly=False)
    for _ in range(2):
        refused(play, resumed(play, read(play, play.ask_target(12), (1, 12), own=LAST, others=FOREIGN)))
    effects = read(play, play.ask_target(12), (1, 12), own=LAST, others=FOREIGN, compacts=compacts)
    asked = one(effects, AskSuperseded)
    fetch = resumed(play, play.tell(SupersededAnswer(asked.question, 0, ((5, 7),))))
    assert (play.lane.next_ordinal, play.lane.position) == (5, 5)
    return saved, fetch


@pytest.mark.parametrize("compacts", [True, False])
def test_the_ledger_revokes_a_position_that_refusals_disprove(play: Faulty, *, compacts: bool) -> None:
    """HALT. The holder that went back ends before it saves its position. The next one finds the records of ordinal 5
    after the former position and must not take them for a second copy."""
    saved, fetch = gone_back(play, compacts=compacts)
    batch = sent(play, fetch).batches[0]
    assert (batch.first, batch.count) == (5, 1)
    assert [rewound for _, rewound in play.record.rewinds] == [Rewound(8, 5, 12, 1)]
    play.take(saved, cleanly=False)
    own = (*LAST, OwnBatch(12, 1, 5, 0, 1))
    effects = read(play, play.ask_target(13), (1, 13), own=own, others=FOREIGN, compacts=compacts)
    if compacts:
        asked = one(effects, AskSuperseded)
        assert [(each.kind, each.first, each.last) for each in asked.missing] == [("lost", 6, 7)]
        effects = play.tell(SupersededAnswer(asked.question, 0, ((6, 7),)))
    resumed(play, effects)
    assert (play.lane.next_ordinal, play.lane.position) == (6, 6)


def test_a_revoked_position_does_not_count_even_if_the_broker_forgets_the_producer(play: Faulty) -> None:
    """LOSS. The broker would accept ordinal 8, and the records of ordinals 5 to 7 would never be copied."""
    saved, _ = gone_back(play)
    play.take(saved, cleanly=False)
    resumed(play, read(play, play.ask_target(12), (1, 12), own=LAST, others=FOREIGN))
    assert (play.lane.next_ordinal, play.lane.position) == (5, 5)


def test_a_broker_that_remembers_the_producer_disproves_a_lookup(play: Faulty) -> None:
    """HALT. The broker refuses the ordinal after those that a lookup took for appended. It keeps the last batch of a
    producer that it remembers, so nothing was appended after this batch."""
    asked = one(refused_twice(play), AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("lost", 5, 7)]
    effects = play.tell(SupersededAnswer(asked.question, 0, ((6, 6),)))
    facts = one(effects, Append).facts
    verdicts = [each for fact in facts if isinstance(fact, VerdictGiven) for each in fact.verdicts]
    assert [(each.start, each.end, each.reason) for each in verdicts] == [(5, 6, "compacted"), (7, 8, "compacted")]
    play.bind_all(effects)
    assert [rewound for _, rewound in play.record.rewinds] == [Rewound(5, 5, 12, 1)]
    assert (play.lane.phase, play.lane.next_ordinal, play.lane.position) == (Phase.COPYING, 5, 6)


def test_the_refusals_do_not_cast_doubt_on_gaps_before_the_last_own_batch() -> None:
    """STALE VALUE. The cleaner removed ordinal 3 because of another client's tombstone, which it has removed as well.
    The record would be copied again if it were looked up, although the log has lost nothing since the resume."""
    play = opened(*BEGUN)
    play.take(progress_at(5), cleanly=False)
    own, others = (OwnBatch(0, 3, 0, 0, 1), OwnBatch(4, 1, 4, 0, 1)), ((5, 6), (9, 12))
    asked = in_doubt(play, own, others, until=8)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("lost", 5, 7)]


def test_a_first_refusal_may_be_due_to_a_late_batch(play: Faulty) -> None:
    refused(play, by_look_up(play))
    own = (*LAST, OwnBatch(12, 2, 8, 0, 1))
    resumed(play, read(play, play.ask_target(14), (1, 14), own=own, others=FOREIGN))
    assert play.lane.next_ordinal == 10


def test_an_accepted_batch_ends_the_doubt(play: Faulty) -> None:
    refused(play, by_look_up(play))
    produce = sent(play, resumed(play, read(play, play.ask_target(12), (1, 12), own=LAST, others=FOREIGN)))
    play.tell(ProduceAnswer(produce.round, produce.batches[0], 0, 12))
    assert play.lane.log.out_of_order == (-1, -1, 0)


def test_another_leader_may_have_forgotten_the_producer(play: Faulty) -> None:
    refused(play, by_look_up(play))
    fetch = resumed(play, read(play, play.ask_target(12), (1, 12), own=LAST, others=FOREIGN))
    refused(play, fetch)
    resumed(play, read(play, play.ask_target(12, epoch=2), (1, 12), own=LAST, others=FOREIGN))
    assert play.lane.next_ordinal == 8


def behind_the_log(play: Faulty, last: int | None) -> Effects:
    """Ordinals 0 to 9 were acknowledged, and a holder saved the position after them. The leader's cleaner removed 5 to
    9 because of other clients' newer records. A replica that copied the cleaned log remembers ordinal 4 as the
    producer's last one, and is elected without any loss. Answer the questions about its log; `last`: the last ordinal
    that the broker says it remembers, if it says anything."""
    return read(play, play.ask_target(16, epoch=2, last=last), (1, 16), own=LAST, others=((10, 14), (15, 16)))


@pytest.mark.parametrize("last", [None, 4])
def test_refusals_do_not_cast_doubt_on_acknowledged_records_of_an_unchanged_log(last: int | None) -> None:
    """STALE VALUE. A deleted key would have a value again if its record were looked up as a lost one, because the
    cleaner has removed the tombstone. The lane cannot go on, as the broker does not accept the next ordinal either."""
    play = opened(*BEGUN)
    play.take(progress_at(10))
    effects: Effects = []
    for times in range(1, MOST_REFUSALS + 1):
        effects = behind_the_log(play, last)
        if asked := [each for each in effects if isinstance(each, AskSuperseded)]:
            # The offset 14 is empty: another client's tombstone was there.
            assert [(each.kind, each.first, each.last) for each in asked[0].missing] == [("last", 10, 10)]
            effects = play.tell(SupersededAnswer(asked[0].question, 0))
        fetch = resumed(play, effects)
        assert (play.lane.next_ordinal, play.lane.position) == (10, 10)
        effects = play.chunk(fetch, 10)
        effects += play.bind_all(effects)
        for each in [each for each in effects if isinstance(each, AskEnd)]:
            effects += play.tell(EndAnswer(each.question, 0, 2, 16))
        produce = one(effects, Produce)
        effects = play.tell(ProduceAnswer(produce.round, produce.batches[0], OUT_OF_ORDER, -1))
        if times < MOST_REFUSALS:
            wake = one(effects, Wake)
            play.now = wake.at
            play.tell(Woken(wake.question))
    assert "what the target remembers about the lane's producer does not match its log" in one(effects, Halted).line


def test_a_broker_that_says_what_it_remembers_disproves_a_lookup_too(play: Faulty) -> None:
    """HALT. The broker had forgotten the producer when the keys were looked up. Its successor has not."""
    by_look_up(play)
    saved = progress_record(play.lane, 1, 1)
    play.take(saved)
    for _ in range(2):
        effects = read(play, play.ask_target(12, last=4), (1, 12), own=LAST, others=FOREIGN)
        effects = play.chunk(resumed(play, effects), 8)
        produce = one([*effects, *play.bind_all(effects)], Produce)
        wake = one(play.tell(ProduceAnswer(produce.round, produce.batches[0], OUT_OF_ORDER, -1)), Wake)
        play.now = wake.at
        play.tell(Woken(wake.question))
    asked = one(read(play, play.ask_target(12, last=4), (1, 12), own=LAST, others=FOREIGN), AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("lost", 5, 7)]
    resumed(play, play.tell(SupersededAnswer(asked.question, 0, ((5, 7),))))
    assert (play.lane.next_ordinal, play.lane.position) == (5, 5)


def test_only_ordinals_that_a_lookup_took_for_appended_are_in_doubt() -> None:
    """STALE VALUE. The cleaner removed the acknowledged ordinals 5 to 7 as well, and with them the only sign that the
    lane had written them."""
    play = opened(*BEGUN)
    play.take(progress_at(8), cleanly=False)
    others = ((8, 9), (11, 12))
    asked = in_doubt(play, LAST, others, until=10)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("lost", 8, 9)]
    resumed(play, play.tell(SupersededAnswer(asked.question, 0, ((8, 9),))))
    assert (play.lane.next_ordinal, play.lane.position) == (8, 8)
    assert [rewound for _, rewound in play.record.rewinds] == [Rewound(10, 8, 12, 1)]


def test_a_lane_halts_if_the_broker_remembers_a_batch_that_its_log_lacks(play: Faulty) -> None:
    refused(play, by_look_up(play))
    refused(play, resumed(play, read(play, play.ask_target(12), (1, 12), own=LAST, others=FOREIGN)))
    halted = one(read(play, play.ask_target(12), (1, 12), own=(), others=FOREIGN), Halted)
    assert halted.line.endswith(
        "the target refuses ordinal 8 as out of order, but its log contains no batch of the lane"
    )


def test_a_broker_remembers_a_batch_that_retention_has_deleted(play: Faulty) -> None:
    """HALT. An unclean election removed ordinals 5 to 7, and retention on the target has deleted ordinals 0 to 4. The
    broker remembers ordinal 4 as the last one, so the records of ordinals 5 to 7 are looked up again."""

    def ask(last: int) -> Effects:
        return read(play, sandwich(play, last, 12, 9), (1, 12), own=(), others=((9, 12),))

    asked = one(read(play, play.ask_target(12), (1, 12), own=LAST, others=FOREIGN), AskSuperseded)
    refused(play, resumed(play, play.tell(SupersededAnswer(asked.question, 0, (), 8))))
    effects = play.chunk(resumed(play, ask(4)), 8)
    produce = one([*effects, *play.bind_all(effects)], Produce)
    wake = one(play.tell(ProduceAnswer(produce.round, produce.batches[0], OUT_OF_ORDER, -1)), Wake)
    play.now = wake.at
    play.tell(Woken(wake.question))
    again = one(ask(4), AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in again.missing] == [("lost", 5, 7)]
    resumed(play, play.tell(SupersededAnswer(again.question, 0, ((5, 7),))))
    assert (play.lane.next_ordinal, play.lane.position) == (5, 5)


def test_a_batch_that_the_broker_takes_for_a_deleted_one_again_is_split(play: Faulty) -> None:
    """HALT. The broker remembers a batch with the same sequences from before the log lost records, although its last
    sequence shows that this batch is the next one."""
    batch = Batch(8, 3, 40, 43, bytearray(), 0, 0, 1, None)
    assert out_of_order.refused(play.lane, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, batch) == []
    assert play.lane.refusal.split is None, "the first answer may be about a batch that a former holder sent meanwhile"
    assert out_of_order.refused(play.lane, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, batch) == []
    assert play.lane.refusal.split == SplitLimit(40, 43, 1)


def test_a_lane_halts_if_the_broker_keeps_taking_a_single_record_for_a_deleted_one(play: Faulty) -> None:
    """The batch cannot be split, and the broker accepts no other ordinal. The line says what the broker answered."""
    batch = Batch(8, 1, 40, 41, bytearray(), 0, 0, 1, None)
    for _ in range(MOST_REFUSALS - 1):
        assert out_of_order.refused(play.lane, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, batch) == []
    assert play.lane.refusal.split is None
    halted = one(out_of_order.refused(play.lane, ErrorCode.DUPLICATE_SEQUENCE_NUMBER, batch), Halted)
    assert "the target has treated ordinal 8 as a repeat of a deleted one 100 times in succession" in halted.line


def test_a_lane_halts_if_the_log_does_not_show_why_the_target_refuses_its_next_batch(play: Faulty) -> None:
    """HALT. Without a halt, the lane would retry forever, and no one would learn of it."""
    for _ in range(MOST_REFUSALS - 1):
        refused(play, resumed(play, read(play, play.ask_target(5), (1, 5), own=LAST, others=())), end=5)
        assert play.lane.phase is Phase.RESUMING
    fetch = resumed(play, read(play, play.ask_target(5), (1, 5), own=LAST, others=()))
    halted = one(refused(play, fetch, end=5), Halted)
    assert f"the target has refused ordinal 5 as out of order {MOST_REFUSALS} times in succession" in halted.line
