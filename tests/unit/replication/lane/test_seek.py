"""Commands to continue further ahead in the source: what a lane makes of them, and which can be given."""

import json

import pytest

from mirrord.cli import main as cli
from mirrord.config.schema import Config
from mirrord.kafka.protocol.errors import ErrorCode
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.core import (
    AnyFact,
    LaneHalted,
    LaneResumed,
    LaneTaken,
    LeaseTaken,
    Progress,
    SourceRun,
    Verdict,
)
from mirrord.ledger.facts.seeks import LaneSought, SeekDone
from mirrord.ledger.fold import fold
from mirrord.ledger.gaps import Gaps
from mirrord.ledger.quarantine import Parked
from mirrord.ledger.seeks import KEPT, Seek, Seeks, Standing, cut, done, passed, sought
from mirrord.ledger.standing_orders import Order, Orders
from mirrord.ledger.state import FlowState
from mirrord.model.errors import ConfigError
from mirrord.model.names import TopicPartition
from mirrord.model.runs import Run
from mirrord.operations import flow_lookup, seek_preview
from mirrord.operations.status_report import LedgerView
from mirrord.replication.lane.limits import NEVER
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import (
    Append,
    AskDivergence,
    AskEnd,
    AskScan,
    DivergenceAnswer,
    Effects,
    EndAnswer,
    FetchFrom,
    Lost,
    OwnBatch,
    ProduceAnswer,
    ProducersAnswer,
    Released,
    ScanAnswer,
    VisibleAnswer,
    Wake,
    Woken,
)
from mirrord.replication.lane.source.batch_splitting import left_out_here, next_piece
from mirrord.replication.lane.source.left_out_ranges import LeftOut, left_out
from mirrord.replication.lane.state import Lane
from mirrord.replication.lane.step import step
from mirrord.supervision.rules.order_resolution import Decision, FlowView, decide, find
from mirrord.supervision.rules.seek_orders import rule
from tests.fixtures.ledger import FLOW, HOLDER, entry, lane_id, opened
from tests.unit.cli.verbs.test_order_verbs import Daemons, conf, daemons
from tests.unit.replication.lane.test_answers import Record, chunk, copying, in_flight

__all__ = ["conf", "daemons"]

LANE = lane_id(0)
ADA = Origin("ada@host", "broken", 0)


def order(end: int, start: int = 0, log_start: int = 0) -> LaneSought:
    return LaneSought(LANE, start, end, log_start, ADA)


def facts_in(effects: Effects) -> list[object]:
    return [fact for effect in effects if isinstance(effect, Append) for fact in effect.facts]


def give(lane: Lane, end: int, start: int = 0, log_start: int = 0) -> Effects:
    """The ledger holds a command."""
    assert isinstance(lane.record, Record)
    seeks = sought(lane.record.seeks, order(end, start, log_start))
    assert seeks is not None
    lane.record.seeks = seeks
    return step(lane, 0.0, Released(ahead=True))


def resume(lane: Lane, end: int = 0) -> Effects:
    """The target is asked where it ends, and what it remembers."""
    step(lane, 0.0, EndAnswer(lane.asked, 0, 1, end))
    step(lane, 0.0, ProducersAnswer(lane.asked, 0, None))
    step(lane, 0.0, EndAnswer(lane.asked, 0, 1, end))
    return step(lane, 0.0, VisibleAnswer(lane.asked, 0, end, 0))


def confirm_end(lane: Lane, effects: Effects, end: int = 0) -> Effects:
    """The target is asked again where it ends, before the records are skipped."""
    (ask,) = effects
    assert isinstance(ask, AskEnd)
    return step(lane, 0.0, EndAnswer(ask.question, 0, 1, end))


