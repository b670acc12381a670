"""Facts: the contents of the ledger, and the records of the state topic.

A fact is something that has happened or has been decided, in the order of the ledger. Only `mirrord.ledger.fold`
changes state, and only from facts. Facts are tagged arrays in msgpack: a field may be added at the end with a default,
but nothing may ever be removed or change its meaning. The tests fold golden logs of every version.
"""

from typing import Literal

import msgspec

from mirrord.ledger.facts.archive import CompactionBegan, MapCompacted
from mirrord.ledger.facts.audit import AuditFact
from mirrord.ledger.facts.base import Fact
from mirrord.ledger.facts.jobs import JobFact
from mirrord.ledger.facts.orders import OrderFact
from mirrord.ledger.facts.quarantine import Quarantined, QuarantineOrder
from mirrord.ledger.facts.seeks import LaneSought, SeekDone
from mirrord.ledger.facts.source_ends import SourceEnds
from mirrord.ledger.facts.start_offsets import Selected, TopicStarts
from mirrord.model.acls import AclRule
from mirrord.model.names import ClusterId, LaneId, TopicId
from mirrord.model.runs import Run

Reason = Literal[
    "control",
    "aborted",
    "compacted",
    "expired",
    "recreated",
    "truncated",
    "filtered",
    "copied-from-target",
    "rejected",
    "unexplained",
    "doubled",
    "skipped",
]
"""Why source offsets were not copied one to one."""

LOSSES: tuple[Reason, ...] = ("expired", "truncated", "recreated", "rejected", "skipped", "unexplained")
"""The reasons for which the target lacks records that readers of the source could have read."""

Mode = Literal["sequence", "at-least-once"]
"""How a lane avoids writing a record twice. "sequence": by its producer id and sequences, which the target broker
checks, together with the contents of the target log. "at-least-once": by the target log alone, because the brokers
failed the probe (`TargetProbed`); a record may be duplicated if a batch of a dead holder arrives late.
"""

InheritedBy = Literal["verified", "behind", "unverifiable", "trusted", "strange"]
"""How MirrorMaker 2's recorded position compares with the target. "verified": the target holds the record before the
position. "behind": the target ends before the position, and the lane begins where the target ends. "unverifiable":
nothing is left to compare. "trusted": nothing was compared, according to the configuration. "strange": the target ends
with other records, and the lane does not begin.
"""


class Verdict(msgspec.Struct, frozen=True, array_like=True):
    """The source offsets [start, end) that were not copied, and the reason."""

    start: int
    """First source offset."""
    end: int
    """Source offset after the last one."""
    reason: Reason
    """Why they were not copied."""


class Holder(msgspec.Struct, frozen=True, array_like=True):
    """The holder of a lease, and where the command line can reach it."""

    host: str
    """Machine of the daemon."""
    pid: int
    instance: str
    """Name of the daemon (`instance` in its configuration)."""
    http: str
    """Address of its HTTP API."""
    boot_id: str = ""
    """The kernel's boot id.

    With `host` and `pid` it shows a new daemon on the same machine that the old one is dead.
    """
    started_ticks: int = 0
    """Start time of the process in clock ticks since boot, because its pid may be reused. 0 if it is not known."""
    hosts_all: bool = False
    """Whether its replicators are tasks of the holder's process. When that process has ended, nothing can write under
    the lease any more.
    """
    daemon: str = ""
    """Identity that its process shares with the processes started as its replacement when it dies, and with no other.
    Empty if no process will replace it.
    """
    keeper_pid: int = 0
    """The process on the same machine whose end means that no replacement is started any more. 0 if there is none."""
    keeper_ticks: int = 0
    """Start time of the keeper process, in the same unit as `started_ticks`."""
    program: str = ""
    """Version and commit of its mirrord."""


class FlowOpened(Fact, frozen=True, tag="flow_opened"):
    """The first fact of a ledger. It records the clusters of the flow.

    A flow of the same name between other clusters cannot use this ledger: its start is refused.
    """

    flow: str
    """Name of the flow."""
    source_cluster: ClusterId
    target_cluster: ClusterId
    keeps_starts: bool = False
    """Whether the ledger holds the start offsets of the first scan.

    False if an older program or a rebuild opened it.
    """


class LeaseTaken(Fact, frozen=True, tag="lease_taken"):
    """A daemon took the flow.

    The fact takes effect only if `epoch` is one more than the last; facts of older epochs have no effect from then on.
    """

    epoch: int
    holder: Holder
    ttl_ms: int
    """Length of the lease: how long the holder may be silent before another daemon takes the flow."""


class LeaseContinued(Fact, frozen=True, tag="lease_continued"):
    """The holder's process has ended, and another process of the same daemon continues under the same lease.

    The fact takes effect only if `turn` is one more than the last, and the daemon is the same. Writers under the lease
    are not affected.
    """

    epoch: int
    turn: int
    """Number of the daemon's process under this lease, from 1 on."""
    holder: Holder


