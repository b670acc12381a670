"""Audits and compactions beside the daemon: never two of a kind at once, on their own schedules, in processes."""

import asyncio
import os
import subprocess
import sys

import msgspec
import pytest

from mirrord.config.changes import compare
from mirrord.config.jobs import AuditConfig, DrillConfig
from mirrord.config.loader import load_text
from mirrord.config.schema import Config
from mirrord.config.writer import conf_toml
from mirrord.ledger.codec import decode_entry, encode_entry, encode_state
from mirrord.ledger.facts.core import AnyFact, LeaseReleased, LeaseTaken
from mirrord.ledger.facts.jobs import JobBegan, JobEnded, JobFact, JobRenewed, Worker
from mirrord.ledger.fold import fold
from mirrord.ledger.job_state import JobState
from mirrord.ledger.snapshot import snapshots
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import FlowSnapshot, LedgerEnd
from mirrord.ledger.state_topic_rows import Kept
from mirrord.ledger.store import cluster_access, job_lease
from mirrord.ledger.store.job_lease import JobBusy, JobLease, JobNotRecorded
from mirrord.ledger.store.memory_log import Fault, MemoryLedger, MemoryLog
from mirrord.ledger.store.process_identity import this_worker
from mirrord.model.drill import DrillReceipt
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.jobs import JobOutcome
from mirrord.model.names import TopicId
from mirrord.runtime.clock import SystemClock
from mirrord.supervision.jobs.job_process import JobOrder, JobProcess, JobReport
from mirrord.supervision.jobs.schedule import Schedule, job_statuses
from mirrord.supervision.rules.job_times import next_ms
from tests.fixtures.ledger import FLOW, HOLDER, entry
from tests.fixtures.supervision import eventually

CONF = (
    '[clusters.eu]\nbootstrap = "127.0.0.1:1"\n[clusters.us]\nbootstrap = "127.0.0.1:1"\n'
    '[[flows]]\nfrom = "eu"\nto = "us"\ntopics = [".*"]\n'
)
ELSEWHERE = Worker("elsewhere", 12)


class SharedLedger(MemoryLedger):
    """What a test looks at."""

    def add(self, *facts: AnyFact) -> None:
        self.entries.append(encode_entry(entry(*facts)))
        self.wake()

    @property
    def state(self) -> FlowState:
        state = FlowState()
        for offset, data in enumerate(self.entries):
            fold(state, decode_entry(data), offset)
        return state

    @property
    def audit(self) -> JobState:
        return self.state.jobs["audit"]


@pytest.fixture
def config() -> Config:
    return load_text(CONF, "conf.toml")


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> SharedLedger:
    made = SharedLedger()
    made.add(FLOW, LeaseTaken(1, HOLDER, 6_000))
    monkeypatch.setattr(cluster_access, "KafkaLog", lambda *_, **__: MemoryLog(made))
    monkeypatch.setattr(job_lease, "RENEW_S", 0.02)
    monkeypatch.setattr(job_lease, "LOOK_S", 0.01)
    return made


def test_never_two_at_once(ledger: SharedLedger, config: Config) -> None:
    with JobLease(config, "audit") as first:
        with (
            pytest.raises(JobBusy, match=f"an audit of eu-us is already running .pid {os.getpid()} on"),
            JobLease(config, "audit"),
        ):
            pass
        with JobLease(config, "compact"):
            first.set_outcome("eu-us", "differences", "1 foreign")
    state = ledger.audit
    assert (state.number, state.outcome, state.line, state.worker) == (1, "differences", "1 foreign", this_worker())
    with JobLease(config, "audit") as third:
        third.set_outcome("eu-us", "done", "no difference")
    assert (ledger.audit.number, ledger.audit.outcome) == (2, "done")
    assert ledger.state.jobs["compact"].outcome == "failed", "nobody has told what came of it"


@pytest.mark.parametrize(
    ("raised", "outcome", "line"),
    [
        (EnvironmentFault("no Java\nat all"), "failed", "no Java"),
        (KeyboardInterrupt(), "stopped", "it was asked to stop"),
    ],
)
def test_the_end_is_recorded_however_it_comes(
    raised: BaseException, outcome: JobOutcome, line: str, ledger: SharedLedger, config: Config
) -> None:
    with pytest.raises(type(raised)), JobLease(config, "audit"):
        raise raised
    assert (ledger.audit.outcome, ledger.audit.line) == (outcome, line)