@pytest.mark.parametrize(("error", "epoch"), [(0, 3), (ErrorCode.OFFSET_OUT_OF_RANGE, -1)])
def test_a_lane_with_nothing_in_flight_continues_there(error: int, epoch: int) -> None:
    """It has copied nothing, so it asks only for the source's leader epoch, and for those of the skipped records."""
    lane, _ = copying()
    lane.source_end = 9
    assert any(isinstance(each, AskEnd) for each in give(lane, 7, log_start=2))
    (ask,) = [each for each in resume(lane) if isinstance(each, AskDivergence)]
    assert (ask.position, ask.epoch) == (7, -1)
    effects = step(lane, 0.0, DivergenceAnswer(ask.question, error, leader_epoch=epoch))
    for asked_for, found in ((3, (3, 9)), (2, (1, 4)), (0, (0, 2))) if epoch >= 0 else ():
        (ask,) = [each for each in effects if isinstance(each, AskDivergence)]
        assert (ask.position, ask.epoch) == (NEVER, asked_for)
        effects = step(lane, 0.0, DivergenceAnswer(ask.question, 0, *found, epoch))
    effects = confirm_end(lane, effects)
    verdicts = (Verdict(0, 2, "expired"), Verdict(2, 7, "skipped"))
    assert facts_in(effects) == [
        SeekDone(lane.id, lane.grant, 0, 7, epoch, ((2, 1), (4, 3)) if epoch >= 0 else ()),
        SourceRun(lane.id, lane.grant, (Run(0, 7),), verdicts, ((0, -1),)),
    ]
    assert any(isinstance(each, FetchFrom if epoch < 0 else AskDivergence) for each in effects)
    assert lane.position == 7
    (line,) = [each.line for each in effects if isinstance(each, Lost)]
    assert line.startswith("orders-0: source offsets [0, 7) are skipped by ada@host at ")


def asked_for_epochs(lane: Lane, effects: Effects, epoch: int = 3) -> AskDivergence:
    """The source's leader epoch is known, and the lane asks for those of the skipped records."""
    (ask,) = [each for each in effects if isinstance(each, AskDivergence)]
    effects = step(lane, 0.0, DivergenceAnswer(ask.question, 0, leader_epoch=epoch))
    (ask,) = [each for each in effects if isinstance(each, AskDivergence)]
    assert (ask.position, ask.epoch) == (NEVER, epoch)
    return ask


def test_a_source_that_does_not_tell_its_epochs() -> None:
    """An older broker does not look at the epoch in a fetch, and the position is above its log."""
    lane, _ = copying()
    lane.source_end = 9
    give(lane, 7)
    ask = asked_for_epochs(lane, resume(lane))
    effects = confirm_end(lane, step(lane, 0.0, DivergenceAnswer(ask.question, ErrorCode.OFFSET_OUT_OF_RANGE)))
    assert facts_in(effects)[0] == SeekDone(lane.id, lane.grant, 0, 7, 3)


def test_a_question_about_epochs_that_fails_is_repeated() -> None:
    lane, _ = copying()
    lane.source_end = 9
    give(lane, 7)
    ask = asked_for_epochs(lane, resume(lane))
    (wake,) = step(lane, 0.0, DivergenceAnswer(ask.question, ErrorCode.NOT_LEADER_OR_FOLLOWER))
    assert isinstance(wake, Wake)
    (again,) = step(lane, wake.at, Woken(wake.question))
    assert isinstance(again, AskDivergence)
    assert (again.position, again.epoch) == (NEVER, 3)


def test_another_leader_is_asked_from_the_beginning() -> None:
    lane, _ = copying()
    lane.source_end = 9
    give(lane, 7)
    ask = asked_for_epochs(lane, resume(lane))
    (ask,) = step(lane, 0.0, DivergenceAnswer(ask.question, 0, 3, 9, 3))
    assert isinstance(ask, AskDivergence)
    (ask,) = step(lane, 0.0, DivergenceAnswer(ask.question, 0, 2, 4, 5))  # the log of epoch 3 may have been another one
    assert isinstance(ask, AskDivergence)
    assert (ask.position, ask.epoch) == (NEVER, 5)


