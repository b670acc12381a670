"""Facts: what the ledger holds, and the records of the state topic.

A fact is something that has happened or has been decided, in the order of the ledger. Only `mirrord.ledger.fold`
changes state, and only from facts. Facts are tagged arrays in msgpack: a field may be added at the end with a default,
nothing may ever be removed or change its meaning, and golden logs of every version are folded in the tests.
"""

from typing import Literal

import msgspec

from mirrord.ledger.facts.archive import CompactionBegan, MapCompacted
from mirrord.ledger.facts.audit import AuditFact
from mirrord.ledger.facts.base import Fact
from mirrord.ledger.facts.first_seen import Selected, TopicStarts
from mirrord.ledger.facts.jobs import JobFact
from mirrord.ledger.facts.orders import OrderFact
from mirrord.ledger.facts.quarantine import Quarantined, QuarantineOrder
from mirrord.ledger.facts.seeks import LaneSought, SeekDone
from mirrord.ledger.facts.source_ends import SourceEnds
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
"""Those that mean that the target lacks what readers of the source could have read."""

Mode = Literal["sequence", "at-least-once"]
"""What keeps a lane from writing a record twice. "sequence": its producer id and sequences, which the target broker
checks, together with what its log says. "at-least-once": the log alone, because the brokers failed the probe
(`TargetProbed`); a record may be doubled when a batch of a dead holder arrives late."""

InheritedBy = Literal["verified", "behind", "unverifiable", "trusted", "strange"]
"""What became of MirrorMaker 2's word on its position. "verified": the target holds the record in front of it;
"behind": the target ends in front of it, and the lane goes on there; "unverifiable": there is nothing left to compare;
"trusted": by configuration nothing was compared; "strange": the target ends with other records, and the lane does not
begin."""


class Verdict(msgspec.Struct, frozen=True, array_like=True):
    """The source offsets [start, end) were not copied, and why."""

    start: int
    end: int
    reason: Reason


class Holder(msgspec.Struct, frozen=True, array_like=True):
    """Who holds a lease, and where the command line finds it."""

    host: str
    pid: int
    instance: str
    http: str
    boot_id: str = ""
    """The kernel's boot id: with `host` and `pid` it lets a new daemon on the same machine see that the old one is
    dead."""
    started_ticks: int = 0
    """When the process started, in clock ticks since boot: another process may have got its pid. 0: not known."""
    hosts_all: bool = False
    """Its replicators are tasks of its own process: when that has ended, all who write under the lease have."""
    daemon: str = ""
    """What its process shares with those that are started in its place when it dies, and with nobody else; empty:
    nobody is."""
    keeper_pid: int = 0
    """The process on the same machine with whose end nobody is started in its place any more; 0: there is none."""
    keeper_ticks: int = 0
    """As `started_ticks`, of the keeper."""
    program: str = ""
    """Version and commit of its mirrord."""


class FlowOpened(Fact, frozen=True, tag="flow_opened"):
    """The first fact of a ledger. The same flow name with other clusters is refused."""

    flow: str
    source_cluster: ClusterId
    target_cluster: ClusterId
    keeps_starts: bool = False
    """The ledger holds the start offsets of the first look. False: an older program or a rebuild opened it."""


class LeaseTaken(Fact, frozen=True, tag="lease_taken"):
    """A daemon took the flow. Binds only when `epoch` is one more than the last; facts of older epochs bind no more."""

    epoch: int
    holder: Holder
    ttl_ms: int


class LeaseContinued(Fact, frozen=True, tag="lease_continued"):
    """The holder's process has ended, and another process of the same daemon goes on under the same lease.

    Binds only when `turn` is one more than the last, and the daemon is the same. What writes under the lease is not
    concerned.
    """

    epoch: int
    turn: int
    holder: Holder


class LeaseReleased(Fact, frozen=True, tag="lease_released"):
    """The holder drained its lanes and left: the next one need not wait."""

    epoch: int


class TopicCreated(Fact, frozen=True, tag="topic_created"):
    """mirrord created a target topic."""

    source_topic: str
    source_topic_id: TopicId
    target_topic: str
    target_topic_id: TopicId
    partitions: int


class PartitionsGrown(Fact, frozen=True, tag="partitions_grown"):
    """mirrord grew a target topic to the source's partition count."""

    target_topic: str
    target_topic_id: TopicId
    partitions: int


class ConfigChange(msgspec.Struct, frozen=True, array_like=True):
    """One setting of a topic; None: the topic has no value of its own, the cluster's counts."""

    name: str
    before: str | None
    after: str | None


class ConfigsSynced(Fact, frozen=True, tag="configs_synced"):
    """mirrord altered settings of a target topic."""

    source_topic: str
    target_topic: str
    target_topic_id: TopicId
    changes: tuple[ConfigChange, ...]


