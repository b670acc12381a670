"""Old ledgers fold to the same state as when they were written (tests/golden/ledger/README.md)."""

import json
import os
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

from mirrord.cli.main import main
from mirrord.cli.verbs import ledger as verb
from mirrord.ledger.codec import VERSION, decode_entry, decode_state, encode_entry, encode_state
from mirrord.ledger.facts.archive import CompactionBegan, MapCompacted
from mirrord.ledger.facts.audit import RangeAudited, RangeRepaired
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.commands import CommandGiven, LedgerSigned, RecordSkipped, StateRecordSkipped
from mirrord.ledger.facts.core import (
    AclsPlanned,
    AclsSynced,
    AnyFact,
    ConfigChange,
    ConfigChanged,
    ConfigsSynced,
    CopyForgotten,
    CopyInherited,
    CopyNamed,
    Entry,
    HoleFound,
    LaneHalted,
    LaneOpened,
    LaneResumed,
    LaneTaken,
    LeaseContinued,
    LeaseReleased,
    LeaseRenewed,
    LeaseTaken,
    MapRebuilt,
    PartitionsGrown,
    PolicyChanged,
    Progress,
    SourceRun,
    TakeoverChecked,
    TargetProbed,
    TargetRun,
    TopicCreated,
    TopicDeleted,
    TopicDeletionPlanned,
    TopicDeletionWithdrawn,
    Verdict,
    VerdictGiven,
)
from mirrord.ledger.facts.jobs import JobBegan, JobEnded, JobFact, JobRenewed, Worker
from mirrord.ledger.facts.orders import (
    CopyingPaused,
    CopyingResumed,
    HostDrained,
    HostRestored,
    LanePinned,
    LaneUnpinned,
)
from mirrord.ledger.facts.quarantine import Quarantined, QuarantineReplayed, QuarantineSkipped
from mirrord.ledger.facts.recovery import (
    CopyingEnded,
    LostRange,
    RecoveryBegan,
    RecoveryFact,
    RecoveryFinished,
    RecoveryStepDone,
)
from mirrord.ledger.facts.seeks import LaneSought, SeekDone
from mirrord.ledger.fold import fold, writer_text
from mirrord.ledger.snapshot import snapshots
from mirrord.ledger.snapshot_restore import restore
from mirrord.ledger.state import FlowState
from mirrord.ledger.state_topic_records import LedgerEnd, state_key
from mirrord.ledger.state_topic_rows import Kept, StateTopicContents
from mirrord.ledger.store.memory_log import MemoryLedger, MemoryLog
from mirrord.model.acls import AclRule
from mirrord.model.archived_runs import ArchivedRuns
from mirrord.model.drill import DrillReceipt, DrillStage
from mirrord.model.names import ClusterId, LaneKey, TopicId
from mirrord.model.runs import Run
from tests.fixtures.ledger import FLOW, HOLDER, lane_id, opened, plain

FOLDER = Path(__file__).parents[2] / "golden" / "ledger"
WRITE = "MIRRORD_WRITE_GOLDEN"
CUT = 6
LANE, OTHER = lane_id(0), lane_id(1)
PROBED = TargetProbed(
    ClusterId("us-cluster"),
    "64 APIs 1a2b3c4d",
    passed=False,
    failures=("a repeated batch is appended again",),
    remarks=("it recompresses",),
)
NEXT = msgspec.structs.replace(
    HOLDER, pid=4712, daemon="daemon", keeper_pid=4700, keeper_ticks=70, program="0.1.0+1a2b3c4d"
)
READ = AclRule("TOPIC", "LITERAL", "eu.orders", "User:a", "*", "READ", "ALLOW")
GROUPS = AclRule("GROUP", "PREFIXED", "bill", "User:a", "10.0.0.1", "ALL", "DENY")