def test_records_that_the_source_has_lost_before_they_are_skipped() -> None:
    """The command waits until the source has grown to its end again."""
    lane, _ = copying()
    lane.source_end = 9
    give(lane, 7)
    ask = asked_for_epochs(lane, resume(lane))
    effects = step(lane, 0.0, DivergenceAnswer(ask.question, 0, 3, 6, 3))
    (fetch,) = [each for each in effects if isinstance(each, FetchFrom)]
    assert (fetch.position, facts_in(effects), [each.end for each in lane.seeks]) == (0, [], [7])
    assert lane.source_end == 6


def test_a_range_of_which_the_source_has_deleted_all_records() -> None:
    """Nothing is left whose epochs could matter."""
    lane, _ = copying()
    lane.source_end = 9
    give(lane, 7, log_start=7)
    (ask,) = [each for each in resume(lane) if isinstance(each, AskDivergence)]
    effects = confirm_end(lane, step(lane, 0.0, DivergenceAnswer(ask.question, 0, leader_epoch=3)))
    assert facts_in(effects)[0] == SeekDone(lane.id, lane.grant, 0, 7, 3)


def test_records_that_arrive_late_are_not_skipped() -> None:
    """FALSE VERDICT. A batch from a dead connection is appended while the lane asks for the epochs of the records."""
    lane, _ = copying()
    lane.source_end = 9
    give(lane, 7)
    ask = asked_for_epochs(lane, resume(lane))
    effects = step(lane, 0.0, DivergenceAnswer(ask.question, ErrorCode.OFFSET_OUT_OF_RANGE))
    (scan,) = confirm_end(lane, effects, 2)
    assert isinstance(scan, AskScan)
    effects = step(lane, 0.0, ScanAnswer(scan.question, 0, "confirm", scan.start, scan.end, (OwnBatch(0, 2, 0, 1),)))
    assert not facts_in(effects)
    assert lane.phase is Phase.RESUMING


def test_the_end_is_confirmed_again_before_the_records_after_the_range_are_sent() -> None:
    lane, _ = copying()
    lane.source_end = 9
    give(lane, 7)
    ask = asked_for_epochs(lane, resume(lane))
    effects = step(lane, 0.0, DivergenceAnswer(ask.question, ErrorCode.OFFSET_OUT_OF_RANGE))
    confirm_end(lane, effects)
    assert lane.confirm_end
    assert not lane.confirming


def test_a_seek_waits_for_batches_in_flight() -> None:
    lane, produce = in_flight()
    assert give(lane, 4) == []
    assert lane.phase is Phase.SETTLING
    effects = step(lane, 0.0, ProduceAnswer(produce.round, produce.batches[0], 0, 0))
    (wake,) = [each for each in effects if isinstance(each, Wake)]
    # The log shows which of them are there.
    assert [type(each) for each in step(lane, 1.0, Woken(wake.question))] == [AskEnd]


def test_a_halted_lane_continues_by_the_command() -> None:
    lane, _ = copying()
    lane.on_loss = "halt"
    step(lane, 0.0, chunk(lane, error=ErrorCode.OFFSET_OUT_OF_RANGE, log_start=5, high_watermark=9))
    assert lane.phase is Phase.HALTED
    assert LaneResumed(lane.id, lane.grant) in facts_in(give(lane, 7, log_start=5))
    assert lane.phase is Phase.RESUMING


def test_offsets_that_the_source_has_not_written_yet_are_not_skipped() -> None:
    lane, _ = copying()
    lane.source_end = 4
    assert give(lane, 7) == []
    assert lane.phase is Phase.COPYING
    assert [each.end for each in lane.seeks] == [7]


def test_records_before_the_seek_are_copied_first() -> None:
    lane, _ = copying()
    lane.source_end = 9
    assert give(lane, 7, start=2) == []
    assert lane.phase is Phase.COPYING


def test_an_order_for_what_is_copied_already_comes_to_nothing() -> None:
    lane, _ = copying()
    lane.source_end = 9
    lane.position = 5
    give(lane, 4)
    assert isinstance(lane.record, Record)
    lane.record.source_runs.add(0, 5)
    assert facts_in(resume(lane)) == [SeekDone(lane.id, lane.grant, 4, 4)]


