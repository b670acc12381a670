"""Facts, which are the contents of the ledger, and the other records of the state topic.

A fact states something that has happened or has been decided, in the order of the ledger. Only `mirrord.ledger.fold`
changes the state of a flow, and it does so only from facts. Facts are tagged arrays in msgpack. A field may be added at
the end if it has a default, but no field may ever be removed or change its meaning. The tests fold golden logs of every
version.
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
"""The reasons of verdicts on records that readers of the source could have read and that the target does not have."""

Mode = Literal["sequence", "at-least-once"]
"""How a lane avoids writing a record twice. "sequence": by its producer id and sequence numbers, which the target
broker checks, and by the contents of the target log. "at-least-once": by the contents of the target log alone,
because the brokers failed the probe (`TargetProbed`). In this mode a record may be duplicated if a batch of a dead
holder arrives late.
"""

InheritedBy = Literal["verified", "behind", "unverifiable", "trusted", "strange"]
"""How the position that MirrorMaker 2 recorded compares with the target. "verified": the target holds the record before
the position. "behind": the target ends before the position, and the lane begins where the target ends.
"unverifiable": no records are left to compare. "trusted": nothing was compared, because the configuration says so.
"strange": the target ends with other records, and the lane does not begin.
"""


class Verdict(msgspec.Struct, frozen=True, array_like=True):
    """A range [start, end) of source offsets that were not copied, with the reason."""

    start: int
    """First source offset of the range."""
    end: int
    """End of the range of source offsets (exclusive)."""
    reason: Reason
    """Why these offsets were not copied."""


class Holder(msgspec.Struct, frozen=True, array_like=True):
    """The process that holds a lease, and how the command line can reach it."""

    host: str
    """Host name of the daemon's machine."""
    pid: int
    instance: str
    """Name of the daemon (`instance` in its configuration)."""
    http: str
    """Address of the daemon's HTTP API."""
    boot_id: str = ""
    """Boot id of the machine's kernel. With `host` and `pid`, it lets a new daemon on the same machine detect that the
    holder is dead.
    """
    started_ticks: int = 0
    """Start time of the process in clock ticks since boot, because its process id may be reused. 0 if it is not
    known.
    """
    hosts_all: bool = False
    """Whether all replicators are tasks of the holder's process. If so, nothing can write under the lease after this
    process has ended.
    """
    daemon: str = ""
    """Identity of the daemon. If the process dies, the process that replaces it has the same identity, and no other
    process has it. Empty if no process will replace it.
    """
    keeper_pid: int = 0
    """Process id of the process on the same machine that must be alive for a replacement to be started. 0 if there is
    no such process.
    """
    keeper_ticks: int = 0
    """Start time of the process `keeper_pid`, in the same unit as `started_ticks`."""
    program: str = ""
    """Version and commit of the daemon's mirrord."""


class FlowOpened(Fact, frozen=True, tag="flow_opened"):
    """A flow has been opened. This is the first fact of every ledger, and it records the clusters of the flow.

    A flow of the same name between other clusters cannot use this ledger: its start is refused.
    """

    flow: str
    """Name of the flow."""
    source_cluster: ClusterId
    target_cluster: ClusterId
    keeps_starts: bool = False
    """Whether the ledger holds the start offsets that were resolved at the first scan of the source's topics. False if
    an older version of mirrord or `mirrord rebuild` has opened the ledger.
    """


class LeaseTaken(Fact, frozen=True, tag="lease_taken"):
    """A daemon has taken the lease of the flow.

    The fact takes effect only if `epoch` is one more than the last epoch. From then on, facts of older epochs have no
    effect.
    """

    epoch: int
    holder: Holder
    ttl_ms: int
    """Length of the lease: how long the holder may be silent before another daemon takes the flow."""


class LeaseContinued(Fact, frozen=True, tag="lease_continued"):
    """The holder's process has ended, and another process of the same daemon continues under the same lease.

    The fact takes effect only if `turn` is one more than the last one and the daemon is the same. Replicators that
    write under the lease are not affected.
    """

    epoch: int
    turn: int
    """Number of the holder's process under this lease. The process that took the lease has the number 1."""
    holder: Holder


class LeaseReleased(Fact, frozen=True, tag="lease_released"):
    """The holder has drained its lanes and released the lease, so the next holder does not have to wait."""

    epoch: int


class TopicCreated(Fact, frozen=True, tag="topic_created"):
    """mirrord has created a target topic."""

    source_topic: str
    source_topic_id: TopicId
    target_topic: str
    target_topic_id: TopicId
    partitions: int
    """Number of partitions."""