async def test_how_far_it_is_can_be_seen(ledger: SharedLedger, config: Config) -> None:
    lease = JobLease(config, "audit")
    await asyncio.to_thread(lease.__enter__)
    lease.progress(3, 8)
    await eventually(lambda: (ledger.audit.done, ledger.audit.every) == (3, 8))
    await asyncio.to_thread(lease.end)


def test_who_is_dead_is_not_waited_for(ledger: SharedLedger, config: Config) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
        dead = msgspec.structs.replace(this_worker(), pid=process.pid, started_ticks=1)
    ledger.add(JobBegan("audit", 1, dead, 3_600_000, 5))
    with JobLease(config, "audit"):
        assert ledger.audit.number == 2


def test_who_is_silent_is_waited_for_as_long_as_its_lease_lasts(ledger: SharedLedger, config: Config) -> None:
    ledger.add(JobBegan("audit", 1, ELSEWHERE, 50, 5))
    with JobLease(config, "audit"):
        assert ledger.audit.number == 2


async def test_who_shows_that_it_lives_is_left_alone(ledger: SharedLedger, config: Config) -> None:
    ledger.add(JobBegan("audit", 1, ELSEWHERE, 3_600_000, 5))
    waiting = asyncio.create_task(asyncio.to_thread(JobLease(config, "audit").__enter__))
    while not waiting.done():
        ledger.add(JobRenewed("audit", 1))
        await asyncio.sleep(0.005)
    with pytest.raises(JobBusy, match="pid 12 on elsewhere"):
        await waiting


async def test_a_lease_of_the_flow_that_is_taken_meanwhile_does_no_harm(ledger: SharedLedger, config: Config) -> None:
    lease = JobLease(config, "audit")
    await asyncio.to_thread(lease.__enter__)
    ledger.add(LeaseReleased(1))
    ledger.entries.append(encode_entry(entry(LeaseTaken(2, HOLDER, 6_000), epoch=2)))
    ledger.wake()
    signs = ledger.audit.signs
    await eventually(lambda: ledger.audit.signs > signs)
    lease.set_outcome("eu-us", "done", "")
    await asyncio.to_thread(lease.end)
    assert ledger.audit.outcome == "done"


def test_a_ledger_that_we_may_not_write(ledger: SharedLedger, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_lease, "PATIENCE_S", 0.1)
    ledger.append_faults.extend([Fault.FAILS] * 1_000)
    with pytest.raises(JobNotRecorded), JobLease(config, "audit"):
        pass


def test_a_flow_that_has_never_run_is_left_out(ledger: SharedLedger, config: Config) -> None:
    ledger.entries.clear()

    class Missing(MemoryLog):
        async def open(self, *, create: bool) -> None:
            assert not create
            raise job_lease.LedgerMissing("there is none")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cluster_access, "KafkaLog", lambda *_, **__: Missing(ledger))
        with JobLease(config, "audit"):
            pass
    assert ledger.entries == []