def upkeep(target: TopicId) -> list[list[AnyFact]]:
    """Configs, ACLs and deletions."""
    changes = (ConfigChange("cleanup.policy", None, "compact"), ConfigChange("retention.ms", "1000", None))
    return [
        [ConfigsSynced("orders", "eu.orders", target, changes)],
        [AclsPlanned((READ, GROUPS))],
        [AclsSynced((READ, GROUPS))],
        [AclsSynced(removed=(READ,)), AclsPlanned((READ,))],
        [TopicDeletionPlanned("orders", "eu.orders", target, 1_700_000_100_000)],
        [TopicDeletionWithdrawn("eu.orders", target, "orders is there again")],
        [TopicDeletionWithdrawn("eu.orders", target, "orders is there again")],
        [TopicCreated("old", TopicId("old-source"), "eu.old", TopicId("old-target"), 1)],
        [TopicDeletionPlanned("old", "eu.old", TopicId("old-target"), 1_700_000_100_000)],
        [TopicDeleted("eu.old", TopicId("old-target"))],
        [TopicDeletionPlanned("orders", "eu.orders", target, 1_700_000_200_000)],
        [ConfigChanged(("topics: + payments", "sync.acls: read-only -> off"))],
    ]


def orders() -> list[list[AnyFact]]:
    """What operators command, and take back."""
    ada, policy = Origin("ada@host", "the target is full", 1_700_000_000_000), Origin("policy", "", 1_700_000_001_000)
    return [
        [CopyingPaused("orders", -1, ada), CopyingPaused("orders", 3, policy), CopyingPaused("", -1, ada)],
        [CopyingPaused("orders", -1, policy), CopyingResumed("", -1, policy), CopyingResumed("payments", -1, ada)],
        [LanePinned("orders", 0, 1, ada), LanePinned("orders", 1, 0, ada), LanePinned("orders", 0, 1, policy)],
        [LanePinned("orders", 0, 2, policy), LaneUnpinned("orders", 1, ada), LaneUnpinned("orders", 1, ada)],
        [HostDrained("replicator-1", ada), HostDrained("replicator-2", ada), HostRestored("replicator-1", policy)],
    ]


def quarantine() -> list[list[AnyFact]]:
    """What cannot be copied, and what operators and policies decide about it."""
    ada = Origin("ada@host", "too large for the target", 1_700_000_002_000)
    halted = LaneHalted(LANE, 2, "rejected", "orders-0: refused", 270, 271)
    return [
        [Quarantined(LANE, 2, 270, 271, 10, "the target refuses the record"), halted],
        [QuarantineSkipped(LANE, 271, 272, ada), QuarantineReplayed(LANE, 270, 271, ada)],
        [LaneResumed(LANE, 2), QuarantineSkipped(LANE, 270, 271, ada)],
        [Quarantined(LANE, 2, 270, 271, 10, "the target refuses the record"), halted],
        [QuarantineSkipped(LANE, 270, 275, ada, 4, 9), LaneResumed(LANE, 2)],
        [
            Quarantined(OTHER, 1, 60, 61, 87, "no key", skip=True),
            Quarantined(OTHER, 1, 61, 63, 87, "no key", skip=True),
        ],
        [
            Quarantined(OTHER, 1, 63, 64, 87, "no key", skip=True, letters=1, letters_at=12),
            Quarantined(OTHER, 1, 64, 65, 87, "no key", skip=True, letters=1, letters_at=14),
            Quarantined(OTHER, 1, 64, 65, 87, "no key", skip=True, letters=1, letters_at=14),
        ],
        [Quarantined(LANE, 2, 290, 291, 0, "the source cannot read it")],
    ]


def seeks() -> list[list[AnyFact]]:
    """Commands to continue further ahead, and what lanes made of them."""
    ada = Origin("ada@host", "broken records", 1_700_000_003_000)
    leap = SourceRun(LANE, 2, (Run(160, 300),), (Verdict(290, 291, "expired"), Verdict(291, 300, "skipped")))
    return [
        [LaneSought(LANE, 280, 295, 0, ada), LaneSought(LANE, 285, 300, 291, ada), LaneSought(LANE, 285, 299, 0, ada)],
        [SeekDone(LANE, 2, 290, 300), leap],
        [LaneSought(OTHER, 50, 55, 0, ada), SeekDone(OTHER, 1, 55, 55), LaneSought(OTHER, 60, 70, 0, ada)],
    ]