def test_while_a_former_holder_may_write_the_lane_waits() -> None:
    lane, _ = copying()
    lane.source_end, lane.late_writes.former_holder_until, lane.late_writes.until = 9, 14.0, 14.0
    effects = give(lane, 7)
    assert [each.at for each in effects if isinstance(each, Wake)] == [14.0]
    assert lane.phase is Phase.WAITING


def test_offsets_that_a_lane_reaches_again_are_skipped_again() -> None:
    record = Record()
    record.seeks = (Seek(3, 9, 0, ADA, done=True), Seek(9, 12, 0, ADA))
    record.quarantine = (Parked(1, 2, 10, "refused", ADA), Parked(20, 21, 10, "refused"))
    assert left_out(record, 0) == [LeftOut(1, 2, "rejected"), LeftOut(3, 9, "skipped")]
    assert left_out(record, 9) == []


def test_a_seek_does_not_skip_records_of_a_later_epoch() -> None:
    """LOSS. The target had lost the records before the range, and the source has lost the skipped ones. While the lane
    copied records before the range again, it read the later epoch there. The source has others in the range now."""
    lane, _ = copying()
    record = Record()
    record.seeks = (Seek(0, 9, 0, ADA, done=True, epoch=3), Seek(9, 12, 0, ADA, done=True))
    lane.left_out = left_out(record, 0)
    lane.position, (known, unknown) = 4, lane.left_out
    for lane.epoch, left in ((-1, known), (3, known), (4, None)):
        assert left_out_here(lane) == left
        assert next_piece(lane, 4, 9).left_out == (None if left is None else "skipped")
    lane.position = 9
    assert left_out_here(lane) == unknown


def test_pending_seeks() -> None:
    assert sought((), order(9)) == (Seek(0, 9, 0, ADA),)
    first = sought((), order(9)) or ()
    assert sought(first, order(9)) is None
    assert sought(first, order(8)) is None
    both = sought(first, order(12, 4)) or ()
    assert done(both, SeekDone(LANE, 1, 5, 9)) == (Seek(5, 9, 0, ADA, done=True), Seek(4, 12, 0, ADA))
    carried = done(both, SeekDone(LANE, 1, 5, 12))
    assert carried == (Seek(5, 12, 0, ADA, done=True),)
    assert done(both, SeekDone(LANE, 1, 12, 12)) == ()
    assert (cut(carried, 11), cut(carried, 12)) == ((), carried)
    many: Seeks = ()
    for end in range(1, 2 * KEPT):
        many = done(sought(many, order(end, end - 1)) or (), SeekDone(LANE, 1, end - 1, end))
    assert len(many) == len(passed(many)) == KEPT


def ledger(*facts: AnyFact) -> tuple[FlowState, Gaps]:
    state = FlowState()
    gaps = Gaps(state)
    given = [(FLOW,), (LeaseTaken(1, HOLDER, 6000),), (opened(), LaneTaken(LANE, 1, "r"))]
    for offset, facts_there in enumerate([*given, *((fact,) for fact in facts)]):
        bound = fold(state, entry(*facts_there, epoch=1 if offset else 0), offset)
        for fact, binds in zip(facts_there, bound, strict=True):
            if binds:
                gaps.take(fact, 0)
    return state, gaps


def test_the_facts_that_record_a_seek() -> None:
    skipped = Verdict(4, 9, "skipped")
    runs = SourceRun(LANE, 1, (Run(4, 9),), (skipped,))
    facts = (SourceRun(LANE, 1, (Run(0, 0),)), order(9), order(9), SeekDone(LANE, 1, 4, 9), runs)
    state, gaps = ledger(*facts)
    assert state.lanes[LANE].seeks == (Seek(4, 9, 0, ADA, done=True),)
    assert state.standing(LANE) == Standing(0, (Seek(4, 9, 0, ADA, done=True),))
    assert [(gap.start, gap.end, gap.reason) for gap in gaps] == [(4, 9, "skipped")]
    # The source lost what was skipped, and other records have these offsets now.
    state, gaps = ledger(*facts, SourceRun(LANE, 1, (Run(4, 6),), (Verdict(6, 9, "truncated"),)))
    assert state.lanes[LANE].seeks == ()


