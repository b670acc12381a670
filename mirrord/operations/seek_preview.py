"""Previews the operator command that moves a lane forward in the source.

The preview is based on the flow's ledger and on the start and end offsets of the source log. Nothing is altered.
"""

from collections.abc import Mapping
from typing import Literal

import msgspec

from mirrord.config.fault_text import closest_name
from mirrord.config.schema import Config
from mirrord.kafka.client.log_offsets import log_offsets, offsets_at
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.state import LaneState
from mirrord.model.errors import ConfigError, EnvironmentFault
from mirrord.model.names import TopicPartition
from mirrord.operations.flow_lookup import ledgers_meant, of_several
from mirrord.operations.status_report import LedgerView
from mirrord.supervision.rules.seek_orders import rule


class Goal(msgspec.Struct, frozen=True):
    """The source position at which a lane is to continue: an offset, the start or the end of the log, or a time.
    Exactly one field is set."""

    offset: int | None = None
    end: Literal["earliest", "latest"] | None = None
    """The start or the end of the source log."""
    time_ms: int | None = None
    """A time in milliseconds since 1970. The lane continues with the first record whose timestamp is at or after this
    time."""


class SeekPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The effect that a seek would have on one lane."""

    flow: str
    topic: str
    partition: int
    position: int
    """The source offset in the lane's last progress record or, if there is no such record, the offset at which the lane
    begins. A lane that is copying may be further ahead."""
    to: int
    log_start: int
    log_end: int
    target_topic: str
    target_offset: int
    """The target offset after the lane's last record."""
    standing: str = ""
    """Why the seek is not needed. Empty if it is needed."""
    lost_from: int = -1
    """If the lane is halted because the source has lost copied records: the lowest lost offset. Otherwise -1."""

    @property
    def begins(self) -> int:
        """The first source offset that is skipped. The source may have other records at lost offsets by now, and they
        are skipped as well."""
        return self.position if self.lost_from < 0 else self.lost_from

    @property
    def expired(self) -> int:
        """Number of skipped source offsets that the source has already deleted."""
        return max(0, min(self.log_start, self.to) - self.begins)

    def lines(self) -> list[str]:
        """Return the preview as lines of text."""
        name, end = f"{self.topic}-{self.partition}", f"{self.target_topic}-{self.partition}"
        if self.standing:
            return [self.standing]
        steps = [
            f"{name} of {self.flow} is at source offset {self.position}; the source holds "
            f"[{self.log_start}, {self.log_end})"
        ]
        if self.lost_from >= 0:
            steps.append(
                f"the source has lost the records [{self.lost_from}, {self.position}): those of them that were copied "
                "are recorded as truncated. The records that the source has at these offsets now have not been copied"
            )
        if self.expired:
            steps.append(
                f"[{self.begins}, {self.begins + self.expired}) has been deleted on the source: recorded as expired"
            )
        skipped = self.to - self.begins - self.expired
        if skipped:
            start = self.begins + self.expired
            steps.append(
                f"[{start}, {self.to}) will be skipped: {skipped} offsets with at most as many records, minus those "
                "that have been copied by then; `mirrord gaps` lists them as skipped"
            )
        steps.append(
            f"the record at source offset {self.to} will follow after target offset {self.target_offset} of {end}, and "
            "the skipped records will not follow later"
        )
        return steps


async def plan_seek(config: Config, name: str, flow: str | None, goal: Goal) -> SeekPlan:
    """Return the effect of a seek on the partition with this name.

    Raises ConfigError if the seek is impossible. Raises EnvironmentFault if the effect cannot be determined at the
    moment.
    """
    name, views = await ledgers_meant(config, name, flow)
    found = {flow: view for flow, view in views.items() if isinstance(view, LedgerView) and _newest(view, name)}
    if len(found) != 1:
        _refuse(name, views, list(found))
    ((flow_name, view),) = found.items()
    lane = _newest(view, name)
    if lane is None or not lane.source_runs:
        raise ConfigError(f"{name} of {flow_name} has not begun yet; `start` of the flow says where it begins")
    partition = TopicPartition(lane.source_topic, lane.partition)
    cluster = config.clusters[view.flow.source]
    starts, ends = [await log_offsets(cluster, [partition], which) for which in ("start", "end")]
    if partition not in starts or partition not in ends:
        raise ConfigError(f"{name} does not exist on {view.flow.source}: there is nothing to continue with")
    log_start, log_end = starts[partition], ends[partition]
    to = goal.offset
    if goal.time_ms is not None:
        record = (await offsets_at(cluster, [partition], goal.time_ms)).get(partition)
        to = log_end if record is None else record[0]
    elif to is None:
        to = log_start if goal.end == "earliest" else log_end
    standing = view.state.standing(lane.key.id)
    at = next((each for each in standing.seeks if each.end == to and standing.lost_from < 0), None)
    if at is None and not log_start <= to <= log_end:
        raise ConfigError(
            f"--to: found {to}; allowed: {log_start} to {log_end}, which is what the source holds of {name}"
        )
    ruling = rule(f"{name} of {flow_name}", lane.key.id, standing, to, log_start, Origin("", "", 0))
    progress = view.state.progress.get(lane.key.id)
    return SeekPlan(
        flow=flow_name,
        topic=lane.source_topic,
        partition=lane.partition,
        position=standing.position,
        to=to,
        log_start=log_start,
        log_end=log_end,
        target_topic=lane.target_topic,
        target_offset=0 if progress is None else progress.target_offset,
        standing="" if ruling.fact is not None else ruling.line,
        lost_from=standing.lost_from,
    )


def _newest(view: LedgerView, name: str) -> LaneState | None:
    """Return the newest lane with this name. If a topic was deleted and re-created, several lanes have the same
    name."""
    lanes = [lane for lane in view.state.lanes.values() if f"{lane.source_topic}-{lane.partition}" == name]
    return max(lanes, key=lambda lane: lane.age, default=None)


def _refuse(name: str, views: Mapping[str, object], found: list[str]) -> None:
    if found:
        raise of_several(name, found)
    readable = [view for view in views.values() if isinstance(view, LedgerView)]
    faults = [f"flow {flow}: {view}" for flow, view in views.items() if not isinstance(view, LedgerView)]
    if not readable:
        raise EnvironmentFault("\n".join(faults))
    known = {f"{lane.source_topic}-{lane.partition}" for view in readable for lane in view.state.lanes.values()}
    like = closest_name(name, sorted(known))
    hint = f'; did you mean "{like}"?' if like else ""
    raise ConfigError(f'no partition "{name}" is copied{hint}')
