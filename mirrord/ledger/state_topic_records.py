"""All records of the state topic except `Progress` and `LeaseRenewed`: snapshots of the folded ledger, and how far the
ledger was known to extend (`LedgerEnd`). Also the keys of all records of the state topic.

The keys of a snapshot contain the lease epoch under which it was written, and the turn of the holder's process: 1 for
the first process under that lease, 2 for the next one. A process that was suspended may wake up during a later lease or
turn and still finish its snapshot. Because it writes under its own keys, it cannot overwrite a newer snapshot. The
effects of facts that have since been deleted from the ledger topic may be recorded only in that newer snapshot.
"""

from typing import NamedTuple

import msgspec

from mirrord.ledger.errors import LedgerCorrupt
from mirrord.ledger.facts.audit import RangeAudited, RangeRepaired
from mirrord.ledger.facts.core import (
    CopyInherited,
    CopyNamed,
    Displaced,
    Holder,
    HoleFound,
    LaneHalted,
    LeaseRenewed,
    Progress,
    Reason,
    Rebuild,
    Rewound,
    TakeoverChecked,
    TargetProbed,
    Verdict,
)
from mirrord.ledger.facts.orders import OrderFact
from mirrord.ledger.facts.recovery import Recovery
from mirrord.ledger.facts.start_offsets import Selected, TopicStarts
from mirrord.ledger.job_state import JobState
from mirrord.ledger.quarantine import Quarantine
from mirrord.ledger.seeks import Seeks
from mirrord.model.acls import AclRule
from mirrord.model.archived_runs import ArchivedRuns
from mirrord.model.names import ClusterId, LaneId, TopicId
from mirrord.model.run_codec import Packed

LEASE_KEY = "lease"
LEDGER_END_KEY = "ledger"
PROGRESS_PREFIX = "progress/"
"""Prefix of the keys of progress records."""
RUNS_KEY = "runs"
"""Prefix of the keys of pieces."""
SNAPSHOT_KINDS = frozenset({"flow", "lane", RUNS_KEY})
"""The kinds of the keys of snapshots (`kind_of`)."""
COLUMNS, PACKED = 0, 1
"""The forms in which the state topic stores runs (`RunsPiece.form`). Only the newer form, `PACKED`, is
written."""


class LastEntry(msgspec.Struct, frozen=True, array_like=True):
    """The latest entry of a writer: its number, and the lease epoch under which it was written. A writer is one
    `LedgerStore`, which numbers the entries that it appends to the ledger."""

    lease_epoch: int
    number: int


