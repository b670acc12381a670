"""What the ledger says, folded: a flow and its lanes. Only `mirrord.ledger.fold` changes it, `snapshot` restores it."""

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import get_args

from mirrord.ledger.facts.audit import RangeAudited, RangeRepaired
from mirrord.ledger.facts.core import (
    CopyInherited,
    CopyNamed,
    Holder,
    HoleFound,
    LaneHalted,
    Progress,
    Reason,
    Rewound,
    TakeoverChecked,
    TargetProbed,
    Verdict,
)
from mirrord.ledger.facts.first_seen import Selected, TopicStarts
from mirrord.ledger.facts.jobs import JobState
from mirrord.ledger.facts.quarantine import Quarantine
from mirrord.ledger.facts.seeks import Seeks, Standing
from mirrord.ledger.filter_decisions import DECIDED
from mirrord.ledger.standing_orders import Orders
from mirrord.ledger.state_records import TargetTopic, Tenure, WriterMark
from mirrord.model.acls import AclRule
from mirrord.model.intervals import Interval, uncovered
from mirrord.model.jobs import Job
from mirrord.model.names import ClusterId, LaneId, LaneKey, TopicId, TopicPartition
from mirrord.model.run_memory import ALL_OF_IT, RunMemory
from mirrord.model.runs import Runs

RECENT_VERDICTS = 128
_OVERRULED: frozenset[Reason] = frozenset(get_args(Reason)) - {"truncated"}


@dataclass(slots=True)
class VerdictTally:
    """How many source offsets got which verdict, and the newest ranges exactly; the ledger holds them all.

    A lane that was taken over states the verdicts around its take-over once more. The newer word counts: what it
    overlaps among the newest ranges is taken back first, and so is what was decided of a record that is copied now. A
    truncated range stands: its offsets are in use again for other records.
    """

    counts: dict[Reason, int] = field(default_factory=dict[Reason, int])
    recent: deque[Verdict] = field(default_factory=deque[Verdict])
    beyond: int = field(default=0, compare=False, repr=False)
    """No recent range reaches beyond this offset: a filter tells thousands at once, each behind the one before."""
    decided: int = field(default=0, compare=False, repr=False)
    """No recent one that somebody decided (`mirrord.ledger.filter_decisions`) does."""

    def __post_init__(self) -> None:
        self.beyond = max((verdict.end for verdict in self.recent), default=0)
        self.decided = max((verdict.end for verdict in self.recent if verdict.reason in DECIDED), default=0)

    def add(self, verdicts: Iterable[Verdict]) -> None:
        """Count verdicts."""
        for verdict in verdicts:
            if verdict.end <= verdict.start:
                continue
            if verdict.start < self.beyond:
                self._take_back([(verdict.start, verdict.end)], _OVERRULED)
            self.beyond = max(self.beyond, verdict.end)
            if verdict.reason in DECIDED:
                self.decided = max(self.decided, verdict.end)
            self.counts[verdict.reason] = self.counts.get(verdict.reason, 0) + verdict.end - verdict.start
            self.recent.append(verdict)
            if len(self.recent) > RECENT_VERDICTS:
                self.recent.popleft()

    def answered_anew(self, ranges: Sequence[Interval]) -> None:
        """What was decided of these source offsets no longer counts."""
        self._take_back(ranges, DECIDED)
        self.decided = max((verdict.end for verdict in self.recent if verdict.reason in DECIDED), default=0)

    def explained(self, ranges: Sequence[Interval]) -> None:
        """What was unexplained of these source offsets is told otherwise."""
        self._take_back(ranges, ("unexplained",))

    def _take_back(self, ranges: Sequence[Interval], reasons: Collection[Reason]) -> None:
        if not any(old.reason in reasons and start < old.end and old.start < end
                   for start, end in ranges for old in self.recent):  # fmt: skip
            return
        kept: deque[Verdict] = deque()
        for old in self.recent:
            if old.reason not in reasons:
                kept.append(old)
                continue
            pieces = [Verdict(*piece, old.reason) for piece in uncovered((old.start, old.end), ranges)]
            self.counts[old.reason] -= old.end - old.start - sum(piece.end - piece.start for piece in pieces)
            kept.extend(pieces)
        self.recent = kept