class PartitionsGrown(Fact, frozen=True, tag="partitions_grown"):
    """mirrord has added partitions to a target topic, so that it has as many as the source topic."""

    target_topic: str
    target_topic_id: TopicId
    partitions: int
    """The new number of partitions."""


class ConfigChange(msgspec.Struct, frozen=True, array_like=True):
    """A change of one config of a topic. The value none means that the config is not set on the topic, so the default
    of the cluster applies."""

    name: str
    """Name of the config."""
    before: str | None
    """Value before the change."""
    after: str | None
    """Value after the change."""


class ConfigsSynced(Fact, frozen=True, tag="configs_synced"):
    """mirrord has altered configs of a target topic."""

    source_topic: str
    target_topic: str
    target_topic_id: TopicId
    changes: tuple[ConfigChange, ...]
    """The configs that were altered."""


class AclsPlanned(Fact, frozen=True, tag="acls_planned"):
    """mirrord is about to add these ACLs at the target.

    Until the next `AclsSynced` records the outcome, mirrord treats any of these ACLs that exists at the target as added
    by itself.
    """

    rules: tuple[AclRule, ...]
    """The ACLs to be added."""


class AclsSynced(Fact, frozen=True, tag="acls_synced"):
    """mirrord has added and removed ACLs at the target. It removes only ACLs that it has added itself."""

    added: tuple[AclRule, ...] = ()
    """ACLs that were added."""
    removed: tuple[AclRule, ...] = ()
    """ACLs that were removed."""


class TopicDeletionPlanned(Fact, frozen=True, tag="deletion_planned"):
    """The source topic no longer exists. Its target topic, which mirrord created, will be deleted at `due_ms` (wall
    clock)."""

    source_topic: str
    target_topic: str
    target_topic_id: TopicId
    due_ms: int
    """Time of the deletion. The daemon deletes the topic when its own clock has passed this time."""


class TopicDeletionWithdrawn(Fact, frozen=True, tag="topic_kept"):
    """A planned deletion of a target topic has been withdrawn. Either the source topic exists again, the target topic
    is gone already, or deletions are no longer configured."""

    target_topic: str
    target_topic_id: TopicId
    reason: str
    """Why the deletion was withdrawn, for people."""


class TopicDeleted(Fact, frozen=True, tag="topic_deleted"):
    """mirrord has deleted a target topic, with all its records."""

    target_topic: str
    target_topic_id: TopicId


class CopyForgotten(Fact, frozen=True, tag="copy_forgotten"):
    """Neither a source topic nor its target topic exists any more, so the state of the lanes between them is
    dropped."""

    source_topic: str
    source_topic_id: TopicId
    target_topic: str
    target_topic_id: TopicId


class CopyNamed(Fact, frozen=True, tag="copy_named"):
    """The copy of the source topic with this topic id is given the name `target_topic`.

    The fact is appended before the target topic is created. It takes effect if the copy has no name yet, and no other
    source topic's copy has this name.
    """

    source_topic: str
    source_topic_id: TopicId
    target_topic: str


class TargetProbed(Fact, frozen=True, tag="target_probed"):
    """The target's brokers have been probed for the behaviour on which exactly-once delivery depends.

    If they were probed several times, only the newest result is used.
    """

    cluster: ClusterId
    """Cluster id of the target."""
    version: str
    """Fingerprint of the APIs that the brokers offer. If it changes, the brokers are probed again."""
    passed: bool
    """Whether the brokers behave as exactly-once delivery requires."""
    failures: tuple[str, ...] = ()
    """One line for each rule that the brokers broke."""
    remarks: tuple[str, ...] = ()
    """One line for each deviation that is permitted, but worth knowing."""