class TargetTopic(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A target topic that mirrord created or added partitions to."""

    topic: str
    topic_id: TopicId
    partitions: int
    created: bool
    source_topic: str = ""
    source_topic_id: TopicId | None = None
    delete_at_ms: int | None = None
    """Wall-clock time at which the topic will be deleted; None if no deletion is planned."""


class LedgerEnd(msgspec.Struct, frozen=True, array_like=True):
    """How far the ledger was known to extend. If the ledger topic later ends below `end` or has a different topic id,
    the ledger has lost entries."""

    topic_id: TopicId
    end: int
    leader_epoch: int


class RunsPiece(msgspec.Struct, frozen=True, array_like=True):
    """A part of a lane's runs that no longer changes. Its key identifies its content."""

    lease_epoch: int
    lane: LaneId
    side: str
    first: int
    count: int
    checksum: int
    packed: bytes
    form: int = 0
    """0: the format that `Runs.extend_columns` reads; 1: a `PackedPiece`."""
    turn: int = 1


class RunsSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """A lane's runs on one side: the keys of the pieces in order, and the newest runs, which are not in a piece. Runs
    that `mirrord compact` has moved to its dataset are listed in `archived`. Pieces and archived runs are merged by
    their first ordinals."""

    pieces: tuple[str, ...]
    packed: bytes
    form: int = 0
    """The form of `packed` and of all the pieces, as in `RunsPiece`."""
    archived: tuple[ArchivedRuns, ...] = ()


class LaneSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state of a lane after all entries below the ledger offset `folded_to`."""

    lease_epoch: int
    folded_to: int
    changed_at: int
    lane: LaneId
    source_topic: str
    target_topic: str
    producer_id: int
    producer_epoch: int
    policy: str
    mode: str
    grant: int
    replicator: str
    source_runs: RunsSnapshot
    target_runs: RunsSnapshot
    verdict_counts: dict[Reason, int]
    recent_verdicts: tuple[Verdict, ...]
    holes: tuple[HoleFound, ...]
    halted: LaneHalted | None
    last_check: TakeoverChecked | None
    inherited: CopyInherited | None = None
    cuts: tuple[tuple[int, int], ...] = ()
    turn: int = 1
    epochs: tuple[tuple[int, int], ...] = ()
    quarantine: Quarantine = ()
    audited: RangeAudited | None = None
    retold: tuple[int, int] = (0, 0)
    seeks: Seeks = ()
    opened_at: int = 0
    regiven: int = -1
    repaired: tuple[RangeRepaired, ...] = ()
    times: tuple[int, int] = (0, 0)
    rewinds: tuple[tuple[int, Rewound], ...] = ()
    displaced: tuple[Displaced, ...] = ()
    regiven_until: int = -1
    left_out_epochs: tuple[tuple[int, int, int], ...] = ()
    rebuilt: tuple[int, int] = (0, 0)
    """No longer used."""
    rebuilds: tuple[Rebuild, ...] = ()


class FlowSnapshot(msgspec.Struct, frozen=True, array_like=True):
    """The state of the flow after all entries below the ledger offset `cut`. This record is written after all other
    records of the snapshot and makes the snapshot valid."""

    lease_epoch: int
    cut: int
    flow: str
    source_cluster: ClusterId | None
    target_cluster: ClusterId | None
    holder: Holder | None
    ttl_ms: int
    released: bool
    topics: tuple[TargetTopic, ...]
    lanes: int
    writers: dict[str, LastEntry]
    ledger: LedgerEnd
    probed: TargetProbed | None = None
    acls: tuple[AclRule, ...] = ()
    planned_acls: tuple[AclRule, ...] = ()
    turn: int = 1
    orders: tuple[OrderFact, ...] = ()
    forgotten_topics: tuple[str, ...] = ()
    forgotten_copies: tuple[tuple[TopicId, TopicId], ...] = ()
    """Source and target topic ids of lanes that were forgotten but may still have records in the state topic."""
    compaction: int = 0
    named: tuple[CopyNamed, ...] = ()
    jobs: tuple[JobState, ...] = ()
    keeps_starts: bool = False
    selected: Selected | None = None
    starts: tuple[TopicStarts, ...] = ()
    forgotten_losses: dict[Reason, int] = {}
    recoveries: tuple[Recovery, ...] = ()


Snapshot = FlowSnapshot | LaneSnapshot | RunsPiece
StateRecord = Progress | LeaseRenewed | LedgerEnd | Snapshot


class Tenure(NamedTuple):
    """The period in which one process holds the lease: the lease epoch, and the turn of the process under that lease.
    A later tenure compares as greater than an earlier one."""

    lease_epoch: int
    turn: int = 1

    def __str__(self) -> str:
        return f"{self.lease_epoch}" if self.turn == 1 else f"{self.lease_epoch}.{self.turn}"

    @staticmethod
    def of_key(key: str) -> "Tenure":
        """Return the tenure under which a snapshot was written, according to its key. Raises ValueError."""
        epoch, _, turn = key.split("/")[1].partition(".")
        return Tenure(int(epoch), int(turn or 1))


def kind_of(key: str) -> str:
    """Return the kind of records that the state topic holds under a key: the part of the key before the first "/"."""
    return key.partition("/")[0]


def flow_key(tenure: Tenure) -> str:
    """Return the key of the flow's snapshot."""
    return f"flow/{tenure}"


def lane_key(tenure: Tenure, lane: LaneId) -> str:
    """Return the key of a lane's snapshot."""
    return f"lane/{tenure}/{lane}"


def runs_key(tenure: Tenure, lane: LaneId, side: str, first: int, count: int, checksum: int) -> str:
    """Return the key of a piece of runs."""
    return f"{RUNS_KEY}/{tenure}/{lane}/{side}/{first}-{count}-{checksum:08x}"


def progress_key(lane: LaneId) -> str:
    """Return the key of a lane's progress record."""
    return f"{PROGRESS_PREFIX}{lane}"


def state_key(record: StateRecord) -> str:
    """Return the key under which a record is stored in the state topic."""
    match record:
        case Progress():
            return progress_key(record.lane)
        case LeaseRenewed():
            return LEASE_KEY
        case LedgerEnd():
            return LEDGER_END_KEY
        case FlowSnapshot():
            return flow_key(Tenure(record.lease_epoch, record.turn))
        case LaneSnapshot():
            return lane_key(Tenure(record.lease_epoch, record.turn), record.lane)
        case RunsPiece():
            tenure = Tenure(record.lease_epoch, record.turn)
            return runs_key(tenure, record.lane, record.side, record.first, record.count, record.checksum)


def written_under(record: FlowSnapshot | LaneSnapshot) -> Tenure:
    """Return the tenure (lease epoch and turn) of the process that wrote the snapshot."""
    return Tenure(record.lease_epoch, record.turn)


def recorded_end(record: StateRecord) -> LedgerEnd | None:
    """Return how far the ledger extended according to a record of the state topic. Return None if the record does not
    contain this information."""
    if isinstance(record, FlowSnapshot):
        return record.ledger
    return record if isinstance(record, LedgerEnd) else None


def first_ordinal(runs: RunsSnapshot) -> int:
    """Return the ordinal at which the first of these runs begins, or -1 if there are no runs.

    Older runs are stored in separate pieces, and the snapshot holds their keys. Raises LedgerCorrupt if the key of a
    piece is invalid, or if the packed runs cannot be read.
    """
    archived = [part.first_ordinal for part in runs.archived[:1]]
    try:
        if runs.pieces:
            return min([piece_ordinal(runs.pieces[0]), *archived])
        if archived:
            return archived[0]
        if runs.form == PACKED and runs.packed:
            return Packed(runs.packed).ordinals[0]
    except ValueError:
        raise LedgerCorrupt("a snapshot names impossible runs") from None
    return int.from_bytes(runs.packed[:8], "little") if runs.packed else -1


def piece_ordinal(key: str) -> int:
    """Return the first ordinal of a piece, taken from its key. Raises ValueError."""
    return int(key.rpartition("/")[2].split("-")[0])