def audits() -> list[list[AnyFact]]:
    """Proofs grow, become more thorough, and end with what they were about."""
    return [
        [RangeAudited(LANE, "digest", 0, 100, 250, 1_700_000_000_000, 5)],
        [RangeAudited(LANE, "records", 110, 120, 270, 1, 6)],
        [RangeAudited(LANE, "records", 100, 150, 262, -1, 7), RangeAudited(OTHER, "records", 0, 4, 44, 5, 8)],
        [VerdictGiven(OTHER, 1, (), "nothing new"), TargetRun(OTHER, 1, 3, 50, 2)],
    ]


def forgotten() -> list[list[AnyFact]]:
    """A topic that comes and goes, with its target topic."""
    source, target = TopicId("gone-source"), TopicId("gone-target")
    lane = LaneKey(source, 0, target).id
    return [
        [
            LaneOpened(lane, "gone", "eu.gone", 0, 1007, 0, "all"),
            LaneTaken(lane, 1, "replicator-3"),
            SourceRun(lane, 1, (Run(0, 0),)),
        ],
        [CopyForgotten("gone", source, "eu.gone", target), CopyForgotten("gone", source, "eu.gone", target)],
        [LaneTaken(lane, 2, "replicator-3")],
    ]


def named() -> list[list[AnyFact]]:
    """Topics that are recreated, with target topics of their own."""
    second, third = TopicId("source-topic-2"), TopicId("source-topic-3")
    lane = LaneKey(second, 0, TopicId("target-topic-2")).id
    return [
        [CopyNamed("orders", second, "eu.orders"), CopyNamed("orders", second, "eu.orders.2")],
        [CopyNamed("orders", second, "eu.orders.3"), CopyNamed("orders", third, "eu.orders.2")],
        [LaneOpened(lane, "orders", "eu.orders.2", 0, 1008, 0, "all"), CopyNamed("orders", third, "eu.orders.3")],
        [CopyForgotten("orders", third, "eu.orders.3", TopicId("")), CopyNamed("orders", third, "eu.orders.4")],
    ]


def compactions() -> list[list[AnyFact]]:
    """The last compaction moves runs, but none that has been recorded again since."""
    part = ArchivedRuns(2, 2, 0, 100, 50, 151, 7)
    former = msgspec.structs.replace(part, generation=1)
    return [
        [CompactionBegan(1, 5), CompactionBegan(1, 6), CompactionBegan(2, 7), MapCompacted(1, LANE, (former,))],
        [SourceRun(OTHER, 1, (Run(5, 60),)), MapCompacted(2, OTHER, (part,))],
        [MapCompacted(2, LANE, (msgspec.structs.replace(part, first_ordinal=1, turns=(50,)),))],
    ]


def jobs() -> list[list[AnyFact]]:
    """Jobs beside the daemon: of each kind one at a time."""
    first, other = Worker("host-a", 4711, "boot", 70), Worker("host-b", 12)
    stages = (DrillStage("ready", 90), DrillStage("groups", 1_200))
    drilled = DrillReceipt(flow="eu-us", at_ms=14, stages=stages, findings=("no topic",), groups=2, positions=3)
    return [
        [JobBegan("audit", 1, first, 60_000, 5), JobBegan("audit", 1, other, 60_000, 6)],
        [JobRenewed("audit", 1, 3, 8), JobBegan("compact", 1, other, 60_000, 7)],
        [JobEnded("audit", 1, "differences", "1 foreign", 9), JobRenewed("audit", 1, 8, 8)],
        [JobBegan("audit", 2, other, 60_000, 10), JobEnded("compact", 1, "failed", "no Java", 11)],
        [JobEnded("audit", 1, "done", "", 12), JobBegan("compact", 3, first, 60_000, 13)],
        [JobBegan("drill", 1, first, 60_000, 14), JobEnded("drill", 1, "differences", "no topic", 15, drilled)],
    ]


def repairs() -> list[list[AnyFact]]:
    """Repaired ranges: recorded once, joined, and recorded again at another place."""
    ada, topic = Origin("ada@host", "", 1_700_000_004_000), "mirrord.eu-us.repair"
    replace = msgspec.structs.replace
    first = RangeRepaired(LANE, 100, 104, "missing", topic, 7, ada)
    return [
        [first, first, replace(first, start=104, end=106, at=3)],
        [replace(first, start=105, end=108), replace(first, start=110, end=111, difference="altered", at=20)],
        [RangeRepaired(OTHER, 3, 9, "altered", topic, at, ada) for at in (11, 2)],
    ]


