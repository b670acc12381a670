"""The stored results of an audit: Parquet files in a folder, and the totals that are computed from them.

Each file is written under a temporary name and then renamed, so that a reader sees only complete files. An interrupted
audit can continue with the results that have already been stored (`--resume`).
"""

import hashlib
import importlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mirrord.audit.plan import FlowPlan, LaneAuditPlan
from mirrord.audit.rules.audit_range import AuditRange
from mirrord.audit.rules.html_report import FoundThen
from mirrord.audit.rules.ledger_audit import losses_within
from mirrord.audit.rules.results import LaneSummary, RangeResult
from mirrord.ledger.facts.audit import RangeAudited
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.jobs import AuditLevel
from mirrord.model.names import LaneId, TopicPartition
from mirrord.runtime.arrow import arrow

_parquet: Any = importlib.import_module("pyarrow.parquet")

_DIFFERENCE: Any = arrow.struct(
    [("kind", arrow.string()), ("source", arrow.int64()), ("target", arrow.int64()), ("length", arrow.int64())]
)
_EXPLAINED: Any = arrow.struct(
    [("cause", arrow.string()), ("side", arrow.string()), ("start", arrow.int64()), ("end", arrow.int64())]
)
_SCHEMA: Any = arrow.schema(
    [
        ("flow", arrow.string()),
        ("topic", arrow.string()),
        ("partition", arrow.int32()),
        ("target_topic", arrow.string()),
        ("lane", arrow.string()),
        ("level", arrow.string()),
        ("by", arrow.string()),
        ("first_ordinal", arrow.int64()),
        ("end_ordinal", arrow.int64()),
        ("map", arrow.string()),
        ("equal", arrow.int64()),
        ("newest_ms", arrow.int64()),
        ("read_bytes", arrow.int64()),
        ("audited_at_ms", arrow.int64()),
        ("differences", arrow.list_(_DIFFERENCE)),
        ("explained", arrow.list_(_EXPLAINED)),
        ("undecided", arrow.list_(arrow.int64())),
    ]
)
_SUFFIX = ".parquet"
MINUTE_MS = 60_000
_MAP_BYTES = 16

RangeKey = tuple[str, LaneId, int, int, str]
"""Identifies an audited range: flow, lane, first ordinal, ordinal after the last one, and a digest. The digest covers
the whole `AuditRange`, including the range's part of the offset map and its verdicts."""


def range_key(flow: str, wanted: AuditRange) -> RangeKey:
    """Return the key of a range that is to be audited."""
    digest = hashlib.blake2b(msgspec.msgpack.encode(wanted), digest_size=_MAP_BYTES).hexdigest()
    return flow, wanted.lane, wanted.first, wanted.end, digest


class ResultRow(msgspec.Struct, frozen=True, kw_only=True):
    """The result for one range, with the source partition and the target topic of its lane."""

    flow: str
    source: TopicPartition
    target_topic: str
    level: str
    audited_at_ms: int
    wanted: AuditRange
    result: RangeResult


class Results:
    """The folder in which an audit stores its results."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def known(self, level: str) -> dict[RangeKey, RangeResult]:
        """Return the results that an interrupted audit at this level has stored.

        Raises ConfigError if the folder does not exist, and EnvironmentFault if it cannot be read.
        """
        if not self.folder.is_dir():
            raise ConfigError(f"--resume: {self.folder} is not the folder of an audit")
        found: dict[RangeKey, RangeResult] = {}
        for row in self._rows():
            if row["level"] == level:
                result = _result(row)
                found[row["flow"], result.lane, result.first, result.end, row["map"]] = result
        return found

    def found(self) -> list[FoundThen]:
        """Return the totals of the results in this folder. Results that audits of the same flow stored in the same
        minute are added up. Raises EnvironmentFault."""
        equal: Counter[tuple[int, str]] = Counter()
        kinds: dict[tuple[int, str], Counter[str]] = {}
        for row in self._rows(["flow", "audited_at_ms", "equal", "differences"]):
            when = row["audited_at_ms"] // MINUTE_MS * MINUTE_MS, row["flow"]
            equal[when] += row["equal"]
            for difference in row["differences"]:
                kinds.setdefault(when, Counter())[difference["kind"]] += difference["length"]
        return [FoundThen(*when, records, dict(kinds.get(when, {}))) for when, records in equal.items()]

    def _rows(self, columns: Sequence[str] | None = None) -> Iterator[Mapping[str, Any]]:
        for path in sorted(self.folder.glob(f"*{_SUFFIX}")):
            try:
                table = _parquet.read_table(path, schema=_SCHEMA, columns=columns)
            except (OSError, arrow.ArrowException) as error:
                raise EnvironmentFault(f"{path} cannot be read: {error}") from None
            yield from table.to_pylist()

    def begin(self) -> None:
        """Create the folder when an audit starts, so that `--resume` works no matter how early the audit is
        interrupted.

        Raises EnvironmentFault.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise EnvironmentFault(f"nothing can be written to {self.folder}: {error.strerror}") from error

    def write(self, rows: Sequence[ResultRow]) -> None:
        """Store these results, either all or none of them. Raises EnvironmentFault."""
        if not rows:
            return
        table = arrow.Table.from_pylist([_plain(row) for row in rows], schema=_SCHEMA)
        self.begin()
        try:
            number = 1 + max(
                (int(path.stem) for path in self.folder.glob(f"*{_SUFFIX}") if path.stem.isdigit()), default=0
            )
            path = self.folder / f"{number:06}{_SUFFIX}"
            unfinished = path.with_suffix(".unfinished")
            _parquet.write_table(table, unfinished)
            unfinished.replace(path)
        except OSError as error:
            raise EnvironmentFault(f"nothing can be written to {self.folder}: {error.strerror}") from error


