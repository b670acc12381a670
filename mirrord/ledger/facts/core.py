"""Facts, which are the contents of the ledger, and two kinds of records of the state topic: progress records and lease
renewals.

A fact states something that has happened or has been decided. The ledger keeps all facts in one order. Only
`mirrord.ledger.fold` changes the state of a flow, and it does so only from facts. Facts are tagged arrays in msgpack. A
field may be added at the end if it has a default, but no field may ever be removed or given a different meaning. The
tests fold a stored ledger from each version.
"""

from typing import Literal

import msgspec

from mirrord.ledger.facts.archive import CompactionBegan, MapCompacted
from mirrord.ledger.facts.audit import AuditFact
from mirrord.ledger.facts.base import Fact
from mirrord.ledger.facts.commands import CommandGiven, LedgerSigned, RecordSkipped, StateRecordSkipped
from mirrord.ledger.facts.jobs import JobFact
from mirrord.ledger.facts.orders import OrderFact
from mirrord.ledger.facts.quarantine import Quarantined, QuarantineOrder
from mirrord.ledger.facts.recovery import RecoveryFact
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
"""The reason in a verdict: why source offsets were not copied. "doubled" is an exception: the target holds the records
of these offsets more than once."""

LOSSES: tuple[Reason, ...] = ("expired", "truncated", "recreated", "rejected", "skipped", "unexplained")
"""The reasons in verdicts on records that readers of the source could have read and that the target does not have."""

Mode = Literal["sequence", "at-least-once"]
"""How a lane avoids writing a record twice. "sequence": it relies on its producer id and sequence numbers, which the
target broker checks, and on the contents of the target log. "at-least-once": it relies on the contents of the target
log alone, because the brokers failed the probe (`TargetProbed`). In this mode, a record may be duplicated if a batch
from a dead holder arrives late.
"""

InheritedBy = Literal["verified", "behind", "unverifiable", "trusted", "strange"]
"""How the position that MirrorMaker 2 recorded compares with the target. "verified": the target holds the record before
the position. "behind": the target ends before the position, and the lane begins where the target ends. "unverifiable":
no records are left to compare. "trusted": nothing was compared, because the configuration says so. "strange": the
target ends with different records, and the lane does not begin.
"""


class Verdict(msgspec.Struct, frozen=True, array_like=True, gc=False):
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
    """Start time of the process in clock ticks since boot. It distinguishes the process from a later process with the
    same process id. 0 if it is unknown.
    """
    hosts_all: bool = False
    """Whether all replicators are tasks of the holder's process. If so, nothing can write under the lease after this
    process has exited.
    """
    daemon: str = ""
    """Identity of the daemon. A process that replaces the holder's process has the same identity. Empty if no other
    process replaces the holder's process when it dies.
    """
    keeper_pid: int = 0
    """Process id of the `mirrord start` process on the same machine. The holder's process is replaced only while this
    process is running. 0 if the replacement does not depend on such a process.
    """
    keeper_ticks: int = 0
    """Start time of the process `keeper_pid`, in the same unit as `started_ticks`."""
    program: str = ""
    """The mirrord version and commit that the daemon is running."""
    layout: int = 0
    """Newest layout version (`mirrord.ledger.codec`) that the process can read. 0 if a version of mirrord wrote it that
    reads at most version 14."""


class FlowOpened(Fact, frozen=True, tag="flow_opened"):
    """A flow has been opened. This is the first fact of every ledger, and it records the clusters of the flow.

    A flow with the same name but different clusters cannot use this ledger: mirrord refuses to start that flow.
    """

    flow: str
    """Name of the flow."""
    source_cluster: ClusterId
    target_cluster: ClusterId
    keeps_starts: bool = False
    """Whether the ledger records the start offsets (`ConfigChanged.starts`) of the topics that existed when the daemon
    first listed the source's topics. False if an older version of mirrord or `mirrord rebuild` opened the ledger.
    """


class LeaseTaken(Fact, frozen=True, tag="lease_taken"):
    """A daemon has taken the lease of the flow.

    The fact takes effect only if `epoch` is one more than the previous epoch. From then on, facts from older epochs
    have no effect.
    """

    epoch: int
    holder: Holder
    ttl_ms: int
    """Length of the lease: how long the holder may remain silent before another daemon may take the flow."""


