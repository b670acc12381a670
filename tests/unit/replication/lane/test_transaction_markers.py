"""Transactions: the ordinal of the next record is recorded with the marker before it, so that it need not wait."""

from msgspec.structs import replace

from mirrord.kafka.protocol.record_batch import CONTROL, TRANSACTIONAL
from mirrord.ledger.facts.core import SourceRun, Verdict
from mirrord.model.runs import Run
from mirrord.replication.lane.signals import Append, Bound, Effects
from mirrord.replication.lane.step import step
from tests.unit.replication.lane.source.test_source_epochs import chunk, data, fetch_of
from tests.unit.replication.lane.test_answers import Record, copying

MARKER = CONTROL | TRANSACTIONAL


class Play:
    """A lane that is given chunks, and a ledger that takes its facts at once."""

    def __init__(self) -> None:
        self.lane, self.fetch = copying()

    def take(self, *batches: tuple[int, int, int], end: int) -> list[SourceRun]:
        """Batches as (base, count, attributes), up to the end of the source's log; the runs recorded for them."""
        found = data(*((base, count, 0, attributes) for base, count, attributes in batches))
        effects = step(self.lane, 0.0, chunk(self.fetch, found, high_watermark=end, last_stable=end))
        self.fetch = fetch_of(effects)
        return self.bind(effects)

    def bind(self, effects: Effects) -> list[SourceRun]:
        record, facts = self.lane.record, list[SourceRun]()
        assert isinstance(record, Record)
        for append in [each for each in effects if isinstance(each, Append)]:
            for fact in append.facts:
                assert isinstance(fact, SourceRun)
                for run in fact.runs:
                    record.source_runs.add(run.ordinal, run.offset)
                facts.append(fact)
            step(self.lane, 0.0, Bound(append.tag, (True,) * len(append.facts), record))
        return facts


def runs_of(facts: list[SourceRun]) -> list[tuple[tuple[Run, ...], tuple[Verdict, ...]]]:
    return [(fact.runs, fact.verdicts) for fact in facts]


def control(start: int, end: int) -> Verdict:
    return Verdict(start, end, "control")


def test_the_record_after_a_marker_is_recorded_with_it() -> None:
    play = Play()
    (first,) = play.take((0, 2, TRANSACTIONAL), (2, 1, MARKER), end=3)
    assert (first.runs, first.verdicts) == ((Run(0, 0), Run(2, 3)), (control(2, 3),))
    assert runs_of(play.take((3, 4, TRANSACTIONAL), (7, 1, MARKER), end=8)) == [((Run(6, 8),), (control(7, 8),))]
    assert runs_of(play.take((8, 1, 0), end=9)) == [], "it stands where it was told to"


def test_ready_batches_do_not_wait_for_later_ones() -> None:
    play = Play()
    play.take((0, 2, TRANSACTIONAL), (2, 1, MARKER), end=3)
    found = data((3, 4, 0, TRANSACTIONAL), (7, 1, 0, MARKER))
    step(play.lane, 0.0, chunk(play.fetch, found, high_watermark=8, last_stable=8))
    assert [ordinal for _, ordinal in play.lane.intents] == [6], "ordinals 2 to 5 may be sent"


def test_nothing_is_recorded_ahead_while_more_records_follow() -> None:
    play = Play()
    (first,) = play.take((0, 2, TRANSACTIONAL), (2, 1, MARKER), end=50)
    assert first.runs == (Run(0, 0),)
    assert runs_of(play.take((3, 1, TRANSACTIONAL), end=50)) == [((Run(2, 3),), (control(2, 3),))]


def test_markers_without_records_are_recorded_with_the_next_record() -> None:
    play = Play()
    play.take((0, 2, TRANSACTIONAL), (2, 1, MARKER), end=3)
    for at in range(3, 9):
        assert play.take((at, 1, MARKER), end=at + 1) == []
    assert runs_of(play.take((9, 1, 0), end=10)) == [((Run(2, 9),), (control(3, 9),))]


def test_a_hole_after_a_marker_supersedes_what_was_recorded() -> None:
    play = Play()
    play.take((0, 2, TRANSACTIONAL), (2, 1, MARKER), end=3)
    runs = runs_of(play.take((5, 1, 0), end=6))
    assert runs == [((Run(2, 5),), (Verdict(3, 5, "compacted"),))]
    assert play.lane.record is not None
    assert play.lane.record.source_runs.offset_of(2) == 5


def test_aborted_records_without_a_marker_are_not_recorded_ahead() -> None:
    play = Play()
    play.take((0, 2, 0), end=2)
    found = data((2, 2, 0, TRANSACTIONAL))
    effects = step(
        play.lane, 0.0, replace(chunk(play.fetch, found, high_watermark=4, last_stable=4), aborted=((-1, 2),))
    )
    assert play.bind(effects) == []
