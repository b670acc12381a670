"""A lane that is taken with the handover of the holder that drained it: when that counts, and what happens if not."""

from itertools import permutations

import pytest
from msgspec.structs import replace

from mirrord.ledger.facts.core import LaneHalted, LaneTaken, Progress
from mirrord.model.names import LaneId
from mirrord.model.runs import Run, Runs
from mirrord.replication.lane.lane_report import progress_record
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AppendFailed,
    AskEnd,
    AskProducers,
    Bound,
    Chunk,
    Drain,
    Drained,
    Effect,
    Effects,
    EndAnswer,
    FetchFrom,
    Gone,
    Input,
    Produce,
    ProducerEntry,
    ProducersAnswer,
    Start,
    StopFetch,
)
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.step import step
from tests.sim import toy
from tests.unit.replication.lane.test_answers import Record

LANE = LaneId("a.0.b")
GRANT, ORDINAL, END, EPOCH = 4, 10, 110, 3
WORD = Progress(
    LANE, 1, GRANT, ORDINAL, END, EPOCH, 20, 30, 1, 1, True, "drained", source_epoch=0, epochs_told=True
)  # fmt: skip


class Taking:
    """A lane that has just been told to start, and what it asked for."""

    def __init__(self, word: Progress | None = WORD, *, clean: bool = True, **known: object) -> None:
        self.record = Record(grant=GRANT, source_runs=Runs((Run(0, 10),)), target_runs=Runs((Run(0, 100),)))
        for name, value in known.items():
            setattr(self.record, name, value)
        self.lane = Lane(LANE, "orders", "eu.orders", 0, "p", True, toy.rebuild)
        older = replace(WORD, ordinal=3, target_offset=103, state="copying")
        self.first = step(self.lane, 0.0, Start(self.record, older, "r", 0.0, clean, word))

    def asked(self, kind: type[Effect]) -> int:
        (found,) = [each for each in self.first if isinstance(each, kind)]
        return found.tag if isinstance(found, Append) else found.question  # type: ignore[attr-defined,no-any-return]

    def take(self) -> Bound:
        """The ledger grants the lane to us."""
        self.record.grant, self.record.replicator = GRANT + 1, "r"
        return Bound(self.asked(Append), (True,), self.record)

    def end(self, epoch: int = EPOCH, end: int = END, error: int = 0) -> EndAnswer:
        return EndAnswer(self.asked(AskEnd), error, epoch, end)

    def producers(self, last: int | None = ORDINAL - 1, age_ms: int = 0) -> ProducersAnswer:
        return ProducersAnswer(self.asked(AskProducers), 0, None if last is None else ProducerEntry(last, age_ms))

    def chunk(self) -> Chunk:
        data = toy.encode(20, 21, [(20, 20), (21, 21)], newest_ms=1)
        return Chunk(self.asked(FetchFrom), 0, 30, 30, 0, (), bytearray(data), 0, len(data))

    def hear(self, *signals: Input) -> Effects:
        return [effect for signal in signals for effect in step(self.lane, 0.0, signal)]


def begins_anew(effects: Effects) -> bool:
    """The sandwich is asked for from its first question on, and what was fetched early is dropped."""
    kinds = [type(each) for each in effects]
    return kinds.count(AskEnd) == 1 and kinds.index(StopFetch) < kinds.index(AskEnd) and Produce not in kinds


def test_everything_is_asked_at_once() -> None:
    taking = Taking()
    assert [type(each) for each in taking.first] == [Append, AskEnd, AskProducers, FetchFrom]
    append, _, producers, fetch = taking.first
    assert isinstance(append, Append)
    assert append.facts == (LaneTaken(LANE, GRANT + 1, "r"),)
    assert isinstance(producers, AskProducers)
    assert producers.producer_id == 7
    assert isinstance(fetch, FetchFrom)
    assert (fetch.position, fetch.last_epoch) == (20, 0)


@pytest.mark.parametrize("order", list(permutations(range(4))))
def test_it_copies_when_all_is_answered_whatever_comes_first(order: tuple[int, ...]) -> None:
    taking = Taking()
    answers = [taking.take, taking.end, taking.producers, taking.chunk]
    effects = taking.hear(*(answers[at]() for at in order[:-1]))
    assert not [each for each in effects if isinstance(each, Produce)]
    assert (taking.lane.phase is Phase.COPYING) == (order[-1] == 3)
    effects += taking.hear(answers[order[-1]]())
    (produce,) = [each for each in effects if isinstance(each, Produce)]
    assert (produce.batches[0].first, taking.lane.expected, taking.lane.grant) == (ORDINAL, END, GRANT + 1)
    assert taking.lane.protected
    fetches = [each.position for each in effects if isinstance(each, FetchFrom)]
    assert fetches == [22], "what was fetched early is not fetched again"