def test_which_orders_can_be() -> None:
    at = Standing(10, (Seek(2, 8, 0, ADA, done=True), Seek(5, 20, 0, ADA)))
    assert rule("orders-0", LANE, Standing(10), 15, 3, ADA) == (
        LaneSought(LANE, 10, 15, 3, ADA),
        "orders-0 continues at source offset 15 and skips [10, 15)",
    )
    for to, what in ((8, "orders-0 has already continued at source offset 8, by ada@host"),
                     (10, "orders-0 is already at"),
                     (20, "orders-0 already has a command to continue at source offset 20")):  # fmt: skip
        fact, line = rule("orders-0", LANE, at, to, 0, ADA)
        assert fact is None
        assert line.startswith(what)
    for to, why in ((9, "is at source offset 10: going back to 9 would copy records twice"),
                    (15, "will continue at source offset 20, by ada@host")):  # fmt: skip
        with pytest.raises(ConfigError, match=why):
            rule("orders-0", LANE, at, to, 0, ADA)


def test_how_a_daemon_decides_on_a_seek() -> None:
    name = TopicPartition("orders", 0)
    view = FlowView("eu-us", {name: LANE}, [TopicPartition("old", 0)], [], {}, (), Orders.of(()))

    def decided(of: str, view: FlowView) -> Decision:
        given = Order(verb="seek", name=of, offset=2, until=9, by="ada@host", reason="broken")
        return decide(given, find(given, [view]), view, 0)

    with pytest.raises(ConfigError, match="has not begun yet"):
        decided("orders-0", view)
    with pytest.raises(ConfigError, match="is currently not copied"):
        decided("old-0", view)
    found = decided("orders-0", view._replace(standings={LANE: Standing(4)}))
    assert found.facts == (LaneSought(LANE, 4, 9, 2, ADA),)
    assert found.lanes == (name,)
    assert found.done == ("orders-0 of eu-us continues at source offset 9 and skips [4, 9)",)
    again = decided("orders-0", view._replace(standings={LANE: Standing(4, (Seek(4, 9, 0, ADA),))}))
    assert (again.facts, again.lanes) == ((), ())


@pytest.fixture
def halt() -> LaneHalted | None:
    """Why the lane is halted."""
    return None


@pytest.fixture
def known(daemons: Daemons, monkeypatch: pytest.MonkeyPatch, halt: LaneHalted | None) -> Daemons:
    """orders-0 is at source offset 150 of a source that holds [120, 300)."""
    state, _ = ledger(SourceRun(LANE, 1, (Run(0, 0),)), *([halt] if halt is not None else []))
    progress = Progress(LANE, 1, 1, 140, 160, 0, 150, 300, 0, 0, protected=True, state="copying")
    state.accept_progress(progress)

    async def read(config: Config, _: object) -> dict[str, LedgerView]:
        views = await daemons.read(config, _)
        if "eu-us" in views:
            state.holder = views["eu-us"].state.holder
            views["eu-us"] = LedgerView(views["eu-us"].flow, state, None)
        return views

    async def offsets(_: object, partitions: list[TopicPartition], which: str) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 120 if which == "start" else 300)

    async def at(_: object, partitions: list[TopicPartition], time_ms: int) -> dict[TopicPartition, object]:
        return dict.fromkeys(partitions, (222, time_ms) if time_ms < 2000 else None)

    monkeypatch.setattr(flow_lookup, "read_ledgers", read)
    monkeypatch.setattr(seek_preview, "log_offsets", offsets)
    monkeypatch.setattr(seek_preview, "offsets_at", at)
    return daemons