def test_flows_take_turns_at_the_same_moments_for_everybody() -> None:
    hour, now = 3_600_000, 1_700_000_000_000
    flows = [f"flow-{number}" for number in range(20)]
    first = {flow: next_ms(flow, "audit", hour, now) for flow in flows}
    assert all(now < due <= now + hour for due in first.values())
    assert len({due // 60_000 for due in first.values()}) > 10, "they are spread over the hour"
    for flow, due in first.items():
        assert next_ms(flow, "audit", hour, due - 1) == due
        assert next_ms(flow, "audit", hour, due) == due + hour
    assert next_ms("eu-us", "audit", hour, now) != next_ms("eu-us", "compact", hour, now)


async def test_by_schedule_one_after_the_other_until_the_configuration_says_otherwise(config: Config) -> None:
    orders: list[JobOrder] = []
    changed = asyncio.Event()

    async def run(order: JobOrder) -> JobReport:
        orders.append(order)
        if len(orders) == 3:
            schedule.use(config)
            changed.set()
        return JobReport("failed", "no Java")

    every = msgspec.structs.replace(config, audit=AuditConfig(every_ms=10, level="records"))
    schedule = Schedule("eu-us", every, SystemClock(), run)
    keeping = asyncio.create_task(schedule.keep())
    try:
        await changed.wait()
        await eventually(lambda: schedule.status({}) == ())
    finally:
        keeping.cancel()
    assert [(each.job, each.config.audit.level) for each in orders] == [("audit", "records")] * 3


async def test_a_job_that_is_asked_for_begins_at_once_without_a_schedule(config: Config) -> None:
    orders: list[JobOrder] = []

    async def run(order: JobOrder) -> JobReport:
        orders.append(order)
        return JobReport("done", "no findings")

    schedule = Schedule("eu-us", config, SystemClock(), run)
    keeping = asyncio.create_task(schedule.keep())
    try:
        for number in (1, 2):
            schedule.begin("drill")
            await eventually(lambda number=number: len(orders) == number)
    finally:
        keeping.cancel()
    assert [each.job for each in orders] == ["drill", "drill"]


def test_only_a_drill_without_findings_succeeds_and_the_latest_receipt_is_kept() -> None:
    state = FlowState()
    good, bad = DrillReceipt(flow="eu-us", at_ms=1), DrillReceipt(flow="eu-us", at_ms=2, findings=("x",))
    ended: list[tuple[JobOutcome, DrillReceipt | None]] = [("done", good), ("differences", bad), ("failed", None)]
    fold(state, entry(FLOW), 0)
    fold(state, entry(LeaseTaken(1, HOLDER, 6_000)), 1)
    offset = 1
    for number, (outcome, receipt) in enumerate(ended, 1):
        facts: tuple[JobFact, ...] = (
            JobBegan("drill", number, ELSEWHERE, 60_000, 10 * number),
            JobEnded("drill", number, outcome, "", 10 * number + 1, receipt),
        )
        for fact in facts:
            data = encode_entry(entry(fact))
            assert data[0] == 15, "an older daemon does not know drills"
            offset += 1
            fold(state, decode_entry(data), offset)
    job = state.jobs["drill"]
    assert (job.outcome, job.succeeded_ms, job.drill) == ("failed", 11, bad)
    records = snapshots(state, Kept(), LedgerEnd(TopicId("t"), offset + 1, 0)).records
    assert [encode_state(each)[0] for each in records if isinstance(each, FlowSnapshot)] == [15]


def test_a_drill_is_not_recorded_if_the_daemon_could_not_read_it(ledger: SharedLedger, config: Config) -> None:
    """It would stop at the fact. A daemon whose lease says nothing reads at most version 14."""
    with pytest.raises(JobNotRecorded, match=r"the daemon of eu-us .* could not read it"), JobLease(config, "drill"):
        pass
    assert "drill" not in ledger.state.jobs
    with JobLease(config, "audit"):
        pass
    newer = LeaseTaken(2, msgspec.structs.replace(HOLDER, layout=15), 6_000)
    ledger.entries.append(encode_entry(msgspec.structs.replace(entry(newer), lease_epoch=2)))
    with JobLease(config, "drill"):
        pass
    assert ledger.state.jobs["drill"].outcome is not None


def test_the_outcome_of_a_flow_stays_if_another_one_is_interrupted(ledger: SharedLedger, config: Config) -> None:
    def interrupted() -> None:
        with JobLease(config, "audit") as lease:
            lease.set_outcome("eu-us", "done", "all equal")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (ledger.audit.outcome, ledger.audit.line) == ("done", "all equal")


async def test_failures_are_reported(config: Config) -> None:
    async def run(_: JobOrder) -> JobReport:
        raise EnvironmentFault("no process")

    every = msgspec.structs.replace(config, audit=AuditConfig(every_ms=1))
    schedule = Schedule("eu-us", every, SystemClock(), run)
    keeping = asyncio.create_task(schedule.keep())

    def note() -> str:
        (status,) = schedule.status({})
        return status.note

    try:
        await eventually(lambda: "no process" in note())
    finally:
        keeping.cancel()


def test_status_without_a_daemon(config: Config) -> None:
    """A job whose process is dead is not running."""
    assert job_statuses(config, {}, {}, {}) == ()
    began = JobState("audit", 3, this_worker(), 60_000, 7, done=1, every=4, succeeded_ms=5)
    (status,) = job_statuses(config, {"audit": began}, {}, {})
    assert (status.runs, status.done, status.succeeded_ms, status.every_s) == (True, 1, 5, None)
    dead = msgspec.structs.replace(began, worker=msgspec.structs.replace(this_worker(), started_ticks=1))
    (status,) = job_statuses(config, {"audit": dead}, {}, {})
    assert (status.runs, status.note) == (False, "its process ended without a result")


async def test_a_process_that_cannot_do_it_says_why(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its output comes back as one line."""
    monkeypatch.setenv("XDG_STATE_HOME", "/proc/nowhere")
    report = await JobProcess().run(JobOrder("audit", config))
    assert report.outcome == "failed"
    assert "/proc/nowhere" in report.line


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ('[audit]\nevery = "1s"', 'audit.every: found "1s"; allowed: from "10s" to "365d"'),
        ('[audit]\nlevel = "disgest"', 'audit.level: found "disgest"; allowed: "ledger", "digest" or "records"; did'),
        ("[audit]\nsample = 0", "audit.sample: found 0; allowed: a share above 0 and up to 1, such as 0.1"),
        ('[audit]\nsince = "yesterday"', 'audit.since: found "yesterday"; allowed: a duration'),
        ('[audit]\ntopics = ["a("]', 'audit.topics[0]: found "a("; allowed: a regular expression'),
        ('[audit]\nrate = "50MB"', 'audit.rate: found "50MB"; allowed: a rate such as "10MiB/s"'),
        ('[audit]\nspark.master = "spork://h"', "audit.spark: found a table; allowed: spark.master such as local[2]"),
        (
            "[audit]\nspark.executor = [1]",
            "audit.spark: found a table; allowed: settings of Spark such as spark.master",
        ),
        ('[audit]\nlevel = "ledger"\nsample = 0.5', "audit.sample: has no effect with level"),
        ('[audit]\nevry = "1h"', 'audit.evry: unknown key; did you mean "every"?'),
        ('[compact]\nevery = "1d"', "compact.path: missing although every is set; allowed: a folder for the files"),
        ("[drill]\nsample = 2", "drill.sample: found 2; allowed: a share above 0 and up to 1, such as 0.1"),
        ('[drill]\nprincipals = ["app"]', 'drill.principals[0]: found "app"; allowed: a principal with its type'),
        ('[compact]\npath = "maps"\nleast = 0', "compact.least: found 0; allowed: a whole number from 1 to"),
    ],
)
def test_faults_of_the_tables(table: str, line: str) -> None:
    with pytest.raises(ConfigError) as raised:
        load_text(CONF + table, "conf.toml")
    assert line in str(raised.value)
    assert "1 fault\n" in str(raised.value)


def test_the_tables_are_read_written_and_taken_while_it_runs(config: Config) -> None:
    text = (
        '[audit]\nevery = "1h"\nlevel = "records"\ntopics = ["orders.*"]\nsince = "2d"\nsample = 0.5\nagain = true\n'
        'rate = "50MB/s"\nspark.master = "local[2]"\nspark.executor.memory = "1g"\nspark."ui.enabled" = false\n'
        '[compact]\npath = "maps"\nevery = "1d"\nleast = 100\n[compact.spark]\n"spark.master" = "yarn"\n'
        '[drill]\nevery = "1d"\nsample = 0.2\nprincipals = ["User:app"]\ncanary = false\n'
    )
    read = load_text(CONF + text, "conf.toml")
    assert read.audit == AuditConfig(
        every_ms=3_600_000,
        level="records",
        topics=("orders.*",),
        since_ms=172_800_000,
        sample=0.5,
        again=True,
        rate_bytes_per_s=50_000_000,
        spark={"spark.master": "local[2]", "spark.executor.memory": "1g", "spark.ui.enabled": "false"},
    )
    assert (read.compact.least, read.compact.spark) == (100, {"spark.master": "yarn"})
    assert read.drill == DrillConfig(every_ms=86_400_000, sample=0.2, principals=("User:app",), canary=False)
    assert load_text(conf_toml(read), "conf.toml") == read
    changes = compare(config, msgspec.structs.replace(config, audit=read.audit))
    assert (changes.flows, changes.refused) == ((), ())
    assert "audit.level: digest -> records" in changes.for_all


def test_what_does_not_bind() -> None:
    """Of each kind only the last job counts, and only until it has ended."""
    state = FlowState()
    facts: list[tuple[AnyFact, bool]] = [
        (JobBegan("audit", 1, ELSEWHERE, 60_000, 5), True),
        (JobBegan("audit", 1, this_worker(), 60_000, 5), False),
        (JobBegan("audit", 3, this_worker(), 60_000, 5), False),
        (JobRenewed("audit", 2), False),
        (JobRenewed("compact", 1), False),
        (JobEnded("audit", 1, "done", "", 9), True),
        (JobRenewed("audit", 1), False),
        (JobEnded("audit", 1, "failed", "", 9), False),
        (JobBegan("audit", 2, this_worker(), 60_000, 10), True),
        (JobEnded("audit", 2, "failed", "", 11), True),
    ]
    fold(state, entry(FLOW, LeaseTaken(1, HOLDER, 6_000), LeaseReleased(1)), 0)
    for offset, (fact, binds) in enumerate(facts, 1):
        assert fold(state, entry(fact), offset) == (binds,), fact
    assert state.jobs["audit"].succeeded_ms == 9