@dataclass(slots=True)
class LaneState:
    """One lane, as its bound facts tell it."""

    key: LaneKey
    source_topic: str
    target_topic: str
    producer_id: int
    producer_epoch: int
    policy: str
    mode: str
    grant: int = 0
    """0 until the first `LaneTaken`."""
    replicator: str = ""
    times: tuple[int, int] = (0, 0)
    """Those of the last `LaneTaken`."""
    source_runs: Runs = field(default_factory=Runs)
    target_runs: Runs = field(default_factory=Runs)
    verdicts: VerdictTally = field(default_factory=VerdictTally)
    holes: tuple[HoleFound, ...] = ()
    cuts: tuple[tuple[int, int], ...] = ()
    """(ordinal, source offset): what was copied under lower ordinals, from this source offset on, was truncated."""
    epochs: tuple[tuple[int, int], ...] = ()
    """(ordinal, leader epoch of the source) where that changed, as far as it was told."""
    halted: LaneHalted | None = None
    last_check: TakeoverChecked | None = None
    inherited: CopyInherited | None = None
    """What MirrorMaker 2 left, if the lane went on from there."""
    quarantine: Quarantine = ()
    seeks: Seeks = ()
    """Orders to go on further ahead, and what was left out by them."""
    audited: RangeAudited | None = None
    """What audits have proven, from the first ordinal that they looked at on."""
    repaired: tuple[RangeRepaired, ...] = ()
    """What lies in a topic of its own (`mirrord.ledger.proven_ranges`): ascending, without overlap; of many the last
    ones."""
    regiven: int = -1
    """The lowest ordinal under which other records may have been sent, until a comparison has shown what stands there;
    -1: none."""
    rewinds: tuple[tuple[int, Rewound], ...] = ()
    """(grant, `Rewound`), oldest first."""
    retold: tuple[int, int] = (0, 0)
    """The number of a compaction, and the lowest ordinal at which a run was told since that began."""
    opened_at: int = 0
    """Ledger offset of the entry that opened the lane; 0: an older version wrote the snapshot, and it is not known."""
    changed_at: int = 0
    """Ledger offset of the last entry that changed the lane."""
    folded_to: int = 0
    """Entries below this ledger offset are in already: the lane was restored from a newer snapshot than the flow."""

    @property
    def partition(self) -> int:
        """The partition number, the same on both sides."""
        return self.key.partition

    @property
    def age(self) -> tuple[int, int]:
        """The greater, the newer. A topic that was created again has other lanes of the same partitions."""
        return self.opened_at, self.changed_at

    @property
    def newest_verdicts(self) -> Sequence[Verdict]:
        """Exact ranges, the newest last; of many only the newest are kept."""
        return self.verdicts.recent