class LeaseContinued(Fact, frozen=True, tag="lease_continued"):
    """The holder's process has exited, and another process of the same daemon continues under the same lease.

    `turn` counts the processes that have held this lease one after another. The fact takes effect only if `turn` is
    one more than the `turn` of the current holder, and if `holder` names the same daemon. Replicators that write under
    the lease are not affected.
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
    """A change to one config of a topic. If a value is missing (none), the config is not set on the topic and the
    cluster's default applies."""

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
    """mirrord is about to add these ACLs to the target.

    If mirrord exits before it records the outcome in `AclsSynced`, it may already have added some of them. Until the
    next `AclsSynced`, each of these ACLs that exists on the target therefore counts as one that mirrord has added.
    """

    rules: tuple[AclRule, ...]
    """The ACLs to be added."""


class AclsSynced(Fact, frozen=True, tag="acls_synced"):
    """mirrord has added and removed ACLs on the target. It removes only ACLs that it has added itself."""

    added: tuple[AclRule, ...] = ()
    """ACLs that were added."""
    removed: tuple[AclRule, ...] = ()
    """ACLs that were removed."""


class TopicDeletionPlanned(Fact, frozen=True, tag="deletion_planned"):
    """The source topic no longer exists. Its target topic, which mirrord created, will be deleted at the wall-clock
    time `due_ms`."""

    source_topic: str
    target_topic: str
    target_topic_id: TopicId
    due_ms: int
    """Time of the deletion. The daemon deletes the topic once its own clock has passed this time."""


class TopicDeletionWithdrawn(Fact, frozen=True, tag="topic_kept"):
    """A planned deletion of a target topic has been withdrawn, for one of three reasons: the source topic exists again,
    the target topic no longer exists, or deletions are no longer configured."""

    target_topic: str
    target_topic_id: TopicId
    reason: str
    """Why the deletion was withdrawn, as text for operators."""


class TopicDeleted(Fact, frozen=True, tag="topic_deleted"):
    """mirrord has deleted a target topic, with all its records."""

    target_topic: str
    target_topic_id: TopicId


class CopyForgotten(Fact, frozen=True, tag="copy_forgotten"):
    """A source topic and its target topic no longer exist, so the state of the lanes between them is dropped."""

    source_topic: str
    source_topic_id: TopicId
    target_topic: str
    target_topic_id: TopicId


class CopyNamed(Fact, frozen=True, tag="copy_named"):
    """The copy of the source topic with this topic id is given the name `target_topic`.

    The fact is appended before the target topic is created. It takes effect if the copy has no name yet and no other
    source topic's copy has this name.
    """

    source_topic: str
    source_topic_id: TopicId
    target_topic: str


class TargetProbed(Fact, frozen=True, tag="target_probed"):
    """The target's brokers have been probed for the behavior on which exactly-once delivery depends.

    If the brokers have been probed several times, only the latest result is used.
    """

    cluster: ClusterId
    """Cluster id of the target."""
    version: str
    """Fingerprint of the APIs that the brokers offer. If it changes, the brokers are probed again."""
    passed: bool
    """Whether the brokers behave as exactly-once delivery requires."""
    failures: tuple[str, ...] = ()
    """One line for each rule that the brokers violated."""
    remarks: tuple[str, ...] = ()
    """One line for each deviation that is permitted but worth knowing about."""


class LaneOpened(Fact, frozen=True, tag="lane_opened"):
    """A lane has been created, with the producer id that it keeps for its entire lifetime.

    Only the first `LaneOpened` of a lane takes effect.
    """

    lane: LaneId
    source_topic: str
    target_topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    policy: str
    """Fingerprint of the settings that determine which records the lane copies and how it changes them: the isolation
    level, the filter and the transform."""
    mode: Mode = "sequence"
    """How the lane avoids writing a record twice. With `sequence`, it copies each record exactly once. If the target's
    brokers change, a later probe may change the mode.
    """


class LaneTaken(Fact, frozen=True, tag="lane_taken"):
    """A replicator has taken the lane.

    The fact takes effect only if `grant` is one more than the lane's current grant. From then on, facts from older
    grants have no effect. Therefore, if an intent of a previous replicator takes effect, it precedes this fact in the
    ledger.
    """

    lane: LaneId
    grant: int
    replicator: str
    times: tuple[int, int] = (0, 0)
    """Length of the lease and request timeout, in ms. The next replicator uses them to compute how long this replicator
    may still write. If the previous replicator did not leave the lane cleanly, each of the two times is the maximum of
    its value and this replicator's value. Zeros mean that an older version of mirrord wrote the fact.
    """


class PolicyChanged(Fact, frozen=True, tag="policy_changed"):
    """The isolation level, the filter or the transform of the lane has changed, and the lane continues with the new
    settings.

    Records that were copied before this fact are not changed.
    """

    lane: LaneId
    grant: int
    policy: str
    """The new fingerprint of these settings (`LaneOpened.policy`)."""