def regiven() -> list[list[AnyFact]]:
    """Ordinals under which other records may have been sent: once it remains unknown which record is there."""
    verdict = VerdictGiven(LANE, 2, (Verdict(320, 321, "unexplained"),), "the source no longer has what stands there")
    return [
        [SourceRun(LANE, 2, (Run(170, 320),), (Verdict(310, 320, "compacted"),), regiven=True)],
        [TakeoverChecked(LANE, 2, 169, 171, "unverifiable"), HoleFound(LANE, 2, 170, 170, 171, 171), verdict],
        [SourceRun(LANE, 2, (Run(180, 340),), regiven=True), SourceRun(LANE, 2, (Run(182, 344),), regiven=True)],
    ]


def commands() -> list[list[AnyFact]]:
    """Commands to the daemon, and an order of a client whose token is known."""
    ada = Origin("ada@host", "", 1_700_000_000_000, "local", "127.0.0.1")
    other = Origin("", "", 1_700_000_001_000, "deployment", "10.0.0.9")
    return [
        [CopyingPaused("payments", -1, ada), CopyingResumed("payments", -1, ada)],
        [CommandGiven("apply", ada), CommandGiven("upgrade", other, "http://10.0.0.9:8183")],
        [CommandGiven("stop", ada)],
        [RecordSkipped(7, Origin("ada@host", "nobody needs it", 1_700_000_000_000))],
        [LedgerSigned(Origin("ada@host", "set up signatures", 1_700_000_000_000))],
        [StateRecordSkipped(8, "lease", Origin("ada@host", "a disk was damaged", 1_700_000_000_000))],
        *failovers(ada),
    ]


def failovers(ada: Origin) -> list[list[AnyFact]]:
    """A failover that was cancelled, and one of a topic that no other fact names."""
    lost = LostRange("bills", 0, 10, 14, 1_700_000_000_000, 12, ((3, 4),), "a remark")
    return [
        [RecoveryBegan(1, "planned", (), ada), RecoveryStepDone(1, "catch up", "in 3 s")],
        [RecoveryFinished(1, True, 1_700_000_002_000)],
        [RecoveryBegan(2, "source-lost", ("bills",), ada), CopyingEnded(2, (lost,), 3, 1_700_000_000_000)],
        [RecoveryStepDone(2, "groups"), RecoveryFinished(2, False, 1_700_000_003_000)],
    ]