class AclsPlanned(Fact, frozen=True, tag="acls_planned"):
    """mirrord is about to add these rights at the target. Until the next `AclsSynced` says what became of it, those of
    them that stand there count as mirrord's."""

    rules: tuple[AclRule, ...]


class AclsSynced(Fact, frozen=True, tag="acls_synced"):
    """mirrord added and removed these rights at the target. Only what it added itself may it remove."""

    added: tuple[AclRule, ...] = ()
    removed: tuple[AclRule, ...] = ()


class TopicDeletionPlanned(Fact, frozen=True, tag="deletion_planned"):
    """The source topic is gone; its copy, which mirrord created, will be deleted at `due_ms` (wall clock)."""

    source_topic: str
    target_topic: str
    target_topic_id: TopicId
    due_ms: int


class TopicDeletionWithdrawn(Fact, frozen=True, tag="topic_kept"):
    """The target topic stays: its source is back, or deletions are not wanted any more."""

    target_topic: str
    target_topic_id: TopicId
    reason: str


class TopicDeleted(Fact, frozen=True, tag="topic_deleted"):
    """mirrord deleted a target topic, with all its records."""

    target_topic: str
    target_topic_id: TopicId


class CopyForgotten(Fact, frozen=True, tag="copy_forgotten"):
    """Neither a source topic nor its copy is there any more: nothing is kept of the lanes between them."""

    source_topic: str
    source_topic_id: TopicId
    target_topic: str
    target_topic_id: TopicId


class CopyNamed(Fact, frozen=True, tag="copy_named"):
    """The copy of the source topic with this id has this name at the target, told before that is created.

    Binds when the id has no name yet, and no other source topic's copy has that one.
    """

    source_topic: str
    source_topic_id: TopicId
    target_topic: str


class TargetProbed(Fact, frozen=True, tag="target_probed"):
    """The target's brokers were asked whether they do what exactly once rests on; the last one counts."""

    cluster: ClusterId
    version: str
    """Fingerprint of the APIs that the brokers offer: other brokers are probed anew."""
    passed: bool
    failures: tuple[str, ...] = ()
    """A line for each rule that they broke."""
    remarks: tuple[str, ...] = ()
    """A line for each thing that is allowed and good to know."""


class LaneOpened(Fact, frozen=True, tag="lane_opened"):
    """A lane exists from here on, with the producer id that it owns for ever. The first one of a lane binds."""

    lane: LaneId
    source_topic: str
    target_topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    policy: str
    """Fingerprint of what decides which records the lane sees: selection, isolation, filter, transform."""
    mode: Mode = "sequence"
    """When it was opened; a later probe of other brokers may say otherwise."""


class LaneTaken(Fact, frozen=True, tag="lane_taken"):
    """A replicator took the lane. Binds only if `grant` is one more than the lane's; facts of older grants do not bind.

    All intents of the former holder precede this fact. `times` are the longest lease and request timeout, in ms, of the
    holder and of a former one that did not leave cleanly; zeros: an older version wrote the fact.
    """

    lane: LaneId
    grant: int
    replicator: str
    times: tuple[int, int] = (0, 0)


class PolicyChanged(Fact, frozen=True, tag="policy_changed"):
    """The lane goes on under another policy; what follows is a new run even where offsets follow each other."""

    lane: LaneId
    grant: int
    policy: str


class Rewound(msgspec.Struct, frozen=True, array_like=True):
    """The target log went back, and its ordinals from `first` on were mapped to other source records.

    A progress mark that was taken before that counts up to this mark only.
    """

    first: int
    ordinal: int
    target_offset: int
    leader_epoch: int


class SourceRun(Fact, frozen=True, tag="source_run"):
    """Intent before gap: runs that are about to be produced, and the verdicts on the offsets that they leap over.

    A run at or below an ordinal that an earlier fact named supersedes it. A "truncated" verdict says of the ordinals
    below the first run that their records, from its start on, are no longer in the source.
    """

    lane: LaneId
    grant: int
    runs: tuple[Run, ...]
    verdicts: tuple[Verdict, ...] = ()
    epochs: tuple[tuple[int, int], ...] = ()
    """(ordinal, leader epoch of the source) where that changes; -1: it is not known from here on."""
    regiven: bool = False
    """Other records may have been sent under these ordinals. As far as one can know they cannot arrive any more; should
    they, nobody must take them for these."""
    rewound: Rewound | None = None
    """Set if a progress mark above the lowest of these runs may exist."""


class TargetRun(Fact, frozen=True, tag="target_run"):
    """From this ordinal on the lane's records stand at these target offsets."""

    lane: LaneId
    grant: int
    ordinal: int
    offset: int
    leader_epoch: int