class Rewound(msgspec.Struct, frozen=True, array_like=True):
    """A note that ordinals of the lane were reassigned, for example because the target log had lost its newest records.
    The ordinal `first` and the ordinals above it now belong to different source records.

    The note contains a resume position. An older progress record may contain a higher resume position, which refers to
    the previous assignment. In that case, the resume position in the note is used instead. Such a note is also recorded
    if a holder had to resume below a position that an earlier holder may have saved, even if no ordinal was reassigned,
    and if ordinals were reassigned that an earlier leader of the target partition may have appended with other records.
    """

    first: int
    """Lowest ordinal that was or may have been reassigned."""
    ordinal: int
    """Ordinal of the resume position."""
    target_offset: int
    """Target offset of the resume position."""
    leader_epoch: int
    """Leader epoch of the resume position."""
    epoch_ends: tuple[tuple[int, int], ...] = ()
    """Earlier leader epochs of the target partition, as in a progress record (`Progress.epoch_ends`)."""
    log_epoch: int = -1
    """The target's leader epoch when the ordinals were reassigned, if it is later than that of the resume position.
    Batches of earlier leaders that have these ordinals hold other records. -1 if it is the same."""

    @property
    def reassigned_in(self) -> int:
        """The target's leader epoch when the ordinals were reassigned."""
        return max(self.leader_epoch, self.log_epoch)


class SourceRun(Fact, frozen=True, tag="source_run"):
    """An intent: the runs that the lane is about to write, and the verdicts on the source offsets that it skips between
    these runs.

    A run supersedes all earlier runs that begin at or above its first ordinal. A `truncated` verdict states not only
    that source offsets are skipped, but also that the source has lost records that the lane had already copied. These
    records have ordinals below the lowest ordinal of the new runs, and source offsets at or above the start of the
    verdict.
    """

    lane: LaneId
    grant: int
    runs: tuple[Run, ...]
    """The runs. Each run maps consecutive ordinals to the source offsets of the records that the lane will write."""
    verdicts: tuple[Verdict, ...] = ()
    """Why the source offsets between the runs are not copied."""
    epochs: tuple[tuple[int, int], ...] = ()
    """A pair (ordinal, leader epoch of the source) for each ordinal at which the epoch changes. The epoch -1 means that
    the epoch is unknown from this ordinal on.
    """
    regiven: bool = False
    """Whether different records may already have been sent to the target under these ordinals. Those records are no
    longer expected to arrive. If one of them nevertheless arrives, it must not be mistaken for a record of these runs.
    """
    rewound: Rewound | None = None
    """Set if there may be a progress record with a higher resume position, which must not be used."""


class Displaced(msgspec.Struct, frozen=True, array_like=True):
    """Ordinals that are missing from the target log, either because the log lost their records in an election or
    because the target refused their records. Other records are now stored at the target offsets of these records. If
    `by_look_up` is true, the ordinals are missing for another reason: they followed the ordinal of the lane's last
    record in the target log, and a log cleaner seems to have removed their records.

    A record with one of these ordinals is not copied again while the log holds a newer record with the same key.
    """

    first: int
    """First of these ordinals."""
    last: int
    """Last of these ordinals."""
    above: int
    """A record with the same key at or above this target offset is newer than the missing record."""
    leader_epoch: int
    """A record with the same key that was appended in a higher leader epoch of the target is newer than the missing
    record, regardless of its offset."""
    by_look_up: bool = False
    """Whether newer records with the same keys are the only evidence that the missing records were in the target log.
    If so, the target offsets of the missing records are not known, and possibly no other records are stored there."""


class TargetRun(Fact, frozen=True, tag="target_run"):
    """A run on the target: the record with the ordinal `ordinal` and the records after it are stored at consecutive
    target offsets, until the next run begins."""

    lane: LaneId
    grant: int
    ordinal: int
    """The first ordinal of the run."""
    offset: int
    """Target offset of this ordinal."""
    leader_epoch: int
    """Leader epoch of the target partition when the record at this offset was acknowledged or read."""
    displaced: tuple[Displaced, ...] = ()
    """Ordinals before this run that the target log lacks (`Displaced`)."""
    in_doubt_below: int = -1
    """Limits the doubt about ordinals that were assigned again (`SourceRun.regiven`). An acknowledgement does not show
    which of the records that were sent under such an ordinal the target holds, so the lane compares these records with
    the source. Without waiting for the comparison, the holder sets this field once all ordinals below this one have
    been acknowledged. Its later batches follow these ordinals, so ordinals at or above this one are not in doubt, even
    if the comparison is never made. -1 if the fact does not limit the doubt.
    """