def sample() -> list[Entry]:
    """A ledger with every kind of fact, and some that do not bind."""
    target, source = TopicId("target-topic"), TopicId("source-topic")
    facts: list[tuple[int, list[AnyFact]]] = [
        (0, [FLOW]),
        (1, [LeaseTaken(1, HOLDER, 6000)]),
        (1, [TopicCreated("orders", source, "eu.orders", target, 1), PartitionsGrown("eu.orders", target, 2)]),
        (1, [opened(0), opened(1), LaneTaken(LANE, 1, "replicator-1"), LaneTaken(OTHER, 1, "replicator-2")]),
        (1, [SourceRun(LANE, 1, (Run(0, 100),)), TargetRun(LANE, 1, 0, 7, 3)]),
        (
            1,
            [
                SourceRun(
                    LANE, 1, (Run(50, 151), Run(99, 210)), (Verdict(150, 151, "control"), Verdict(200, 210, "aborted"))
                )
            ],
        ),
        (1, [VerdictGiven(OTHER, 1, (Verdict(0, 40, "compacted"),), "nothing is left of it")]),
        (1, [LeaseReleased(1)]),
        (1, [LaneTaken(LANE, 2, "too late")]),
        (2, [LeaseTaken(2, msgspec.structs.replace(HOLDER, host="host-b", started_ticks=77, daemon="daemon"), 9000)]),
        (2, [LaneTaken(LANE, 2, "replicator-3"), SourceRun(LANE, 1, (Run(99, 999),)), opened(1)]),
        (2, [SourceRun(LANE, 2, (Run(99, 215),), (Verdict(205, 215, "aborted"),)), TargetRun(LANE, 2, 99, 110, 4)]),
        (2, [TakeoverChecked(LANE, 2, 60, 98, "equal"), PolicyChanged(LANE, 2, "another")]),
        (2, [HoleFound(LANE, 2, 120, 121, 130, 132), SourceRun(LANE, 2, (Run(130, 236), Run(132, 248)))]),
        (2, [LaneHalted(OTHER, 1, "poison", "a batch was refused", 41, 42)]),
        (2, [LaneHalted(LANE, 2, "expired", "the source lost records", 400, 500), LaneResumed(LANE, 2)]),
        (2, [PROBED]),
        (2, [TakeoverChecked(LANE, 2, 132, 140, "different", "ordinal 135 (source offset 251) has another value")]),
        (
            2,
            [
                SourceRun(LANE, 2, (Run(132, 248), Run(136, 250), Run(141, 256), Run(142, 260))),
                VerdictGiven(LANE, 2, (Verdict(248, 250, "unexplained"), Verdict(250, 252, "doubled")), "another view"),
                MapRebuilt(LANE, 2, 132, 140, 142),
                LaneResumed(LANE, 2),
            ],
        ),
        *((2, recorded) for recorded in upkeep(target)),
        (2, [CopyInherited(OTHER, 1, 40, 44, 51, 50, "verified", ((38, 40),), ((30, 31),))]),
        (2, [SourceRun(LANE, 2, (Run(150, 262),), (Verdict(262, 268, "truncated"),))]),
        (2, [LeaseContinued(2, 3, NEXT), LeaseContinued(2, 2, HOLDER), LeaseContinued(2, 2, NEXT)]),
        *((2, recorded) for recorded in orders()),
        *((2, recorded) for recorded in quarantine()),
        *((2, recorded) for recorded in audits()),
        *((2, recorded) for recorded in forgotten()),
        *((2, recorded) for recorded in compactions()),
        *((2, recorded) for recorded in seeks()),
        *((2, recorded) for recorded in regiven()),
        *((2, recorded) for recorded in named()),
        *((2, recorded) for recorded in jobs()),
        *((2, recorded) for recorded in repairs()),
        *((2, recorded) for recorded in commands()),
    ]
    return [
        Entry(epoch, 1_700_000_000_000 + 1000 * number, tuple(recorded), writer_text("writer", number))
        for number, (epoch, recorded) in enumerate(facts)
    ]


def write() -> None:
    """Write the files of the present version."""
    state, entries = FlowState(), sample()
    for offset, entry in enumerate(entries[:CUT]):
        fold(state, entry, offset)
    ledger_end = LedgerEnd(TopicId("ledger-topic"), CUT, 2)
    progress = Progress(
        LANE, 2, 2, 140, 150, 4, 256, 300, 1_700_000_000_000, 1_700_000_001_000, protected=True, state="copying"
    )
    records = [
        *snapshots(state, Kept(), ledger_end).records,
        progress,
        LeaseRenewed(2, 9, 1_700_000_002_000),
        ledger_end,
    ]
    for offset, entry in enumerate(entries[CUT:], CUT):
        fold(state, entry, offset)
    state.accept_progress(progress)
    path(VERSION, "ledger").write_text("".join(f"{encode_entry(entry).hex()}\n" for entry in entries))
    path(VERSION, "state").write_text(
        "".join(f"{state_key(record)} {encode_state(record).hex()}\n" for record in records)
    )
    path(VERSION, "folded.json").write_text(json.dumps(plain(state), indent=2, sort_keys=True) + "\n")


def path(version: int, kind: str) -> Path:
    return FOLDER / f"v{version}.{kind}"


def entries(version: int) -> list[bytes]:
    return [bytes.fromhex(line) for line in path(version, "ledger").read_text().splitlines()]


@pytest.fixture(scope="module", autouse=True)
def written() -> None:
    if os.environ.get(WRITE) == "1":
        write()


def known_part(now: Any, then: Any) -> Any:
    """The value without fields that did not exist when the golden file was written."""
    if isinstance(now, dict) and isinstance(then, dict):
        return {key: known_part(value, then[key]) for key, value in now.items() if key in then}
    if isinstance(now, list) and isinstance(then, list) and len(now) == len(then):
        return [known_part(*pair) for pair in zip(now, then, strict=True)]
    return now


