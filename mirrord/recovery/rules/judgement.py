"""Decides whether a flow is ready for the loss of its source cluster, and why not."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from mirrord.ledger.facts.core import LOSSES
from mirrord.ledger.state import FlowState, LaneState
from mirrord.model.names import TopicId
from mirrord.model.readiness import FlowReadiness, PartitionReadiness
from mirrord.recovery.rules.headroom import FORECAST_NEAR_S, is_near, rough_time
from mirrord.supervision.rules.broker_probe import guarantee

DEFAULT_RPO_S = 60.0
"""The largest acceptable lag of a flow without `rpo`."""
OLD_S = 10.0
"""What was last seen of the source this long ago no longer counts as current."""
STOPPED = ("halted", "not copied", "paused")
"""States of partitions that are not being copied."""


class ReadinessJudgement(NamedTuple):
    """Why a flow is not ready, and what else an operator should know about it. One line each."""

    blockers: tuple[str, ...]
    remarks: tuple[str, ...]


def judge(
    found: FlowReadiness,
    state: FlowState,
    lanes: Sequence[LaneState],
    targets: Mapping[str, TopicId] | None,
) -> ReadinessJudgement:
    """Return the judgement on what was found, except for lags that are known (`late`). `targets` holds the existing
    topics of the target, or is None if they are not known."""
    blockers = [
        *_stopped(found.partitions),
        *_unseen(found.partitions),
        *(() if targets is None else _missing(lanes, targets)),
        *_groups(found),
    ]
    remarks = [
        *_age(found),
        *_retention(found),
        *_losses(state),
        *_differences(found),
        *_weak(state),
        *_unproven(found),
    ]
    return ReadinessJudgement(tuple(blockers), tuple(remarks))


def late(partitions: Sequence[PartitionReadiness], rpo_s: float) -> Iterator[str]:
    """Yield why a flow is not ready if its largest acceptable lag is `rpo_s`."""
    behind = [each for each in partitions if each.lag_s is not None and each.lag_s > rpo_s]
    unknown = [_name(each) for each in partitions if each.lag_records and each.lag_s is None]
    if behind:
        last = max(behind, key=lambda each: each.lag_s or 0.0)
        more = f" (and {len(behind) - 1} more partitions)" if len(behind) > 1 else ""
        yield f"{_name(last)} is {last.lag_s:.0f} s behind{more}; {rpo_s:g} s are allowed"
    if unknown:
        yield f"records of {_few(unknown)} would be lost, and it is not known how old they are"


def _stopped(partitions: Sequence[PartitionReadiness]) -> Iterator[str]:
    for stopped in STOPPED:
        there = [each for each in partitions if each.state == stopped]
        if there:
            note = next((f": {each.note}" for each in there if each.note), "")
            yield f"{_few([_name(each) for each in there])} {_is(there)} {stopped}{note}"


def _unseen(partitions: Sequence[PartitionReadiness]) -> Iterator[str]:
    unseen = [_name(each) for each in partitions if each.lag_records is None and each.state not in STOPPED]
    if unseen:
        yield f"it is not known how many records of {_few(unseen)} would be lost"


def _missing(lanes: Sequence[LaneState], targets: Mapping[str, TopicId]) -> Iterator[str]:
    missing = sorted({lane.target_topic for lane in lanes} - targets.keys())
    other = sorted(
        {
            lane.target_topic
            for lane in lanes
            if targets.get(lane.target_topic, lane.key.target_topic_id) != lane.key.target_topic_id
        }
    )
    if missing:
        yield f"the target does not show {_few(missing)}: {_it(missing)} may not exist, or READ may be missing"
    if other:
        yield f"{_few(other)} on the target {_is(other)} not what was copied to: deleted and created again"


def drill_findings(found: FlowReadiness, *, syncs_acls: bool) -> list[str]:
    """Return those lines of a judgement that are findings of a drill. The positions of groups are omitted, because a
    drill examines them itself. Missing ACLs count if the flow syncs them."""
    inexact = set(_inexact(found))
    acls = [f"ACLs differ: {line}" for line in found.acls.differences] if syncs_acls else []
    return [*(line for line in found.blockers if line not in inexact), *acls]


def _groups(found: FlowReadiness) -> Iterator[str]:
    if found.groups.seen_ms is None and not found.groups.note:
        yield "the positions of consumer groups on the source were never recorded"
    yield from _inexact(found)


def _inexact(found: FlowReadiness) -> Iterator[str]:
    if not found.groups.inexact:
        return
    first = next((each for each in found.groups.positions if not each.is_known), None)
    what = f"group {first.group} in {first.topic}-{first.partition}: {first.why or first.state}" if first else ""
    count = (
        f"{found.groups.inexact} positions of consumer groups" if found.groups.inexact > 1 else "1 position of a group"
    )
    yield f"the next record is not known for {count}{f'; {what}' if what else ''}"


def _age(found: FlowReadiness) -> Iterator[str]:
    if found.seen_ms is not None and found.at_ms - found.seen_ms > OLD_S * 1000:
        yield (
            f"{found.source} was last seen {(found.at_ms - found.seen_ms) / 1000:.0f} s ago: records that were written "
            "after that are not counted"
        )
    groups = found.groups
    if groups.seen_ms is not None and found.at_ms - groups.seen_ms > OLD_S * 1000:
        yield (
            f"commits on {found.source} were last seen {(found.at_ms - groups.seen_ms) / 1000:.0f} s ago: what groups "
            "committed after that is not known"
        )
    if groups.note:
        yield groups.note


def _retention(found: FlowReadiness) -> Iterator[str]:
    """Yield one line for each way in which retention may soon delete records that are still needed."""
    sources = [(each, room) for each in found.partitions if (room := each.source_headroom) is not None]
    targets = [(each, room) for each in found.partitions if (room := each.target_headroom) is not None]
    gone = [(each, room) for each, room in sources if room.offsets is not None and room.offsets < 0]
    near = [(each, room) for each, room in sources if is_near(room) and (room.offsets is None or room.offsets >= 0)]
    soon = [(each, room) for each, room in sources if room.forecast_s is not None and room.forecast_s < FORECAST_NEAR_S]
    unread = [(each, room) for each, room in targets if is_near(room)]
    if gone:
        yield f"{_few([_name(each) for each, _ in gone])}: {gone[0][1].note}"
    if near:
        names, left = _few([_name(each) for each, _ in near]), _earliest(min(room.left_s or 0.0 for _, room in near))
        yield f"if nothing more is copied, retention on {found.source} may delete records of {names}, {left}"
    if soon:
        names, left = _few([_name(each) for each, _ in soon]), min(room.forecast_s or 0.0 for _, room in soon)
        yield (
            f"at the pace of the last hour, retention on {found.source} deletes records of {names} that have not been "
            f"copied, in {rough_time(left)}"
        )
    if unread:
        partition, first = min(unread, key=lambda each: each[1].left_s or 0.0)
        more = f" (and of {len(unread) - 1} more partitions)" if len(unread) > 1 else ""
        yield (
            f"retention on {found.target} may delete records of {_name(partition)} that group {first.group} has not "
            f"read{more}, {_earliest(first.left_s or 0.0)}"
        )


def _earliest(left_s: float) -> str:
    return f"in {rough_time(left_s)} at the earliest" if left_s else "at any time"


def _losses(state: FlowState) -> Iterator[str]:
    lost = sum(lane.verdicts.counts.get(reason, 0) for lane in state.lanes.values() for reason in LOSSES)
    lost += sum(state.forgotten_losses.values())
    if lost:
        yield f"{lost} offsets were lost earlier: `mirrord gaps` lists them"


def _differences(found: FlowReadiness) -> Iterator[str]:
    for what, comparison in (("configs", found.configs), ("ACLs", found.acls), ("client quotas", found.quotas)):
        lines = list(comparison.differences)
        if lines:
            more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
            yield f"{what} differ: {lines[0]}{more}"
        elif comparison.note:
            yield f"{what} were not compared: {comparison.note}"


def _weak(state: FlowState) -> Iterator[str]:
    promise, why = guarantee(state.probed)
    if promise == "at-least-once":
        yield f"records may be on the target twice, because the flow copies at-least-once: {why}"


def _unproven(found: FlowReadiness) -> Iterator[str]:
    if not found.partitions:
        return
    if found.proof.oldest_ms is None:
        yield "nothing has been proven: `mirrord audit` compares both clusters"
    elif found.proof.partitions < len(found.partitions):
        rest = len(found.partitions) - found.proof.partitions
        yield f"no audit has proven anything of {rest} of {len(found.partitions)} partitions"


def _name(partition: PartitionReadiness) -> str:
    return f"{partition.topic}-{partition.partition}"


def _few(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"


def _is(things: Sequence[object]) -> str:
    return "is" if len(things) == 1 else "are"


def _it(things: Sequence[object]) -> str:
    return "it" if len(things) == 1 else "they"