@dataclass(slots=True)
class FlowState:
    """One flow, folded up to the ledger offset `next_offset`."""

    flow: str = ""
    """Empty until `FlowOpened`, which names the clusters too."""
    source_cluster: ClusterId | None = None
    target_cluster: ClusterId | None = None
    lease_epoch: int = 0
    """0 until the first `LeaseTaken`."""
    turn: int = 0
    """How many processes of one daemon have held the present lease, one after the other."""
    holder: Holder | None = None
    ttl_ms: int = 0
    released: bool = False
    topics: dict[TopicId, TargetTopic] = field(default_factory=dict[TopicId, TargetTopic])
    """Target topics that mirrord created or grew, by their id."""
    named: dict[TopicId, CopyNamed] = field(default_factory=dict[TopicId, CopyNamed])
    """Names of copies that are not the naming's, by the source topics' ids, in the order in which they were given."""
    lanes: dict[LaneId, LaneState] = field(default_factory=dict[LaneId, LaneState])
    writers: dict[str, WriterMark] = field(default_factory=dict[str, WriterMark])
    """The last entry of every writer under the present lease: an entry that a retry brought in again binds nothing."""
    probed: TargetProbed | None = None
    """The last probe of the target's brokers."""
    acls: frozenset[AclRule] = frozenset()
    """Rights at the target that mirrord added and has not removed."""
    planned_acls: frozenset[AclRule] = frozenset()
    """Rights that mirrord was about to add when it was last heard of."""
    orders: Orders = field(default_factory=Orders)
    """What people asked for and have not taken back."""
    forgotten_topics: dict[str, None] = field(default_factory=dict[str, None])
    """Source topics of which nothing else is known any more, the newest last; of many only the newest are kept."""
    compaction: int = 0
    """How many compactions have begun: the number of the last one."""
    jobs: dict[Job, JobState] = field(default_factory=dict[Job, JobState])
    """The last job of each kind."""
    keeps_starts: bool = False
    """The ledger holds the start offsets of the first look (`FlowOpened`)."""
    selected: Selected | None = None
    """The selection under which the source was last looked at; None: it was never looked at, or by an older program."""
    starts: dict[TopicId, TopicStarts] = field(default_factory=dict[TopicId, TopicStarts])
    """Start offsets of partitions without a begun lane, by the source topics' ids."""
    next_offset: int = 0
    forgotten_lanes: dict[LaneId, int] = field(default_factory=dict[LaneId, int], compare=False, repr=False)
    """Forgotten lanes of which something may stand in the state topic, each with the ledger offset that said so. The
    keeper's next trim removes it, and the cut behind that no longer tells of them (`drop_removed`)."""
    memory: RunMemory = field(default=ALL_OF_IT, compare=False, repr=False)
    """The room for the runs of all lanes; it decides nothing."""
    progress: dict[LaneId, Progress] = field(default_factory=dict[LaneId, Progress])
    """The newest mark of each lane. From the state topic, not from facts."""
    source_ends: dict[LaneId, Progress] = field(default_factory=dict[LaneId, Progress])
    """The records about source topics (`mirrord.ledger.source_ends`). From the state topic, too."""

    @property
    def tenure(self) -> Tenure:
        """Of the holder's process."""
        return Tenure(self.lease_epoch, max(self.turn, 1))

    def quarantines(self) -> dict[TopicPartition, dict[LaneId, Quarantine]]:
        """Those that there are."""
        found: dict[TopicPartition, dict[LaneId, Quarantine]] = {}
        for lane_id, lane in self.lanes.items():
            if lane.quarantine:
                name = TopicPartition(lane.source_topic, lane.partition)
                found.setdefault(name, {})[lane_id] = lane.quarantine
        return found

    def standings(self) -> dict[LaneId, Standing]:
        """Of the lanes that have begun."""
        return {lane_id: self.standing(lane_id) for lane_id, lane in self.lanes.items() if lane.source_runs}

    def standing(self, lane_id: LaneId) -> Standing:
        """As the lane's mark tells, or where the lane begins."""
        lane, mark = self.lanes[lane_id], self.progress.get(lane_id)
        first = lane.source_runs.first
        begins = first.offset if first is not None else 0
        return Standing(begins if mark is None else mark.source_offset, lane.seeks)

    def mark_progress(self, progress: Progress) -> bool:
        """Take over a mark, unless it comes from an older lease or an older grant than the one that is known."""
        marks = self.progress if progress.source is None else self.source_ends
        known = marks.get(progress.lane)
        if known and (progress.lease_epoch, progress.grant) < (known.lease_epoch, known.grant):
            return False
        marks[progress.lane] = progress
        return True