@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_a_ledger_folds_to_what_it_folded_to(version: int) -> None:
    expected = json.loads(path(version, "folded.json").read_text())
    rows = [line.split(" ") for line in path(version, "state").read_text().splitlines()]
    records = {key: decode_state(key, bytes.fromhex(data)) for key, data in rows}
    assert all(state_key(record) == key for key, record in records.items())
    whole, rest = FlowState(), restore(StateTopicContents(records))
    for record in records.values():
        if isinstance(record, Progress):
            whole.accept_progress(record)
    assert 0 < rest.next_offset < len(entries(version))
    for offset, data in enumerate(entries(version)):
        fold(whole, decode_entry(data), offset)
        fold(rest, decode_entry(data), offset)
    assert known_part(plain(whole), expected) == expected
    assert known_part(plain(rest), expected) == expected


def test_every_kind_of_fact_is_in_the_newest_golden_ledger() -> None:
    facts = [fact for data in entries(VERSION) for fact in decode_entry(data).facts]
    assert {type(fact) for fact in facts} == set(get_args(AnyFact))


def test_the_newest_golden_ledger_holds_the_sample() -> None:
    assert [decode_entry(data) for data in entries(VERSION)] == sample(), f"{WRITE}=1 writes it anew; see the README"


@pytest.mark.parametrize("version", range(1, VERSION + 1))
def test_a_golden_ledger_in_words(
    version: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(tmp_path, monkeypatch, version=version) == 0
    text = capsys.readouterr().out
    if os.environ.get(WRITE) == "1":
        path(version, "show").write_text(text)
    assert text == path(version, "show").read_text()


def test_the_golden_ledger_for_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert show(tmp_path, monkeypatch, "--json", "--lane", "orders-1") == 0
    documents = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [(document["offset"], document["kind"], document["bound"]) for document in documents] == [
        (3, "lane_opened", True),
        (3, "lane_taken", True),
        (6, "verdict_given", True),
        (10, "lane_opened", False),
        (14, "lane_halted", True),
        (31, "copy_inherited", True),
        (44, "quarantined", True),
        (44, "quarantined", True),
        (45, "quarantined", True),
        (45, "quarantined", True),
        (45, "quarantined", True),
        (49, "range_audited", True),
        (50, "verdict_given", True),
        (50, "target_run", True),
        (55, "source_run", True),
        (55, "map_compacted", False),
        (59, "lane_sought", True),
        (59, "seek_done", True),
        (59, "lane_sought", True),
        (75, "range_repaired", True),
        (75, "range_repaired", True),
    ]
    assert documents[2]["fact"] == {
        "lane": OTHER,
        "grant": 1,
        "verdicts": [{"start": 0, "end": 40, "reason": "compacted"}],
        "note": "nothing is left of it",
        "epochs": [],
    }


def show(folder: Path, monkeypatch: pytest.MonkeyPatch, *options: str, version: int = VERSION) -> int:
    conf = folder / "conf.toml"
    conf.write_text(
        '[clusters.eu]\nbootstrap = "eu:1"\n[clusters.us]\nbootstrap = "us:1"\n'
        '[[flows]]\nfrom = "eu"\nto = "us"\ntopics = [".*"]\n'
    )
    memory = MemoryLedger(entries=list(entries(version)))
    monkeypatch.setattr(verb, "KafkaLog", lambda *_: MemoryLog(memory))
    return main(["ledger", "show", *options, str(conf)])


def test_only_entries_with_new_facts_have_the_new_version() -> None:
    """A daemon of the version before must be able to read all that is written while it is replaced."""
    newest = {CommandGiven: 10, RecordSkipped: 11, LedgerSigned: 12, StateRecordSkipped: 13}
    newest |= dict.fromkeys(get_args(RecoveryFact), 14)
    for data in entries(VERSION):
        facts = decode_entry(data).facts
        drills = [15 for fact in facts if isinstance(fact, JobFact) and fact.job == "drill"]
        assert data[0] == max([9, *drills, *(newest.get(type(fact), 9) for fact in facts)])
    assert {data[0] for data in entries(VERSION)} == {9, 10, 11, 12, 13, 14, 15}
    assert {bytes.fromhex(line.split()[1])[0] for line in path(VERSION, "state").read_text().splitlines()} == {9}