class VerdictGiven(Fact, frozen=True, tag="verdict_given"):
    """Verdicts on source offsets that will not be copied. Unlike the verdicts in a `SourceRun`, they are recorded
    without new runs."""

    lane: LaneId
    grant: int
    verdicts: tuple[Verdict, ...]
    """The verdicts."""
    note: str = ""
    """A remark for operators, in one line."""
    epochs: tuple[tuple[int, int, int], ...] = ()
    """Triples (start, end, leader epoch of the source): ranges of source offsets whose records the lane had copied and
    does not copy again after the target log has lost them. No ordinal refers to these records any longer, so no
    `SourceRun` contains their epochs.
    """


class HoleFound(Fact, frozen=True, tag="hole_found"):
    """The target refused some of the lane's batches. It then forgot the lane's producer, and therefore accepted later
    batches.

    The records with the ordinals [first, last] are not in the target log. They are copied again out of order, under new
    ordinals that begin at `again`. The `SourceRun` in the same entry contains the runs for the new ordinals.
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

        In this case, the target log contains records with these ordinals, but it is unknown which source records they
        are. The source no longer has them, and different records may have been sent under the same ordinals
        (`SourceRun.regiven`). If later runs assign some of these ordinals again, the hole ends before them.
        """
        return self.again == self.until and self.first <= self.last


class LaneHalted(Fact, frozen=True, tag="lane_halted"):
    """The lane has halted. The cause concerns the source offsets [start, end)."""

    lane: LaneId
    grant: int
    reason: str
    """Short name of the cause."""
    line: str
    """The cause in one line, for operators."""
    start: int
    """First of the affected source offsets."""
    end: int
    """Source offset after the last affected one."""


class LaneResumed(Fact, frozen=True, tag="lane_resumed"):
    """A halted lane continues to copy."""

    lane: LaneId
    grant: int


class TakeoverChecked(Fact, frozen=True, tag="takeover_checked"):
    """After a takeover, the lane has read back from the target all of its batches that a previous holder may have
    written, and has compared them with the source."""

    lane: LaneId
    grant: int
    first: int
    """First ordinal that was compared."""
    last: int
    """Last ordinal that was compared."""
    outcome: Literal["equal", "unverifiable", "different"]
    """The result. "unverifiable": some records could not be compared, for example because the source no longer has
    them. Such records do not count as a difference.
    """
    note: str = ""
    """A remark for operators, in one line."""
    more: bool = False
    """Whether a previous holder may have sent different records under later ordinals, which have not been compared
    yet."""
    is_all: bool = False
    """Whether the target log was read to its end at a time when no batch that was sent before the comparison could
    still arrive. If so, no such batch can follow the ordinal `last`.
    """


class MapRebuilt(Fact, frozen=True, tag="map_rebuilt"):
    """Because the target differed from the source, the offset map of the lane has been rebuilt from both logs.

    The records with the ordinals [first, last] were found in the target. The `SourceRun` in the same entry maps these
    ordinals to source offsets. The records that the target lacks are copied again under the ordinals after `last`.
    After them, the lane continues at the ordinal `until`.

    This fact ends the doubt about reassigned ordinals (`SourceRun.regiven`). If later ordinals may still be in doubt, a
    second `SourceRun`, with `regiven`, follows in the same entry.
    """

    lane: LaneId
    grant: int
    first: int
    """First ordinal that was found in the target."""
    last: int
    """Last ordinal that was found in the target."""
    until: int
    """Ordinal at which the lane continues, after the records that the target lacked."""
    withdraws_verdicts: bool = False
    """Whether earlier verdicts on the source offsets of these records no longer apply. False in entries of older
    versions of mirrord, which gave new verdicts on all these offsets."""
    leader_epoch: int = -1
    """Leader epoch of the target at that time, or -1 if an older version of mirrord wrote this entry."""
    found_epochs: tuple[tuple[int, int], ...] = ()
    """Pairs (ordinal, leader epoch of the target) in ascending order, one for each change of epoch. The batches with
    the records from this ordinal onward were appended in this epoch. The epoch is -1 for ordinals that the target
    lacked."""


class Rebuild(msgspec.Struct, frozen=True, array_like=True):
    """What the lane's state keeps of a `MapRebuilt`: which batches the target had. It applies to the ordinals from
    `first` up to the first one of the next `Rebuild`."""

    rewinds: int
    """Number of `Rewound` notes before the rebuild."""
    first: int
    leader_epoch: int = -1
    found_epochs: tuple[tuple[int, int], ...] = ()


