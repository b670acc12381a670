"""`mirrord audit` without brokers: what is refused, what the ledger proves, and what is kept."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import msgspec
import pytest
from pyarrow import parquet

from mirrord.audit import plan as plan_module
from mirrord.audit.plan import FlowPlan, LaneAuditPlan, audit_by_ledger
from mirrord.audit.range_audit import AuditedLane
from mirrord.audit.result_files import ResultRow, Results, proven, range_key, summary
from mirrord.audit.rules.audit_range import AuditRange, MapPiece
from mirrord.audit.rules.ledger_audit import compare_ledger
from mirrord.audit.rules.range_division import ranges
from mirrord.audit.rules.record_compare import compare_records
from mirrord.audit.rules.results import Compared, Difference, Explained, RangeResult, Seen, Surroundings
from mirrord.cli.main import main
from mirrord.config.flow_features import RecordsConfig
from mirrord.config.schema import Config, FlowConfig
from mirrord.jobs import audit_run
from mirrord.ledger.facts.audit import RangeAudited
from mirrord.ledger.facts.core import Reason, Verdict
from mirrord.ledger.gaps import Gaps
from mirrord.ledger.state import FlowState, LaneState
from mirrord.ledger.store.job_lease import JobLease, JobNotRecorded
from mirrord.ledger.verdict_tally import RECENT_VERDICTS
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.names import Alias, LaneId, LaneKey, TopicId, TopicPartition
from mirrord.replication.dead_letters.records import Returned, TargetPosition
from mirrord.topics.rules.retention import is_compacted
from tests.fixtures.ledger import lane_id
from tests.unit.cli.test_cli import CONF

ORDERS = TopicPartition("orders", 0)
RANGE = AuditRange(
    lane=lane_id(0),
    producer_id=4,
    first=0,
    end=8,
    source_start=100,
    source_end=110,
    target_start=10,
    target_end=20,
    pieces=(MapPiece(0, 100, 10, 4), MapPiece(4, 106, 16, 4)),
    verdicts=(Verdict(104, 105, "control"),),
)


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--sample", "0"], "--sample: found 0; allowed: a share above 0 and up to 1"),
        (["--sample", "1.5"], "--sample: found 1.5; allowed: a share"),
        (["--topics", "a("], '--topics: found "a("; allowed: a regular expression'),
        (["--topics", "(a+)+b"], '--topics: found "(a+)+b"; allowed: a regular expression'),
        (["--spark", "master=local"], '--spark: found "master=local"; allowed: a setting such as spark.master='),
        (["--since", "yesterday"], '--since: "yesterday" is neither a time nor a duration'),
        (["--out", "a", "--resume", "b"], "--out cannot be combined with --resume"),
        (["--rate", "fast"], '--rate: found "fast"; allowed: a rate such as "10MiB/s"'),
        (["--level", "ledger", "--rate", "1MB/s"], "--rate has no effect with --level ledger"),
        (["--resume", "nowhere"], "--resume: nowhere is not the folder of an audit"),
        (["--level", "ledger", "--sample", "0.5"], "--sample has no effect with --level ledger"),
        (["--level", "ledger", "--spark", "spark.master=local"], "--spark has no effect with --level ledger"),
        (["--flow", "eu-uss"], 'no flow "eu-uss" in the configuration; there are: eu-us. Did you mean "eu-us"?'),
    ],
)
def test_what_is_refused(options: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    conf = tmp_path / "conf.toml"
    conf.write_text(
        '[clusters.eu]\nbootstrap = "127.0.0.1:1"\n[clusters.us]\nbootstrap = "127.0.0.1:1"\n'
        '[[flows]]\nfrom = "eu"\nto = "us"\ntopics = [".*"]\n'
    )
    assert main(["audit", *options, str(conf)]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith(f"mirrord: {line}")
    assert len(errors.splitlines()) == 1


def test_the_ledger_alone() -> None:
    gaps = (Difference("foreign", None, 14, 2), Difference("missing", 105, None))
    control = Explained("control", "source", 104, 105)
    assert compare_ledger(RANGE, 0, 20, verdicts_are_known=True) == Compared(8, gaps, (control,))
    assert compare_ledger(RANGE, 0, 20, verdicts_are_known=False) == Compared(8, gaps[:1], (control,))


def test_the_ledger_and_the_ends_of_the_target() -> None:
    whole = msgspec.structs.replace(RANGE, pieces=(MapPiece(0, 100, 10, 10),), verdicts=())
    assert compare_ledger(whole, 0, 20, verdicts_are_known=True) == Compared(10)
    lost = compare_ledger(whole, 0, 17, verdicts_are_known=True)
    assert lost == Compared(7, (Difference("missing", 107, 17, 3),))
    gone = compare_ledger(whole, 12, 20, verdicts_are_known=True)
    assert gone == Compared(10, (), (Explained("target-retention", "target", 10, 12),))


def test_below_the_log_start_of_the_source_nothing_is_missing() -> None:
    unmapped = msgspec.structs.replace(RANGE, verdicts=())
    every = compare_ledger(unmapped, 0, 20, verdicts_are_known=True, source_start=100)
    assert [each for each in every.differences if each.kind == "missing"] == [Difference("missing", 104, None, 2)]
    some = compare_ledger(unmapped, 0, 20, verdicts_are_known=True, source_start=105)
    assert [each for each in some.differences if each.kind == "missing"] == [Difference("missing", 105, None, 1)]
    assert some.explained == (Explained("source-retention", "source", 104, 105),)
    none = compare_ledger(unmapped, 0, 20, verdicts_are_known=True, source_start=500)
    assert [each.kind for each in none.differences] == ["foreign"]


@pytest.mark.parametrize(("reason", "is_forgotten"), [("filtered", True), ("control", False)])
def test_verdicts_of_a_ledger_that_was_trimmed(reason: Reason, is_forgotten: bool) -> None:
    """Verdicts that a snapshot no longer names; the newest are known, and so is what they leave open."""
    lane = LaneState(LaneKey(TopicId("S"), 0, TopicId("T")), "orders", "eu.orders", 4, 0, "all", "sequence")
    lane.source_runs.add(0, 1)
    lane.target_runs.add(0, 0)
    for at in range(1, 2 * RECENT_VERDICTS + 1):
        lane.verdicts.add([Verdict(2 * at, 2 * at + 1, reason)])
        lane.source_runs.add(at, 2 * at + 1)
    gaps = Gaps(FlowState(lanes={lane.key.id: lane}))
    below = gaps.forgotten_below(lane.key.id)
    assert below == 2 * (RECENT_VERDICTS + 1)
    verdicts = [Verdict(gap.start, gap.end, gap.reason) for gap in gaps]
    audited = AuditedLane(source=ORDERS, target=TopicPartition("eu.orders", 0), committed=True)
    assert plan_module._has_forgotten(lane, verdicts, audited) is is_forgotten
    assert not plan_module._has_forgotten(lane, [Verdict(0, 1000, reason)], audited)
    (wanted,) = ranges(lane, 0, 2 * RECENT_VERDICTS + 1, 100_000, verdicts, below)
    held = [Seen(offset, b"%d" % offset, 0) for offset in range(1, wanted.source_end)]
    copied = [Seen(at, b"%d" % (2 * at + 1), 0, is_own=True) for at in range(2 * RECENT_VERDICTS + 1)]
    found = compare_records(wanted, held, copied, Surroundings())
    forgotten = [each for each in found.explained if each.cause == "forgotten"]
    assert [each.start for each in forgotten] == list(range(2, below, 2))
    without = compare_records(msgspec.structs.replace(wanted, forgotten_below=0), held, copied, Surroundings())
    assert [each.source for each in without.differences if each.kind == "missing"][: len(forgotten)] == [
        each.start for each in forgotten
    ]
    if reason == "filtered":
        assert found.differences == ()


def planned(ranges: tuple[AuditRange, ...], lost: int = 0) -> LaneAuditPlan:
    audited = AuditedLane(source=ORDERS, target=TopicPartition("eu.orders", 0), committed=True)
    return LaneAuditPlan(
        lane=lane_id(0), audited=audited, ranges=ranges, verdicts_are_known=True, target_log=(0, 50), lost=lost
    )


def following(ranges: int) -> tuple[AuditRange, ...]:
    return tuple(
        msgspec.structs.replace(
            RANGE,
            first=10 * at,
            end=10 * at + 10,
            source_start=100 + 10 * at,
            source_end=110 + 10 * at,
            target_start=10 + 10 * at,
            target_end=20 + 10 * at,
            pieces=(MapPiece(10 * at, 100 + 10 * at, 10 + 10 * at, 10),),
            verdicts=(),
        )
        for at in range(ranges)
    )


def result(wanted: AuditRange, *differences: Difference) -> RangeResult:
    return RangeResult(
        lane=wanted.lane,
        first=wanted.first,
        end=wanted.end,
        by="batches",
        compared=Compared(10 - len(differences), differences),
        newest_ms=1000 + wanted.first,
        read_bytes=7,
    )


def test_proven_is_what_has_no_difference_before_it() -> None:
    lane = planned(following(4))
    flow = FlowPlan(flow="eu-us", source="eu", target="us", lanes=(lane,))
    good = [result(each) for each in lane.ranges]
    lane_summary = summary(flow, lane, good, level="digest")
    assert (lane_summary.records, lane_summary.equal, lane_summary.proven_to, lane_summary.proven_ms) == (
        40,
        40,
        140,
        1030,
    )
    bad = [*good[:2], result(lane.ranges[2], Difference("altered", 121, 31)), good[3]]
    lane_summary = summary(flow, lane, bad, level="digest")
    assert (lane_summary.proven_to, lane_summary.proven_ms, lane_summary.differences) == (120, 1010, {"altered": 1})
    lane_summary = summary(flow, lane, good[1:], level="digest")
    assert (lane_summary.proven_to, lane_summary.equal) == (None, 30)
    lane_summary = summary(flow, lane, audit_by_ledger(lane), level="ledger")
    assert (lane_summary.proven_to, lane_summary.equal, lane_summary.differences) == (None, 40, {})


def test_a_proof_continues_after_the_last_one() -> None:
    ranges = following(3)
    before = RangeAudited(lane_id(0), "digest", 0, 10, 110, 7_000, 0)
    lane = msgspec.structs.replace(planned(ranges[1:]), proven=before)
    found = [result(each) for each in ranges[1:]]
    assert proven(lane, found, "digest", 9) == RangeAudited(lane_id(0), "digest", 10, 30, 130, 7_000, 9)
    assert proven(lane, found[:1], "records", 9) == RangeAudited(lane_id(0), "records", 10, 20, 120, 7_000, 9)
    assert proven(lane, found[1:], "digest", 9) is None
    assert proven(msgspec.structs.replace(lane, is_from_begin=False), found, "digest", 9) is None
    flow = FlowPlan(flow="eu-us", source="eu", target="us", lanes=(lane,))
    assert summary(flow, lane, [], level="digest").proven_to == 110


def test_a_target_topic_that_is_gone_is_a_difference() -> None:
    lane = planned((), lost=12)
    flow = FlowPlan(flow="eu-us", source="eu", target="us", lanes=(lane,))
    assert summary(flow, lane, [], level="digest").differences == {"missing": 12}


def row(wanted: AuditRange, found: RangeResult) -> ResultRow:
    return ResultRow(
        flow="eu-us",
        source=ORDERS,
        target_topic="eu.orders",
        level="ledger" if found.by == "ledger" else "digest",
        audited_at_ms=5,
        wanted=wanted,
        result=found,
    )


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch) -> FlowPlan:
    """What `mirrord audit` plans: three ranges."""
    made = FlowPlan(flow="eu-us", source="eu", target="us", lanes=(planned(following(3)),))

    async def plan_flow(*_: object, again: bool) -> FlowPlan:
        assert not again
        return made

    monkeypatch.setattr(audit_run, "plan_flow", plan_flow)
    return made


@pytest.fixture
def conf(tmp_path: Path) -> str:
    path = tmp_path / "conf.toml"
    path.write_text(CONF)
    return str(path)


def test_an_audit_that_is_taken_up_again_counts_each_record_once(
    plan: FlowPlan, conf: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The resume position has moved since, so the last range reaches further; and one range has another map now."""
    ranges, results = plan.lanes[0].ranges, Results(tmp_path / "audit")
    shorter = msgspec.structs.replace(ranges[2], end=25, pieces=(MapPiece(20, 120, 30, 5),))
    elsewhere = msgspec.structs.replace(ranges[1], pieces=(MapPiece(10, 110, 21, 10),))
    for stale in (shorter, elsewhere):
        results.write([row(stale, msgspec.structs.replace(result(stale, Difference("altered", 1, 1)), by="ledger"))])
    kept = msgspec.structs.replace(result(ranges[0], Difference("missing", 101, 11)), by="ledger")
    results.write([row(ranges[0], kept)])
    assert main(["audit", conf, "--flow", "eu-us", "--level", "ledger", "--resume", str(results.folder), "--json"]) == 3
    document = json.loads(capsys.readouterr().out)
    (lane,) = document["partitions"]
    assert (lane["records"], lane["equal"], lane["differences"]) == (30, 29, {"missing": 1})
    assert [each["difference"]["kind"] for each in document["differences"]] == ["missing"]