def _plain(row: ResultRow) -> dict[str, Any]:
    result = row.result
    return {
        "flow": row.flow,
        "topic": row.source.topic,
        "partition": row.source.partition,
        "target_topic": row.target_topic,
        "lane": result.lane,
        "level": row.level,
        "by": result.by,
        "first_ordinal": result.first,
        "end_ordinal": result.end,
        "map": range_key(row.flow, row.wanted)[-1],
        "equal": result.compared.equal,
        "newest_ms": result.newest_ms,
        "read_bytes": result.read_bytes,
        "audited_at_ms": row.audited_at_ms,
        "differences": msgspec.to_builtins(result.compared.differences),
        "explained": msgspec.to_builtins(result.compared.explained),
        "undecided": list(result.compared.undecided),
    }


def _result(row: Mapping[str, Any]) -> RangeResult:
    return msgspec.convert(
        {
            "lane": row["lane"],
            "first": row["first_ordinal"],
            "end": row["end_ordinal"],
            "by": row["by"],
            "newest_ms": row["newest_ms"],
            "read_bytes": row["read_bytes"],
            # Older files lack the column `undecided`.
            "compared": {name: row[name] or () for name in ("differences", "explained", "undecided")}
            | {"equal": row["equal"]},
        },
        RangeResult,
    )


def proven(lane: LaneAuditPlan, results: Iterable[RangeResult], level: AuditLevel, at_ms: int) -> RangeAudited | None:
    """Return a `RangeAudited` fact with the range of the lane that these results prove. The range begins where the
    proof of earlier audits ends. Return None if the results prove nothing new."""
    found = {(result.first, result.end): result for result in results}
    first: AuditRange | None = None
    last: AuditRange | None = None
    newest_ms = lane.proven.newest_ms if lane.proven else -1
    for wanted in lane.ranges if lane.is_from_begin else ():
        if not wanted.pieces:
            break  # a proof covers ordinals, and a range without pieces has none
        result = found.get((wanted.first, wanted.end))
        if result is None or result.compared.differences or result.compared.undecided:
            break
        first, last = first or wanted, wanted
        newest_ms = max(newest_ms, result.newest_ms)
    if first is None or last is None:
        return None
    return RangeAudited(
        lane=lane.lane,
        level="records" if level == "records" else "digest",
        first=lane.proven.end if lane.proven else first.first,
        end=last.end,
        source_offset=last.source_end,
        newest_ms=newest_ms,
        at_ms=at_ms,
    )


def summary(flow: FlowPlan, lane: LaneAuditPlan, results: Iterable[RangeResult], *, level: AuditLevel) -> LaneSummary:
    """Return the totals of a lane's results. An audit at the level `ledger` proves nothing about records, so
    `proven_to` is then the position that earlier audits have proven."""
    found = {(result.first, result.end): result for result in results}
    differences: Counter[str] = Counter()
    explained: Counter[str] = Counter()
    for result in found.values():
        for difference in result.compared.differences:
            differences[difference.kind] += difference.length
        for each in result.compared.explained:
            explained[each.cause] += each.end - each.start
    inside = [
        loss
        for wanted in lane.ranges
        if (result := found.get((wanted.first, wanted.end))) is not None
        for loss in losses_within(wanted, result.compared)
    ]
    for each in (*lane.losses, *inside):
        explained[each.cause] += each.end - each.start
    if lane.lost:
        differences["missing"] += lane.lost
    if lane.uncopied[0] < lane.uncopied[1]:
        differences["not-copied"] += lane.uncopied[1] - lane.uncopied[0]
    fact = proven(lane, found.values(), level, 0) if level != "ledger" else None
    fact = fact or lane.proven
    return LaneSummary(
        flow=flow.flow,
        topic=lane.audited.source.topic,
        partition=lane.audited.source.partition,
        records=sum(piece.length for wanted in lane.ranges for piece in wanted.pieces),
        equal=sum(result.compared.equal for result in found.values()),
        differences=dict(sorted(differences.items())),
        explained=dict(sorted(explained.items())),
        proven_to=fact.source_offset if fact else None,
        proven_ms=fact.newest_ms if fact and fact.newest_ms >= 0 else None,
        read_bytes=sum(result.read_bytes for result in found.values()),
        skipped=lane.skipped,
        ranges=len(lane.ranges) + lane.left_out,
        looked_at=sum((wanted.first, wanted.end) in found for wanted in lane.ranges),
        waiting=lane.waiting,
        beyond=lane.beyond,
        undecided=sum(len(result.compared.undecided) for result in found.values()),
        has_nothing=lane.has_nothing,
    )
