"""The folded state of the ledger: a flow and its lanes. Only `mirrord.ledger.fold` changes it, and
`snapshot_restore` restores it.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from msgspec.structs import force_setattr

from mirrord.ledger.facts.audit import RangeAudited, RangeRepaired
from mirrord.ledger.facts.core import (
    CopyInherited,
    CopyNamed,
    Displaced,
    Holder,
    HoleFound,
    LaneHalted,
    Progress,
    Reason,
    Rebuild,
    Rewound,
    TakeoverChecked,
    TargetProbed,
    Verdict,
)
from mirrord.ledger.facts.start_offsets import Selected, TopicStarts
from mirrord.ledger.folding.failovers import Recoveries
from mirrord.ledger.hole_list import HoleList
from mirrord.ledger.job_state import JobState
from mirrord.ledger.quarantine import Quarantine
from mirrord.ledger.seeks import Seeks, Standing
from mirrord.ledger.standing_orders import Orders
from mirrord.ledger.state_topic_records import LastEntry, TargetTopic, Tenure
from mirrord.ledger.verdict_tally import VerdictTally
from mirrord.model.acls import AclRule
from mirrord.model.jobs import Job
from mirrord.model.names import ClusterId, LaneId, LaneKey, TopicId, TopicPartition
from mirrord.model.run_memory import ALL_OF_IT, RunMemory
from mirrord.model.runs import Runs


@dataclass(slots=True)
class LaneState:
    """The state of one lane, according to the facts about it that took effect."""

    key: LaneKey
    source_topic: str
    target_topic: str
    producer_id: int
    producer_epoch: int
    policy: str
    mode: str
    grant: int = 0
    """The current grant; 0 until the first `LaneTaken`."""
    replicator: str = ""
    times: tuple[int, int] = (0, 0)
    """Length of the lease and request timeout, in milliseconds, as recorded in the latest `LaneTaken`. Each is the
    longer of the holder's value and the value of a previous holder that did not leave cleanly."""
    source_runs: Runs = field(default_factory=Runs)
    target_runs: Runs = field(default_factory=Runs)
    verdicts: VerdictTally = field(default_factory=VerdictTally)
    hole_list: HoleList = field(default_factory=HoleList)
    truncations: tuple[tuple[int, int], ...] = ()
    """Pairs of (ordinal, source offset), one for each truncation of the source log. Of the records with lower ordinals,
    those at this source offset or higher were truncated."""
    epochs: tuple[tuple[int, int], ...] = ()
    """Pairs of (ordinal, leader epoch of the source), one for each recorded change of the epoch. The first record with
    the new epoch has this ordinal."""
    left_out_epochs: tuple[tuple[int, int, int], ...] = ()
    """Triples of (start, end, leader epoch of the source), in ascending order and without overlap: source offsets whose
    records the lane has read and does not copy again (`VerdictGiven.epochs`). No ordinal has these epochs."""
    halted: LaneHalted | None = None
    last_check: TakeoverChecked | None = None
    inherited: CopyInherited | None = None
    """The copy that MirrorMaker 2 made and that the lane continues, or None if there is none."""
    quarantine: Quarantine = ()
    seeks: Seeks = ()
    """Operator commands to skip ahead in the source, and the ranges that were skipped because of them."""
    audited: RangeAudited | None = None
    """The range that audits have proven, starting at the first ordinal that they examined."""
    repaired: tuple[RangeRepaired, ...] = ()
    """Ranges whose records `mirrord repair` has stored in a separate topic (`mirrord.ledger.proven_ranges`), in the
    order of their offsets and without overlap. If there are many, only those with the highest offsets are kept."""
    regiven: int = -1
    """The lowest ordinal that was assigned to a record although a different record may already have been sent under it.
    It is kept until a comparison with the source has shown which records are in the target log. -1 if there is none."""
    regiven_until: int = -1
    """The ordinal after the last one that is in doubt because of `regiven`. -1 if all ordinals from `regiven` on may be
    in doubt (`TargetRun.in_doubt_below`)."""
    rewinds: tuple[tuple[int, Rewound], ...] = ()
    """The notes that ordinals of the lane were reassigned (`Rewound`), oldest first, each with the grant under which it
    was recorded."""
    rebuilds: tuple[Rebuild, ...] = ()
    """How the offset map was rebuilt, in the order of the ordinals. A rebuild supersedes those that began at its first
    ordinal or a later one."""
    displaced: tuple[Displaced, ...] = ()
    """Ranges of ordinals that the target log lacks (`Displaced`), in ascending order and without overlap. Displaced
    ordinals that an older version of mirrord found are not included."""
    retold: tuple[int, int] = (0, 0)
    """A pair of numbers. The first is the number of the latest compaction at the time when the lane last recorded a
    run. The second is the lowest ordinal at which the lane has recorded a run since that compaction began."""
    opened_at: int = 0
    """Ledger offset of the entry that opened the lane. 0 means that an older version of mirrord wrote the snapshot, so
    the offset is unknown."""
    changed_at: int = 0
    """Ledger offset of the latest entry that changed the lane."""
    folded_to: int = 0
    """Entries below this ledger offset are already included: the lane was restored from a newer snapshot than the flow
    was."""

    @property
    def holes(self) -> tuple[HoleFound, ...]:
        """The holes of the lane, in the order in which they were found."""
        return self.hole_list.read()

    @holes.setter
    def holes(self, holes: Iterable[HoleFound]) -> None:
        self.hole_list = HoleList(holes)

    @property
    def partition(self) -> int:
        """The partition number, which is the same in the source topic and the target topic."""
        return self.key.partition

    @property
    def age(self) -> tuple[int, int]:
        """A value for comparing the ages of lanes; the lane with the greater value is newer. A topic that was created
        again has different lanes for the same partitions."""
        return self.opened_at, self.changed_at

    @property
    def newest_verdicts(self) -> Sequence[Verdict]:
        """Exact ranges of verdicts, the newest last. Only the newest ones are kept."""
        return self.verdicts.recent

    def rest(self) -> None:
        """Reduce the memory of a lane that is not expected to change soon. The state itself does not change, and later
        facts can still change it."""
        self.source_runs.rest()
        self.target_runs.rest()
        self.verdicts.rest()
        self.hole_list.rest()