class LeaseReleased(Fact, frozen=True, tag="lease_released"):
    """The holder drained its lanes and left, so the next holder need not wait."""

    epoch: int


class TopicCreated(Fact, frozen=True, tag="topic_created"):
    """mirrord created a target topic."""

    source_topic: str
    source_topic_id: TopicId
    target_topic: str
    target_topic_id: TopicId
    partitions: int
    """Number of partitions."""


class PartitionsGrown(Fact, frozen=True, tag="partitions_grown"):
    """mirrord added partitions to a target topic, up to the source's partition count."""

    target_topic: str
    target_topic_id: TopicId
    partitions: int
    """The new number of partitions."""


class ConfigChange(msgspec.Struct, frozen=True, array_like=True):
    """One config of a topic. None means that the config is not set on the topic, so the cluster's value applies."""

    name: str
    """Name of the config."""
    before: str | None
    """Value before the change."""
    after: str | None
    """Value after the change."""


class ConfigsSynced(Fact, frozen=True, tag="configs_synced"):
    """mirrord altered configs of a target topic."""

    source_topic: str
    target_topic: str
    target_topic_id: TopicId
    changes: tuple[ConfigChange, ...]
    """The configs that were altered."""


class AclsPlanned(Fact, frozen=True, tag="acls_planned"):
    """mirrord is about to add these ACLs at the target.

    Until the next `AclsSynced` records the outcome, those of them that exist at the target are treated as ACLs that
    mirrord added.
    """

    rules: tuple[AclRule, ...]
    """The ACLs."""


class AclsSynced(Fact, frozen=True, tag="acls_synced"):
    """mirrord added and removed these ACLs at the target. It may remove only ACLs that it added itself."""

    added: tuple[AclRule, ...] = ()
    """ACLs that were added."""
    removed: tuple[AclRule, ...] = ()
    """ACLs that were removed."""


class TopicDeletionPlanned(Fact, frozen=True, tag="deletion_planned"):
    """The source topic is gone. Its copy, which mirrord created, will be deleted at `due_ms` (wall clock)."""

    source_topic: str
    target_topic: str
    target_topic_id: TopicId
    due_ms: int
    """Time of the deletion. The daemon deletes the topic when its clock has passed this time."""


class TopicDeletionWithdrawn(Fact, frozen=True, tag="topic_kept"):
    """The target topic is kept: its source is back, or deletions are no longer wanted."""

    target_topic: str
    target_topic_id: TopicId
    reason: str
    """Why it is kept, for people."""


class TopicDeleted(Fact, frozen=True, tag="topic_deleted"):
    """mirrord deleted a target topic, with all its records."""

    target_topic: str
    target_topic_id: TopicId


class CopyForgotten(Fact, frozen=True, tag="copy_forgotten"):
    """Neither a source topic nor its copy exists any more, so the state of the lanes between them is dropped."""

    source_topic: str
    source_topic_id: TopicId
    target_topic: str
    target_topic_id: TopicId


class CopyNamed(Fact, frozen=True, tag="copy_named"):
    """The copy of the source topic with this id has this name at the target.

    The fact is appended before that topic is created.

    It takes effect if the id has no name yet, and no other source topic's copy has that name.
    """

    source_topic: str
    source_topic_id: TopicId
    target_topic: str


class TargetProbed(Fact, frozen=True, tag="target_probed"):
    """The target's brokers were probed for the behaviour on which exactly-once delivery depends.

    If the brokers were probed several times, only the newest result is used.
    """

    cluster: ClusterId
    """Cluster id of the target."""
    version: str
    """Fingerprint of the APIs that the brokers offer. If it changes, the brokers are probed again."""
    passed: bool
    """Whether the brokers behave as exactly once requires."""
    failures: tuple[str, ...] = ()
    """A line for each rule that they broke."""
    remarks: tuple[str, ...] = ()
    """A line for each permitted peculiarity worth knowing."""


class LaneOpened(Fact, frozen=True, tag="lane_opened"):
    """A lane exists from here on, with the producer id that it owns permanently.

    The first such fact of a lane takes effect.
    """

    lane: LaneId
    source_topic: str
    target_topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    policy: str
    """Fingerprint of the settings that decide which records the lane sees: selection, isolation, filter, transform."""
    mode: Mode = "sequence"
    """Mode at the time of opening. A later probe of other brokers may change it."""


class LaneTaken(Fact, frozen=True, tag="lane_taken"):
    """A replicator took the lane.

    The fact takes effect only if `grant` is one more than the lane's; facts of older grants have no effect from then
    on. All intents of the previous holder precede this fact. `times` are the longest lease and request timeout, in ms,
    of the holder and of a previous holder that did not leave cleanly. Zeros mean that an older version wrote the fact.
    """

    lane: LaneId
    grant: int
    replicator: str
    times: tuple[int, int] = (0, 0)
    """(lease, request timeout), as described above."""