def test_a_range_with_undecided_records_is_compared_again(
    plan: FlowPlan, conf: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Open transactions of other clients have ended since."""
    ranges, results = plan.lanes[0].ranges, Results(tmp_path / "audit")
    compared = Compared(9, (Difference("missing", 101, 11),), (), (105,))
    undecided = msgspec.structs.replace(result(ranges[0]), by="ledger", compared=compared)
    results.write([row(ranges[0], undecided)])
    assert list(results.known("ledger").values()) == [undecided]
    assert main(["audit", conf, "--flow", "eu-us", "--level", "ledger", "--resume", str(results.folder), "--json"]) == 0
    (lane,) = json.loads(capsys.readouterr().out)["partitions"]
    assert (lane["differences"], lane["undecided"]) == ({}, 0)


@pytest.mark.usefixtures("plan")
def test_an_audit_that_is_broken_off_before_its_first_result_can_be_taken_up_again(
    conf: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(tmp_path / "audits" / "one")
    with monkeypatch.context() as patch:
        patch.setattr(audit_run.Audit, "run", Mock(side_effect=EnvironmentFault("the cluster is away")))
        assert main(["audit", conf, "--flow", "eu-us", "--level", "ledger", "--out", folder]) == 1
    assert "the cluster is away" in capsys.readouterr().err
    assert main(["audit", conf, "--flow", "eu-us", "--level", "ledger", "--resume", folder]) == 0


@pytest.mark.usefixtures("plan")
def test_results_that_cannot_be_kept_are_reported_before_anything_is_read(
    conf: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    assert main(["audit", conf, "--flow", "eu-us", "--level", "ledger", "--out", str(tmp_path / "file" / "in")]) == 1
    assert "nothing can be written to" in capsys.readouterr().err


@pytest.mark.usefixtures("plan")
def test_an_audit_whose_proof_cannot_be_kept_reports_its_results(
    conf: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def fail_to_record(*_: object) -> None:
        raise EnvironmentFault("the ledger is away")

    def compared(_: object, plans: Sequence[FlowPlan], _report: object) -> Iterator[tuple[str, RangeResult]]:
        return ((plan.flow, result(each)) for plan in plans for lane in plan.lanes for each in lane.ranges)

    def fail_to_enter(*_: object) -> None:
        raise JobNotRecorded("the ledger is not ours to write")

    monkeypatch.setattr(audit_run, "record_proof", fail_to_record)
    monkeypatch.setattr(audit_run.Audit, "_compared", compared)
    monkeypatch.setattr(JobLease, "__enter__", fail_to_enter)
    assert main(["audit", conf, "--flow", "eu-us", "--json"]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["partitions"][0]["proven_to"] == 130
    assert captured.err == (
        "mirrord: other processes cannot see that an audit is running: the ledger is not ours to write\n"
        "mirrord: the proof for eu-us is not recorded, so the next audit reads it again: the ledger is away\n"
    )


def test_an_audit_knows_what_was_brought_back_to_this_very_copy() -> None:
    ranges = tuple(
        msgspec.structs.replace(each, target_start=at, target_end=at + 10)
        for at, each in zip((0, 10), following(2), strict=True)
    )
    place = TopicPartition("eu.orders", 0)
    planned = LaneAuditPlan(
        lane=LaneId("lane"),
        audited=AuditedLane(source=TopicPartition("orders", 0), target=place, committed=True),
        ranges=ranges,
    )
    back = [
        Returned(7, str(TargetPosition(TopicPartition(topic, at % 2), at)))
        for topic in ("eu.orders", "side")
        for at in (14, 4, 5, 12)
    ]
    known = plan_module._with(planned, [*back, Returned(9, "somewhere")])
    assert [each.brought_back for each in known.ranges] == [(4,), (12, 14)]
    assert plan_module._with(planned, back[4:]) == planned


@pytest.mark.parametrize("again", [False, True])
async def test_transformed_topics_are_left_out_also_when_all_is_audited_again(
    again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = LaneKey(TopicId("S"), 0, TopicId("T"))
    lane = LaneState(key, "orders", "eu.orders", 4, 0, "read_committed", "sequence")

    async def read(*_: object) -> tuple[FlowState, Gaps, list[RangeAudited]]:
        return FlowState(lanes={key.id: lane}), Gaps(FlowState()), []

    async def look(*_: object) -> object:
        ids = {"source_ids": {"orders": "S"}, "target_ids": {"eu.orders": "T"}}
        places = {"target_logs": {TopicPartition("eu.orders", 0): (0, 9)}, "since": None, "others_write": False}
        return SimpleNamespace(**ids, **places, source_compacted=(), target_compacted=())

    async def uncopied(*_: object) -> list[object]:
        return []

    monkeypatch.setattr(plan_module, "read_ledger", read)
    monkeypatch.setattr(plan_module, "uncopied", uncopied)
    monkeypatch.setattr(plan_module, "_Clusters", SimpleNamespace(read=look))
    flow = FlowConfig("eu-us", Alias("eu"), Alias("us"), (".*",), records=RecordsConfig(transform="headers"))
    made = await plan_module.plan_flow(Config({}, (flow,)), flow, "digest", again=again)
    assert "transformed" in made.lanes[0].skipped


def test_results_are_kept_and_taken_up_again(tmp_path: Path) -> None:
    results = Results(tmp_path / "audit")
    ranges = following(3)
    found = [result(each, Difference("missing", 3, None)) for each in ranges]
    rows = [row(*each) for each in zip(ranges, found, strict=True)]
    results.write(rows[:2])
    results.write([])
    results.write(rows[2:])
    (results.folder / "000003.unfinished").write_bytes(b"half a file")
    known = results.known("digest")
    assert list(known.values()) == found
    assert list(known) == [range_key("eu-us", each) for each in ranges]
    assert results.known("records") == {}
    with pytest.raises(ConfigError, match="is not the folder of an audit"):
        Results(tmp_path / "other").known("digest")


def test_results_of_an_audit_that_knew_no_undecided_records_are_taken_up(tmp_path: Path) -> None:
    results = Results(tmp_path / "audit")
    (wanted,) = following(1)
    found = result(wanted, Difference("missing", 3, None))
    results.write([row(wanted, found)])
    (path,) = results.folder.iterdir()
    parquet.write_table(parquet.read_table(path).drop_columns("undecided"), path)
    assert list(results.known("digest").values()) == [found]


@pytest.mark.parametrize(
    ("policy", "expected"), [("delete", False), ("compact", True), ("compact,delete", True), ("", False)]
)
def test_a_compacted_topic(policy: str, expected: bool) -> None:
    assert is_compacted(policy) is expected