@dataclass(slots=True)
class FlowState:
    """The state of one flow, folded up to the ledger offset `next_offset`."""

    flow: str = ""
    """The flow's name. It is empty until `FlowOpened`, which also names the clusters."""
    source_cluster: ClusterId | None = None
    target_cluster: ClusterId | None = None
    lease_epoch: int = 0
    """The epoch of the current lease; 0 until the first `LeaseTaken`."""
    turn: int = 0
    """The number of processes of one daemon that have held the current lease, one after another."""
    holder: Holder | None = None
    ttl_ms: int = 0
    released: bool = False
    topics: dict[TopicId, TargetTopic] = field(default_factory=dict[TopicId, TargetTopic])
    """Target topics that mirrord created or added partitions to, by topic id."""
    named: dict[TopicId, CopyNamed] = field(default_factory=dict[TopicId, CopyNamed])
    """Names of target topics that do not follow the flow's naming rule, by the ids of their source topics, in the order
    in which the names were chosen."""
    lanes: dict[LaneId, LaneState] = field(default_factory=dict[LaneId, LaneState])
    writers: dict[str, LastEntry] = field(default_factory=dict[str, LastEntry])
    """The latest entry of each writer under the current lease. A writer is one `LedgerStore`, which numbers the entries
    that it appends. An entry whose number is not higher than that of its writer's latest entry is a second copy of an
    entry and has no effect."""
    probed: TargetProbed | None = None
    """The result of the latest test of whether the target's brokers behave as exactly-once delivery requires."""
    acls: frozenset[AclRule] = frozenset()
    """ACLs on the target that mirrord has added and not since removed."""
    planned_acls: frozenset[AclRule] = frozenset()
    """ACLs that mirrord has planned to add to the target. The ledger does not record yet whether they have been
    added."""
    orders: Orders = field(default_factory=Orders)
    """Operator commands that have not been withdrawn."""
    forgotten_topics: dict[str, None] = field(default_factory=dict[str, None])
    """Source topics whose copies were forgotten (`CopyForgotten`), the newest last. Nothing else is known about them,
    and only the newest ones are kept."""
    forgotten_losses: dict[Reason, int] = field(default_factory=dict[Reason, int])
    """Number of source offsets that were lost in forgotten lanes, by reason. The offsets themselves are not known any
    more."""
    compaction: int = 0
    """The number of compactions that have begun, which is also the number of the latest one."""
    jobs: dict[Job, JobState] = field(default_factory=dict[Job, JobState])
    """The most recent job of each kind."""
    recoveries: Recoveries = ()
    """The failovers that have ended the copying of topics, and the newest one."""
    keeps_starts: bool = False
    """Whether the ledger holds the start offsets that were resolved at the first discovery of the flow's topics
    (`FlowOpened.keeps_starts`)."""
    selected: Selected | None = None
    """The rules by which topics were selected at the latest discovery. None if there has been no discovery yet, or if
    only an older version of mirrord has discovered topics."""
    starts: dict[TopicId, TopicStarts] = field(default_factory=dict[TopicId, TopicStarts])
    """Start offsets of the partitions whose lanes have not begun to copy, by source topic id."""
    next_offset: int = 0
    forgotten_lanes: dict[LaneId, int] = field(default_factory=dict[LaneId, int], compare=False, repr=False)
    """Forgotten lanes that may still have records in the state topic, each with the ledger offset of its
    `CopyForgotten`. The next trim by the lease holder removes these records, and later snapshots no longer list the
    lanes. When another process reads such a snapshot, it also removes the lanes from here (`prune.drop_removed`)."""
    lanes_changed: int = field(default=0, compare=False, repr=False)
    """How often this process has added lanes to `lanes` or removed lanes from it. If the number is unchanged, `lanes`
    contains the same lanes as before."""
    memory: RunMemory = field(default=ALL_OF_IT, compare=False, repr=False)
    """Manages the memory for the runs of all lanes. It affects how fast a lookup is, but not its result."""
    progress: dict[LaneId, Progress] = field(default_factory=dict[LaneId, Progress])
    """The newest progress record of each lane. It comes from the state topic, not from facts."""
    source_ends: dict[LaneId, Progress] = field(default_factory=dict[LaneId, Progress])
    """The records of the ends of source partitions (`mirrord.ledger.source_ends`). They also come from the state
    topic."""

    @property
    def tenure(self) -> Tenure:
        """The current lease epoch, and the number (`turn`) of the holder's process under this lease."""
        return Tenure(self.lease_epoch, max(self.turn, 1))

    def shared_names(self, key: LaneKey, source_topic: str, target_topic: str) -> tuple[LaneKey, str, str]:
        """Return the arguments, with the text objects of the target topic where they are equal. All lanes of a copy
        then share the names and ids of their topics."""
        known = self.topics.get(key.target_topic_id)
        if known is None or known.source_topic_id is None or known.source_topic_id != key.source_topic_id:
            return key, source_topic, target_topic
        names = known.source_topic, known.topic
        same = names == (source_topic, target_topic)
        key = LaneKey(known.source_topic_id, key.partition, known.topic_id)
        return key, *(names if same else (source_topic, target_topic))

    def quarantines(self) -> dict[TopicPartition, dict[LaneId, Quarantine]]:
        """Return all quarantines, by partition and lane."""
        found: dict[TopicPartition, dict[LaneId, Quarantine]] = {}
        for lane_id, lane in self.lanes.items():
            if lane.quarantine:
                name = TopicPartition(lane.source_topic, lane.partition)
                found.setdefault(name, {})[lane_id] = lane.quarantine
        return found

    def standings(self) -> dict[LaneId, Standing]:
        """Return the position and the seeks of each lane that has begun."""
        return {lane_id: self.standing(lane_id) for lane_id, lane in self.lanes.items() if lane.source_runs}

    def standing(self, lane_id: LaneId) -> Standing:
        """Return the lane's position and its seeks, and the offset from which the source has lost copied records, if
        the lane is halted because of this. The position is the one in the lane's progress record. Without a progress
        record, it is the source offset at which the lane begins."""
        lane, progress = self.lanes[lane_id], self.progress.get(lane_id)
        first = lane.source_runs.first
        begins = first.offset if first is not None else 0
        position, halted = begins if progress is None else progress.source_offset, lane.halted
        is_lost = halted is not None and halted.reason == "truncated" and halted.start < min(position, halted.end)
        return Standing(position, lane.seeks, halted.start if halted is not None and is_lost else -1)

    def accept_progress(self, progress: Progress) -> bool:
        """Accept a progress record, unless it was written under an older lease or an older grant than the known record
        of the lane. Return whether it was accepted."""
        records = self.progress if progress.source is None else self.source_ends
        known = records.get(progress.lane)
        if known and (progress.lease_epoch, progress.grant) < (known.lease_epoch, known.grant):
            return False
        _share_texts(progress, known, self.lanes.get(progress.lane))
        records[progress.lane] = progress
        return True


_shared: dict[Hashable, Any] = {}
_SHARED_KEPT = 256

T = TypeVar("T", bound=Hashable)


def shared(value: T) -> T:
    """Return a value that is equal to `value`. The result is the same object each time, so that thousands of lanes do
    not each have a copy of a word such as "drained". This works only for values of which there are few different
    ones."""
    if len(_shared) < _SHARED_KEPT:
        return _shared.setdefault(value, value)
    return _shared.get(value, value)


def _share_texts(progress: Progress, former: Progress | None, lane: LaneState | None) -> None:
    """Replace texts of a progress record with equal texts that are already in memory."""
    force_setattr(progress, "state", shared(progress.state))
    if former is not None:
        force_setattr(progress, "lane", former.lane)
    if lane is not None and lane.replicator == progress.replicator:
        force_setattr(progress, "replicator", lane.replicator)