@pytest.mark.parametrize(
    "word",
    [
        None,
        replace(WORD, grant=GRANT - 1),
        replace(WORD, grant=GRANT + 1),
        replace(WORD, state="copying"),
        replace(WORD, protected=False),
        replace(WORD, ordinal=0),
    ],
)
def test_a_handoff_checkpoint_that_is_not_enough(word: Progress | None) -> None:
    taking = Taking(word)
    assert [type(each) for each in taking.first] == [Append]
    assert begins_anew(taking.hear(taking.take()))
    newest = word is not None and word.grant == GRANT and word.state == "drained"
    assert taking.lane.resume_position.ordinal == (word.ordinal if newest and word is not None else 3)


def test_a_handoff_checkpoint_does_not_count_if_the_lane_was_not_left_cleanly() -> None:
    assert [type(each) for each in Taking(clean=False).first] == [Append]


def test_a_lane_that_stood_still_asks_one_question_after_the_other() -> None:
    halted = LaneHalted(LANE, GRANT, "unreadable", "line", 0, 0)
    assert [type(each) for each in Taking(halted=halted).first] == [Append]


@pytest.mark.parametrize("bound_first", [True, False])
@pytest.mark.parametrize(
    ("end", "producers"),
    [
        ({"end": END + 1}, {}),
        ({"end": END - 1}, {}),
        ({"epoch": EPOCH + 1}, {}),
        ({"error": 6}, {}),
        ({}, {"last": None}),
        ({}, {"last": ORDINAL}),
        ({}, {"last": ORDINAL - 2}),
        ({}, {"age_ms": 20 * 3_600_000}),
    ],
)
def test_a_target_that_says_something_else(
    end: dict[str, int], producers: dict[str, int | None], bound_first: bool
) -> None:
    taking = Taking()
    answers: list[Input] = [taking.chunk(), taking.end(**end), taking.producers(**producers)]  # type: ignore[arg-type]
    answers.insert(0 if bound_first else len(answers), taking.take())
    assert begins_anew(taking.hear(*answers))
    assert taking.lane.phase is Phase.RESUMING
    assert taking.hear(taking.end(), taking.producers(), taking.chunk()) == [], "answers to what was asked before"


def test_another_holder_took_the_lane_in_the_meantime() -> None:
    taking = Taking()
    taking.record.grant, taking.record.replicator = GRANT + 1, "another"
    effects = taking.hear(
        taking.chunk(), taking.end(), taking.producers(), Bound(taking.asked(Append), (False,), taking.record)
    )
    assert [type(each) for each in effects] == [StopFetch, Gone]


def test_a_ledger_that_does_not_answer() -> None:
    taking = Taking()
    effects = taking.hear(taking.chunk(), taking.end(), AppendFailed(taking.asked(Append), taking.record))
    assert StopFetch in [type(each) for each in effects]
    assert (taking.lane.takeover.fast_handoff, taking.hear(taking.producers())) == (None, [])


def test_the_ledger_holds_more_than_was_read_at_the_start() -> None:
    """What its last holder skipped after the last record, as it left."""
    taking = Taking()
    taking.hear(taking.chunk(), taking.end(), taking.producers())
    taking.record.source_runs.add(ORDINAL, 25)
    effects = taking.hear(taking.take())
    assert [each.position for each in effects if isinstance(each, FetchFrom)] == [25]
    assert taking.hear(taking.chunk()) == []
    assert not taking.lane.ready


def test_it_is_taken_away_again_before_it_copies() -> None:
    taking = Taking()
    taking.hear(taking.take(), taking.chunk())
    effects = taking.hear(Drain())
    assert Drained(clean=True) in effects
    assert taking.hear(taking.end(), taking.producers()) == []
    assert taking.lane.phase is Phase.DRAINED


@pytest.mark.parametrize("settled", [True, False])
def test_a_lane_that_leaves_before_it_has_resumed_knows_no_more_than_its_former_holder(*, settled: bool) -> None:
    """LOSS. The former holder had sent more than its resume position shows, because a comparison was pending. In a
    compacted target, the next holder would not look for these records, and would append them after newer values."""
    taking = Taking(replace(WORD, settled=settled))
    taking.hear(taking.take(), taking.chunk(), Drain())
    told = progress_record(taking.lane, 1, 1)
    assert told is not None
    assert (told.state, told.ordinal, told.settled) == ("drained", ORDINAL, settled)