def seek(conf: str, *options: str) -> int:
    return cli.main(["seek", "orders-0", conf, "--reason", "broken", *options])


@pytest.mark.parametrize(
    ("options", "to"),
    [
        (["--to", "200"], 200),
        (["--to", "latest"], 300),
        (["--to-time", "1000"], 222),
        (["--to-time", "1970-01-01T00:00:10Z"], 300),
    ],
)
def test_the_plan_comes_before_the_order(
    known: Daemons, conf: str, options: list[str], to: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert seek(conf, *options, "--dry-run") == 3
    planned = capsys.readouterr().out
    assert known.taken == []
    assert f"[150, {to}) will be skipped: {to - 150} offsets" in planned
    assert "will follow after target offset 160 of eu.orders-0" in planned
    assert seek(conf, *options) == 0
    assert capsys.readouterr().out.startswith(planned)
    ((_, given, _),) = known.taken
    assert (given.verb, given.name, given.flow, given.offset, given.until) == ("seek", "orders-0", "eu-us", 120, to)
    assert given.reason == "broken"


@pytest.mark.parametrize("halt", [LaneHalted(LANE, 1, "truncated", "orders-0: lost", 140, 150)])
def test_the_plan_of_a_lane_that_is_halted_by_a_loss(
    known: Daemons, conf: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert seek(conf, "--to", "145", "--dry-run") == 3
    planned = capsys.readouterr().out
    assert "is at source offset 150" in planned
    assert "the source has lost the records [140, 150)" in planned
    assert "[140, 145) will be skipped: 5 offsets" in planned
    assert seek(conf, "--to", "140") == 2
    assert "the source has lost the records from offset 140 on" in capsys.readouterr().err
    assert known.taken == []


def test_the_plan_for_programs(known: Daemons, conf: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert seek(conf, "--to", "200", "--dry-run", "--json") == 3
    document = json.loads(capsys.readouterr().out)
    assert (document["position"], document["to"], document["log_start"], document["log_end"]) == (150, 200, 120, 300)


@pytest.mark.parametrize(
    ("options", "refusal"),
    [
        (["--to", "301"], "--to: found 301; allowed: 120 to 300, which is what the source holds of orders-0"),
        (["--to", "119"], "--to: found 119; allowed: 120 to 300"),
        (["--to", "149"], "is at source offset 150: going back to 149 would copy records twice"),
        (["--to", "earliest"], "going back to 120 would copy records twice"),
        (["--to", "-1"], "allowed: a source offset from 0 on, earliest, latest"),
        (["--to", "newest"], 'found "newest"; allowed: a source offset'),
        (["--to-time", "yesterday"], '--to-time: "yesterday" is not a time'),
        (["--to", "200", "--reason", " "], "--reason: it is empty"),
        (["--to", "200", "--reason", "two\nlines"], "--reason: one line"),
    ],
)
def test_an_impossible_seek_is_refused_in_one_line(
    known: Daemons, conf: str, options: list[str], refusal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert seek(conf, *(["--to=-1"] if options == ["--to", "-1"] else options)) == 2
    assert refusal in capsys.readouterr().err
    assert known.taken == []


def test_names_that_mean_nothing(known: Daemons, conf: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["seek", "order-0", conf, "--reason", "x", "--to", "200"]) == 2
    assert 'no partition "order-0" is copied; did you mean "orders-0"?' in capsys.readouterr().err
    assert cli.main(["seek", "us-eu:orders-0", conf, "--reason", "x", "--to", "200"]) == 2
    assert 'no partition "orders-0" is copied' in capsys.readouterr().err


def test_without_a_daemon_nothing_is_changed(known: Daemons, conf: str, capsys: pytest.CaptureFixture[str]) -> None:
    known.at = {}
    assert seek(conf, "--to", "150") == 0
    assert "is already at source offset 150" in capsys.readouterr().out
    assert seek(conf, "--to", "200") == 1
    assert "nothing was changed: no daemon is running these flows" in capsys.readouterr().err