class PolicyChanged(Fact, frozen=True, tag="policy_changed"):
    """The lane continues under another policy. A new run begins here even if offsets are consecutive."""

    lane: LaneId
    grant: int
    policy: str
    """The new fingerprint (`LaneOpened.policy`)."""


class Rewound(msgspec.Struct, frozen=True, array_like=True):
    """The target log went back, and the lane's ordinals from `first` on were mapped to other source records.

    A resume position that was saved before that is valid only up to this one.
    """

    first: int
    """Lowest ordinal that was reassigned."""
    ordinal: int
    """The ordinal of this resume position."""
    target_offset: int
    """Its target offset."""
    leader_epoch: int
    """Its leader epoch."""


class SourceRun(Fact, frozen=True, tag="source_run"):
    """Intent before gap: runs that are about to be produced, and the verdicts on the offsets that they leap over.

    A run supersedes all earlier runs that begin at or above its first ordinal. A "truncated" verdict also says
    something about the records that were copied before, under ordinals below the first of these runs: those that had a
    source offset at or above the start of the verdict no longer exist in the source.
    """

    lane: LaneId
    grant: int
    runs: tuple[Run, ...]
    """Where the lane will write: from each ordinal on, the source offsets of its records."""
    verdicts: tuple[Verdict, ...] = ()
    """Why the source offsets between the runs are not copied."""
    epochs: tuple[tuple[int, int], ...] = ()
    """(ordinal, leader epoch of the source) for each change of the epoch. -1 means that the epoch is unknown from there
    on.
    """
    regiven: bool = False
    """Whether other records may have been sent under these ordinals. According to all that is known they cannot arrive
    any more. If they do, they must not be taken for the records of these runs.
    """
    rewound: Rewound | None = None
    """Set if a resume position above the lowest of these runs may have been saved."""


class TargetRun(Fact, frozen=True, tag="target_run"):
    """From this ordinal on, the lane's records are stored at these target offsets."""

    lane: LaneId
    grant: int
    ordinal: int
    """The first ordinal of the run."""
    offset: int
    """Its target offset."""
    leader_epoch: int
    """Leader epoch of the target partition when the record was acknowledged or read."""


class VerdictGiven(Fact, frozen=True, tag="verdict_given"):
    """Source offsets that will not be copied, without a run that follows them."""

    lane: LaneId
    grant: int
    verdicts: tuple[Verdict, ...]
    """The verdicts."""
    note: str = ""
    """One line for people."""


class HoleFound(Fact, frozen=True, tag="hole_found"):
    """The target refused some of the lane's batches and then took later ones, having forgotten the producer in between.

    The ordinals [first, last] are not stored anywhere in the target log. Their records follow out of order, under the
    ordinals from `again` on, according to the runs of the `SourceRun` in the same entry.
    """

    lane: LaneId
    grant: int
    first: int
    """First missing ordinal."""
    last: int
    """Last missing ordinal."""
    again: int
    """The ordinal from which on the refused records follow."""
    until: int
    """The ordinal at which the lane continues after everything that had to be copied again."""

    @property
    def is_open(self) -> bool:
        """Whether nothing is copied again for this hole.

        Something is stored in its place, the source no longer has the records, and nothing shows which records they are
        (`SourceRun.regiven`). The hole ends where its ordinals are assigned again.
        """
        return self.again == self.until and self.first <= self.last


class LaneHalted(Fact, frozen=True, tag="lane_halted"):
    """The lane is halted. [start, end) are the source offsets concerned."""

    lane: LaneId
    grant: int
    reason: str
    """Short name of the cause."""
    line: str
    """The cause in one line, for people."""
    start: int
    """First source offset concerned."""
    end: int
    """Source offset after the last one concerned."""


class LaneResumed(Fact, frozen=True, tag="lane_resumed"):
    """A halted lane continues."""

    lane: LaneId
    grant: int


class TakeoverChecked(Fact, frozen=True, tag="takeover_checked"):
    """Trust, then check: the batches of the lane that a takeover found were read back and compared with the source."""

    lane: LaneId
    grant: int
    first: int
    """First ordinal that was compared."""
    last: int
    """Last ordinal that was compared."""
    outcome: Literal["equal", "unverifiable", "different"]
    """The result. "unverifiable": the source no longer has the records. It does not count as a difference."""
    note: str = ""
    """One line for people."""
    more: bool = False
    """Whether a previous holder may have sent other records under later ordinals. These are compared later."""
    is_all: bool = False
    """Whether the target log was read to its end after nothing sent earlier could arrive any more, so that no such
    record follows.
    """