class LaneOpened(Fact, frozen=True, tag="lane_opened"):
    """A lane has been created, with the producer id that it keeps for its whole life.

    Only the first `LaneOpened` of a lane takes effect.
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
    """How the lane avoids writing a record twice: `sequence` copies exactly once. If the target's brokers change, a
    later probe may change the mode.
    """


class LaneTaken(Fact, frozen=True, tag="lane_taken"):
    """A replicator has taken the lane.

    The fact takes effect only if `grant` is one more than the lane's current grant. From then on, facts of older grants
    have no effect, so all valid intents of the previous holder precede this fact.
    """

    lane: LaneId
    grant: int
    replicator: str
    times: tuple[int, int] = (0, 0)
    """Length of the lease and request timeout, in ms. For each of them, the longer time of this holder and of a
    previous holder that did not leave cleanly. Zeros mean that an older version of mirrord wrote the fact.
    """


class PolicyChanged(Fact, frozen=True, tag="policy_changed"):
    """The settings that decide which records the lane sees have changed, and the lane continues under the new ones.

    A new run begins here even if the offsets are consecutive.
    """

    lane: LaneId
    grant: int
    policy: str
    """The new fingerprint of these settings (`LaneOpened.policy`)."""


class Rewound(msgspec.Struct, frozen=True, array_like=True):
    """A note that the target log went back, and that the lane's ordinals from `first` on were assigned to other source
    records.

    A resume position that was saved before is valid only up to the resume position in this note.
    """

    first: int
    """Lowest ordinal that was reassigned."""
    ordinal: int
    """Ordinal of the resume position."""
    target_offset: int
    """Target offset of the resume position."""
    leader_epoch: int
    """Leader epoch of the resume position."""


class SourceRun(Fact, frozen=True, tag="source_run"):
    """An intent: the runs that the lane is about to write, and the verdicts on the source offsets that it skips in
    between.

    A run supersedes all earlier runs that begin at or above its first ordinal. A verdict "truncated" also says that the
    source has lost records that were copied before: those with an ordinal below the first of these runs, and with a
    source offset at or above the start of the verdict.
    """

    lane: LaneId
    grant: int
    runs: tuple[Run, ...]
    """The runs: from each first ordinal on, the source offsets of the records that the lane will write."""
    verdicts: tuple[Verdict, ...] = ()
    """Why the source offsets between the runs are not copied."""
    epochs: tuple[tuple[int, int], ...] = ()
    """A pair (ordinal, leader epoch of the source) for each ordinal at which the epoch changes. The epoch -1 means that
    it is unknown from there on.
    """
    regiven: bool = False
    """Whether other records may have been sent to the target under these ordinals before. According to all that is
    known, these can no longer arrive. If one does, it must not be taken for a record of these runs.
    """
    rewound: Rewound | None = None
    """Set if a resume position above the lowest ordinal of these runs may have been saved."""


class Displaced(msgspec.Struct, frozen=True, array_like=True):
    """Ordinals that the target log lacks, and whose target offsets later ordinals have. An election removed their
    records, or the target refused them.

    They are not copied again as long as the log holds a newer record of the same key.
    """

    first: int
    """First of these ordinals."""
    last: int
    """Last of these ordinals."""
    above: int
    """A record of the same key at or above this target offset is newer."""
    leader_epoch: int
    """A record of the same key that was appended in a higher leader epoch of the target is newer, wherever it is."""


class TargetRun(Fact, frozen=True, tag="target_run"):
    """A run at the target: from this ordinal on, the lane's records are stored at consecutive target offsets."""

    lane: LaneId
    grant: int
    ordinal: int
    """The first ordinal of the run."""
    offset: int
    """Target offset of this ordinal."""
    leader_epoch: int
    """Leader epoch of the target partition when the record at this offset was acknowledged or read."""
    displaced: tuple[Displaced, ...] = ()
    """Ordinals before this run that the target log lacks, because records of this run are at their target offsets."""


class VerdictGiven(Fact, frozen=True, tag="verdict_given"):
    """Verdicts on source offsets that will not be copied, recorded without a run that follows them."""

    lane: LaneId
    grant: int
    verdicts: tuple[Verdict, ...]
    """The verdicts."""
    note: str = ""
    """A remark for people, in one line."""


class HoleFound(Fact, frozen=True, tag="hole_found"):
    """The target refused some of the lane's batches and accepted later ones, because it had forgotten the producer in
    between.

    The records with the ordinals [first, last] are not in the target log. They are copied again out of order, under the
    ordinals from `again` on. The `SourceRun` in the same entry contains the runs for these ordinals.
    """

    lane: LaneId
    grant: int
    first: int
    """First missing ordinal."""
    last: int
    """Last missing ordinal."""
    again: int
    """First ordinal under which the missing records are copied again."""
    until: int
    """Ordinal at which the lane continues, after everything that has to be copied again."""

    @property
    def is_open(self) -> bool:
        """Whether nothing is copied again for this hole.

        This is the case if something is stored in its place, the source no longer has the records, and nothing shows
        which records they are (`SourceRun.regiven`). The hole ends where its ordinals are assigned again.
        """
        return self.again == self.until and self.first <= self.last


class LaneHalted(Fact, frozen=True, tag="lane_halted"):
    """The lane has halted. The cause concerns the source offsets [start, end)."""

    lane: LaneId
    grant: int
    reason: str
    """Short name of the cause."""
    line: str
    """The cause in one line, for people."""
    start: int
    """First of the source offsets concerned."""
    end: int
    """Source offset after the last of those concerned."""