class CopyInherited(Fact, frozen=True, tag="copy_inherited"):
    """The target partition held a copy that MirrorMaker 2 had made, and the lane continues after it."""

    lane: LaneId
    grant: int
    said: int
    """Source offset that follows the last one that MirrorMaker 2 recorded as copied."""
    position: int
    """Source offset at which the lane begins."""
    target_end: int
    """Target offset at which MirrorMaker 2's copy ends."""
    looked_at: int
    """Number of records at the end of the copy that were compared with the source."""
    found: InheritedBy
    """Result of the comparison. `behind`: the target ends before the position that MirrorMaker 2 recorded.
    `unverifiable`: no records were left to compare. `trusted`: the configuration disables the comparison. `strange`:
    the target ends with different records.
    """
    doubled: tuple[tuple[int, int], ...] = ()
    """Source offsets [start, end) that the target holds more than once."""
    missing: tuple[tuple[int, int], ...] = ()
    """Source offsets [start, end) that the target lacks, although it holds the records before and after them."""


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
    """The flow has a new configuration, either its first one or a changed one. The facts that follow were recorded
    under this configuration."""

    changes: tuple[str, ...]
    """One line for each changed setting, for operators."""
    starts: tuple[TopicStarts, ...] = ()
    """Start offsets of the topics that the configuration selects for the first time."""
    selected: Selected | None = None
    """The rules that select topics. When mirrord recorded this fact, it had seen all existing topics that matched these
    rules. If another matching topic appears later, it was therefore created after this fact. None means that the rules
    have not changed.
    """


FlowFact = (
    FlowOpened
    | LeaseTaken
    | LeaseContinued
    | LeaseReleased
    | TargetProbed
    | ConfigChanged
    | CommandGiven
    | RecordSkipped
    | StateRecordSkipped
    | LedgerSigned
    | AclsPlanned
    | AclsSynced
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
    | RecoveryFact
)


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One record of the ledger: the facts that one writer has appended together, under one lease epoch."""

    lease_epoch: int
    """Epoch of the lease under which the entry was written; 0 before the first lease."""
    at_ms: int
    """Wall-clock time of the writer. It is for information only: no decision depends on it."""
    facts: tuple[AnyFact, ...]
    """The facts, in the order in which the fold processes them."""
    writer: str = ""
    """Name of the writer and number of its append. The writer uses this value to recognize its own entry when it reads
    the ledger back.
    """


class Progress(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The progress of a lane. It is written to the state topic at most once a second, and again when the lane
    becomes idle.

    Three fields contain the resume position. `ordinal` is the next ordinal to write, `target_offset` is the target
    offset directly after the lane's last acknowledged record, and `leader_epoch` is the leader epoch of the target
    partition. All records before the resume position are below the target's high watermark. The other fields let
    `mirrord status` show the lane's state and lag while the daemon or the source is down.
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
    """Leader epoch of the source batch before `source_offset`, or -1 if it is unknown."""
    epochs_told: bool = False
    """Whether the ledger contains every change of the source's leader epoch. If so, each change is recorded before the
    first record with the new epoch is written to the target. The value is false in records that older versions of
    mirrord wrote, and as long as the first epoch may be missing from the ledger.
    """
    settled: bool = False
    """Whether the lane has finished with every source record before `source_offset`: each of these records either is
    stored in the target log before the resume position or is not to be copied. If so, no batch is in flight.
    """
    source: SourceEnds | None = None
    """Set if the record is about a source topic instead of a lane (see `mirrord.ledger.source_ends`). Such a record
    contains no resume position.
    """
    rewinds: int = 0
    """Number of the lane's `Rewound` notes that were known when the record was written."""
    epoch_ends: tuple[tuple[int, int], ...] = ()
    """Leader epochs of the target partition before `leader_epoch`, as pairs (leader epoch, target offset) in ascending
    order. When the record was written, the target log had records of each of these epochs up to this offset or a
    higher one. The next holder uses them if a later leader does not know `leader_epoch`.
    """


class LeaseRenewed(msgspec.Struct, frozen=True, array_like=True):
    """A heartbeat of the process that holds the lease.

    A reader measures the age of the record by its own monotonic clock, from the moment at which it saw the record.
    Clocks of different machines are not compared.
    """

    epoch: int
    beat: int
    at_ms: int
    settled: bool = False
    """Whether it is certain that no process is still writing under an older lease."""