class MapRebuilt(Fact, frozen=True, tag="map_rebuilt"):
    """Target and source differed, and both logs were read.

    The `SourceRun` in the same entry records the actual contents.

    The ordinals [first, last] were found again in the target. The records that the target lacked follow under the
    ordinals up to `until`, and there the lane continues.
    """

    lane: LaneId
    grant: int
    first: int
    """First ordinal that was found again."""
    last: int
    """Last ordinal that was found again."""
    until: int
    """The ordinal at which the lane continues after the missing records."""


class CopyInherited(Fact, frozen=True, tag="copy_inherited"):
    """The target held a copy that MirrorMaker 2 had made, and the lane continues after it."""

    lane: LaneId
    grant: int
    said: int
    """The source offset after the last one that MirrorMaker 2 recorded."""
    position: int
    """The source offset at which the lane begins."""
    target_end: int
    """The target offset at which the copy ends."""
    looked_at: int
    """Number of its last records that were compared."""
    found: InheritedBy
    """The result of the comparison."""
    doubled: tuple[tuple[int, int], ...] = ()
    """Source offsets [start, end) that the target holds more than once."""
    missing: tuple[tuple[int, int], ...] = ()
    """Source offsets [start, end) that the target lacks, although it holds offsets before and after them."""


LaneFact = (
    LaneOpened
    | LaneTaken
    | PolicyChanged
    | SourceRun
    | TargetRun
    | VerdictGiven
    | HoleFound
    | LaneHalted
    | LaneResumed
    | TakeoverChecked
    | MapRebuilt
    | CopyInherited
    | Quarantined
    | SeekDone
)

TopicFact = (
    TopicCreated
    | PartitionsGrown
    | ConfigsSynced
    | TopicDeletionPlanned
    | TopicDeletionWithdrawn
    | TopicDeleted
    | CopyForgotten
    | CopyNamed
)


class ConfigChanged(Fact, frozen=True, tag="config_changed"):
    """A changed configuration, or the first one, is in effect for the facts that follow."""

    changes: tuple[str, ...]
    """One line for each changed setting, for people."""
    starts: tuple[TopicStarts, ...] = ()
    """Topics that the configuration selects for the first time."""
    selected: Selected | None = None
    """The selection for which all matching topics have been seen, so that a topic that appears later was created later.
    None means unchanged.
    """


FlowFact = (
    FlowOpened | LeaseTaken | LeaseContinued | LeaseReleased | TargetProbed | ConfigChanged | AclsPlanned | AclsSynced
)

AnyFact = (
    FlowFact
    | TopicFact
    | LaneFact
    | OrderFact
    | QuarantineOrder
    | LaneSought
    | AuditFact
    | CompactionBegan
    | MapCompacted
    | JobFact
)


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One record of the ledger: facts that one writer appended together, under one lease epoch."""

    lease_epoch: int
    """Epoch of the lease under which the entry was written; 0 before the first lease."""
    at_ms: int
    """The writer's wall-clock time, for information only: nothing is decided by it."""
    facts: tuple[AnyFact, ...]
    """The facts, in order."""
    writer: str = ""
    """Identifies the writer and its append, so that it recognises its own entry when it reads the ledger back."""


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """The progress of a lane, written to the state topic at most once a second, and once when the lane goes idle.

    `ordinal`, `target_offset` and `leader_epoch` are a mark below the target's high watermark: the next ordinal to
    write, and the target offset directly after the lane's last acknowledged record. The other fields serve status and
    lag while the daemon and the source are down.
    """

    lane: LaneId
    lease_epoch: int
    grant: int
    ordinal: int
    target_offset: int
    leader_epoch: int
    source_offset: int
    source_end: int
    last_record_ms: int
    at_ms: int
    protected: bool
    state: str
    replicator: str = ""
    raw_batches: int = 0
    rebuilt_batches: int = 0
    copied_bytes: int = 0
    source_epoch: int = -1
    """Leader epoch of the source batch before `source_offset`, or -1."""
    epochs_told: bool = False
    """Whether the ledger records every change of that epoch before the first record after the change is produced."""
    settled: bool = False
    """Whether every source record before `source_offset` is either stored below the resume position or not copied, so
    that nothing is in flight.
    """
    source: SourceEnds | None = None
    """Set in records about a source topic (`mirrord.ledger.source_ends`). Such a record is not a lane's resume
    position."""
    rewinds: int = 0
    """Number of the lane's `Rewound` that were known when the record was written."""


class LeaseRenewed(msgspec.Struct, frozen=True, array_like=True):
    """The lease is alive.

    Readers measure its age by their own monotonic clock from the moment they saw the record; clocks are not compared.
    """

    epoch: int
    beat: int
    at_ms: int
    settled: bool = False
    """Whether no process writes under an older lease any more."""