class LaneResumed(Fact, frozen=True, tag="lane_resumed"):
    """A halted lane continues to copy."""

    lane: LaneId
    grant: int


class TakeoverChecked(Fact, frozen=True, tag="takeover_checked"):
    """After a takeover, batches of the lane that a previous holder may have written were read back from the target and
    compared with the source."""

    lane: LaneId
    grant: int
    first: int
    """First ordinal that was compared."""
    last: int
    """Last ordinal that was compared."""
    outcome: Literal["equal", "unverifiable", "different"]
    """The result. "unverifiable": some records could not be compared, for example because the source no longer has
    them. This does not count as a difference.
    """
    note: str = ""
    """A remark for people, in one line."""
    more: bool = False
    """Whether a previous holder may have sent other records under later ordinals, which have not been compared yet."""
    is_all: bool = False
    """Whether the target log was read to its end after the time from which on nothing that had been sent before could
    still arrive. If so, no such record follows.
    """


class MapRebuilt(Fact, frozen=True, tag="map_rebuilt"):
    """Target and source differed, and the offset map of the lane has been rebuilt from both logs.

    The `SourceRun` in the same entry records which source records the target holds under which ordinals. The ordinals
    [first, last] were found in the target. The records that the target lacked are copied again under the ordinals after
    `last`. The lane continues at the ordinal `until`.
    """

    lane: LaneId
    grant: int
    first: int
    """First ordinal that was found in the target."""
    last: int
    """Last ordinal that was found in the target."""
    until: int
    """Ordinal at which the lane continues, after the records that the target lacked."""


class CopyInherited(Fact, frozen=True, tag="copy_inherited"):
    """The target partition held a copy that MirrorMaker 2 had made, and the lane continues after it."""

    lane: LaneId
    grant: int
    said: int
    """Source offset after the last one that MirrorMaker 2 recorded as copied."""
    position: int
    """Source offset at which the lane begins."""
    target_end: int
    """Target offset at which MirrorMaker 2's copy ends."""
    looked_at: int
    """Number of records at the end of the copy that were compared with the source."""
    found: InheritedBy
    """Result of the comparison. `behind`: the target ends before the position that MirrorMaker 2 recorded.
    `unverifiable`: no records were left to compare. `trusted`: the configuration says not to compare. `strange`: the
    target ends with other records.
    """
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
    """A configuration, changed or the first one, is in effect for the facts that follow."""

    changes: tuple[str, ...]
    """One line for each changed setting, for people."""
    starts: tuple[TopicStarts, ...] = ()
    """Start offsets of the topics that the configuration selects for the first time."""
    selected: Selected | None = None
    """The selection of topics for which all matching topics have been seen. A matching topic that appears later has
    therefore been created later. None means that the selection has not changed.
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
    """One record of the ledger: the facts that one writer has appended together, under one lease epoch."""

    lease_epoch: int
    """Epoch of the lease under which the entry was written; 0 before the first lease."""
    at_ms: int
    """Wall-clock time of the writer. It is for information only: no decision depends on it."""
    facts: tuple[AnyFact, ...]
    """The facts, in the order in which they are folded."""
    writer: str = ""
    """Name of the writer and number of its append. By it, the writer recognizes its own entry when it reads the ledger
    back.
    """


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """The progress of a lane. It is written to the state topic at most once a second, and once when the lane becomes
    idle.

    `ordinal`, `target_offset` and `leader_epoch` are the resume position, which is below the target's high watermark:
    the next ordinal to write, the target offset directly after the lane's last acknowledged record, and the leader
    epoch. The other fields show status and lag while the daemon or the source is down.
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
    """Leader epoch of the source batch before `source_offset`, or -1 if it is not known."""
    epochs_told: bool = False
    """Whether the ledger records every change of the source's leader epoch before the first record after the change is
    produced.
    """
    settled: bool = False
    """Whether every source record before `source_offset` is either stored below the resume position or not copied.
    Nothing is in flight then.
    """
    source: SourceEnds | None = None
    """Set if the record is about a source topic (`mirrord.ledger.source_ends`). Such a record is not a lane's resume
    position.
    """
    rewinds: int = 0
    """Number of the lane's `Rewound` notes that were known when the record was written."""


class LeaseRenewed(msgspec.Struct, frozen=True, array_like=True):
    """A sign of life of the process that holds the lease.

    A reader measures the age of the record by its own monotonic clock, from the moment at which it saw the record.
    Clocks of different machines are not compared.
    """

    epoch: int
    beat: int
    at_ms: int
    settled: bool = False
    """Whether it is certain that no process writes under an older lease any more."""