class VerdictGiven(Fact, frozen=True, tag="verdict_given"):
    """Source offsets that will not be copied, without a run that follows them."""

    lane: LaneId
    grant: int
    verdicts: tuple[Verdict, ...]
    note: str = ""


class HoleFound(Fact, frozen=True, tag="hole_found"):
    """The target refused some of the lane's batches and then took later ones, having forgotten the producer in between.

    The ordinals [first, last] stand nowhere in the target log. Their records follow out of order, under the ordinals
    from `again` on, as the runs of the `SourceRun` beside this fact say.
    """

    lane: LaneId
    grant: int
    first: int
    last: int
    again: int
    until: int
    """The ordinal at which the lane goes on behind everything that had to be copied again."""

    @property
    def is_open(self) -> bool:
        """Nothing follows: something stands there, the source no longer has it, and nothing tells which records it is
        (`SourceRun.regiven`). It ends where ordinals of it are told anew."""
        return self.again == self.until and self.first <= self.last


class LaneHalted(Fact, frozen=True, tag="lane_halted"):
    """The lane stands still; [start, end) are the source offsets concerned."""

    lane: LaneId
    grant: int
    reason: str
    line: str
    start: int
    end: int


class LaneResumed(Fact, frozen=True, tag="lane_resumed"):
    """A halted lane goes on."""

    lane: LaneId
    grant: int


class TakeoverChecked(Fact, frozen=True, tag="takeover_checked"):
    """Trust, then check: the lane's own batches of a take-over were read back and compared with the source."""

    lane: LaneId
    grant: int
    first: int
    last: int
    outcome: Literal["equal", "unverifiable", "different"]
    note: str = ""
    more: bool = False
    """A former holder may have sent other records under later ordinals. These are compared later."""
    is_all: bool = False
    """The target log was read to its end when nothing sent earlier could arrive: no such record follows these."""


class MapRebuilt(Fact, frozen=True, tag="map_rebuilt"):
    """Target and source differed, and both logs were read: the `SourceRun` beside this fact tells what really stands.

    The ordinals [first, last] are found again in the target. Under the ordinals up to `until` follows what the target
    lacked; there the lane goes on.
    """

    lane: LaneId
    grant: int
    first: int
    last: int
    until: int


class CopyInherited(Fact, frozen=True, tag="copy_inherited"):
    """The target held a copy that MirrorMaker 2 had made, and the lane goes on behind it."""

    lane: LaneId
    grant: int
    said: int
    """The source offset behind the last one that MirrorMaker 2 wrote down."""
    position: int
    """Where the lane begins in the source."""
    target_end: int
    """Where the copy ends in the target."""
    looked_at: int
    """How many of its last records were compared."""
    found: InheritedBy
    doubled: tuple[tuple[int, int], ...] = ()
    """Source offsets [start, end) that stand there more than once."""
    missing: tuple[tuple[int, int], ...] = ()
    """Source offsets [start, end) that are not there, between others that are."""


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
    """What follows was done by another configuration, or by the first one."""

    changes: tuple[str, ...]
    """One line for each setting that is new, for people."""
    starts: tuple[TopicStarts, ...] = ()
    """Topics that the configuration selects for the first time."""
    selected: Selected | None = None
    """All topics that this selects were seen: one that appears later was created later. None: as before."""


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
    at_ms: int
    """The writer's wall clock, for people only: nothing is decided by it."""
    facts: tuple[AnyFact, ...]
    writer: str = ""
    """Names the writer and its append, so that it knows its own entry when it reads the ledger back."""


class Progress(msgspec.Struct, frozen=True, array_like=True):
    """How far a lane has come: written to the state topic at most once a second, and once when the lane goes idle.

    `ordinal`, `target_offset` and `leader_epoch` are a mark below the target's high watermark: the next ordinal to
    write, and the target offset right behind the lane's last acknowledged record. The rest serves status and lag when
    daemon and source are dead.
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
    """Leader epoch of the source batch in front of `source_offset`, or -1."""
    epochs_told: bool = False
    """The ledger is told of every change of that epoch before the first record behind it is produced."""
    settled: bool = False
    """What of the source lies in front of `source_offset` stands below the mark, or is not copied: nothing is on its
    way."""
    source: SourceEnds | None = None
    """Set in records about a source topic (`mirrord.ledger.source_ends`); these are no lane's mark."""
    rewinds: int = 0
    """The number of the lane's `Rewound` that were known when the mark was taken."""


class LeaseRenewed(msgspec.Struct, frozen=True, array_like=True):
    """The lease lives. Readers time it on their own monotonic clock from when they saw it: clocks are not compared."""

    epoch: int
    beat: int
    at_ms: int
    settled: bool = False
    """Nobody writes under an older lease any more."""
