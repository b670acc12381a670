"""Determines for which positions of consumer groups the next record on the target is known."""

from collections.abc import Mapping

from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.ledger.facts.last_seen import SeenPosition
from mirrord.ledger.last_seen.group_positions import SeenGroups
from mirrord.model.group_status import GroupState
from mirrord.model.readiness import GroupsReadiness, PositionReadiness

TargetBounds = Mapping[TopicAndPartition, tuple[int, int]]
"""The log start offset and the high watermark of target partitions, by target topic and partition."""
Commits = Mapping[str, Mapping[TopicAndPartition, int]]
"""The committed offsets on the target, by group, target topic and partition."""

_EXACT: frozenset[GroupState] = frozenset({"in step", "waits", "active", "ahead"})
"""States in which it is known which record the group reads next, if it has a position on the target. If it waits for
records that have not been copied, it continues after the last copied one."""
_IRRELEVANT: frozenset[GroupState] = frozenset({"not copied", "expired"})
"""States of positions that the flow has nothing to do with."""


def groups_readiness(
    seen: SeenGroups, commits: Commits, copies: Mapping[TopicAndPartition, TopicAndPartition], bounds: TargetBounds
) -> GroupsReadiness:
    """Return the readiness of all positions. `copies` maps each target partition to its source partition.

    The recorded positions are those that did not match on both sides. All other positions are known from the commits on
    the target. If the target has fewer of them than there were, some of them have been lost.
    """
    noted: dict[tuple[str, TopicAndPartition], PositionReadiness] = {}
    targets = {place: target for target, place in copies.items()}
    for each in seen.positions:
        if each.state not in _IRRELEVANT:
            target = targets.get((each.topic, each.partition))
            offset = None if target is None else commits.get(each.group, {}).get(target)
            noted[each.group, (each.topic, each.partition)] = _noted(each, offset)
    matching = 0
    for group, offsets in commits.items():
        for target, offset in offsets.items():
            place = copies.get(target)
            if place is None:
                continue
            matching += (group, place) not in noted
            if (removed := _removed(group, place, offset, bounds.get(target))) is not None:
                noted[group, place] = removed
    positions = sorted(noted.values(), key=lambda each: (each.is_known, each.group, each.topic, each.partition))
    removed_count = sum(each.state == "removed" for each in positions)
    lost = max(0, seen.in_step - matching)
    known = sum(each.is_known for each in positions)
    return GroupsReadiness(
        groups=max(seen.groups, len(commits)),
        exact=matching - min(matching, removed_count) + known,
        inexact=len(positions) - known + seen.omitted + lost,
        seen_ms=None if seen.at_ms < 0 else seen.at_ms,
        positions=tuple(positions),
        note=_note(seen.omitted, lost),
    )


def _note(omitted: int, lost: int) -> str:
    lines = [f"{omitted} more positions did not match, and are not recorded"] if omitted else []
    lines += [f"{lost} positions that matched on both sides are no longer on the target"] if lost else []
    return "; ".join(lines)


def _noted(seen: SeenPosition, target_offset: int | None) -> PositionReadiness:
    return PositionReadiness(
        group=seen.group,
        topic=seen.topic,
        partition=seen.partition,
        source_offset=None if seen.offset < 0 else seen.offset,
        target_offset=target_offset,
        state=seen.state,
        why=seen.why,
        is_known=seen.state in _EXACT and target_offset is not None,
    )


def _removed(
    group: str, place: TopicAndPartition, offset: int, bounds: tuple[int, int] | None
) -> PositionReadiness | None:
    if bounds is None or offset >= bounds[0]:
        return None
    why = f"the target has deleted the records from offset {offset} up to {bounds[0]} (retention)"
    return PositionReadiness(
        group=group,
        topic=place[0],
        partition=place[1],
        target_offset=offset,
        state="removed",
        why=why,
        is_known=False,
    )
