"""Decides the final positions of consumer groups on the target, when no record will be copied any more."""

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from mirrord.config.flow_features import GroupsConfig
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.ledger.offset_map import LaneMap
from mirrord.model.group_status import GroupState

SHOWN = 5
"""Maximum number of positions that a summary names."""
_IRRELEVANT: frozenset[GroupState] = frozenset({"expired", "not copied"})
_KEPT: frozenset[GroupState] = frozenset({"ahead", "in step"})
_OPEN: frozenset[GroupState] = frozenset({"unsure", "refused"})
NOT_PLACED = "the ledger does not contain where the last records are, so they may be read again"
"""Why a position is not exact after records of which the ledger does not contain the target offsets."""

Offsets = Mapping[str, Mapping[TopicAndPartition, int]]
"""Committed offsets by group, topic and partition."""


class SourceCommit(NamedTuple):
    """A group's position on the source, and how it compared with the target when it was last examined."""

    group: str
    topic: str
    partition: int
    offset: int
    """Committed offset on the source, or -1 if there is none."""
    state: GroupState
    why: str = ""


class CopiedPlace(NamedTuple):
    """A partition of the target, and the final offset map of its lane."""

    topic: str
    partition: int
    map: LaneMap
    is_complete: bool = True
    """Whether the map contains all records that the lane has copied. The last ones may be missing, because a lane
    records their target offsets only after they were acknowledged."""


class FinalPlan(NamedTuple):
    """The final positions."""

    commits: Mapping[str, Mapping[TopicAndPartition, int]]
    """The offsets to commit on the target, by group, target topic and partition."""
    exact: int
    """Number of positions whose next record on the target is known exactly."""
    active: int
    """Number of positions that are left unchanged because the group already has members on the target."""
    open: tuple[str, ...]
    """One line for each position whose next record is not known."""


def final_plan(
    positions: Iterable[SourceCommit],
    places: Mapping[TopicAndPartition, CopiedPlace],
    committed: Offsets,
    busy: Collection[str],
    groups: GroupsConfig,
) -> FinalPlan:
    """Return the final positions. `places` holds the source partitions of the failover, `committed` the offsets on the
    target, and `busy` the groups that have members there.

    Each position becomes what the offset map gives for it. It is never moved backward, unless mirrord was about to move
    it backward because the group has gone back on the source. With `groups.both_ways`, a position counts the records of
    two flows, so the offset map of this flow alone does not give it, and nothing is changed. With `groups.reverse`, a
    position that is ahead may be lower, because the group has gone back on the target. Otherwise, it is higher, or it
    was higher until the last records were copied.
    """
    commits: dict[str, dict[TopicAndPartition, int]] = {}
    exact = active = 0
    lines: list[str] = []
    for each in positions:
        place = places.get((each.topic, each.partition))
        if place is None or each.state in _IRRELEVANT:
            continue
        there = committed.get(each.group, {}).get((place.topic, place.partition))
        if each.group in busy:
            active += 1
        elif (
            groups.both_ways or each.state in _OPEN or (groups.reverse and each.state == "ahead" and there is not None)
        ):
            if each.state in _KEPT:
                exact += 1
            else:
                lines.append(_line(each, each.why or each.state))
        elif (found := place.map.to_target(each.offset)).offset is None or each.offset < 0:
            lines.append(_line(each, found.reason or each.why or each.state))
        else:
            if found.kind == "at_end" and not place.is_complete:
                lines.append(_line(each, NOT_PLACED))
            else:
                exact += 1
            goes_back = each.state == "behind" and groups.mode == "follow"
            if there is None or there < found.offset or (goes_back and there != found.offset):
                commits.setdefault(each.group, {})[place.topic, place.partition] = found.offset
    return FinalPlan(commits, exact, active, tuple(lines))


def with_commits(positions: Iterable[SourceCommit], commits: Offsets) -> list[SourceCommit]:
    """Return the positions with the offsets that the source has now. Positions of which mirrord does not know yet are
    added."""
    known = {(each.group, each.topic, each.partition): each for each in positions}
    for group, places in commits.items():
        for (topic, partition), offset in places.items():
            key = (group, topic, partition)
            before = known.get(key, SourceCommit(*key, -1, "waits"))
            if before.offset != offset:
                # mirrord has not examined this position yet, so it may also have gone back.
                before = before._replace(offset=offset, state="behind" if before.state == "in step" else before.state)
            known[key] = before
    return list(known.values())


def summary(exact: int, active: int, lines: Collection[str]) -> str:
    """Return one line for operators."""
    parts = [f"{exact} positions are known exactly"]
    if active:
        parts.append(f"{active} were left unchanged, because their groups already use the target")
    if lines:
        shown = list(lines)[:SHOWN]
        more = f" and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
        parts.append(f"{len(lines)} are not known: {'; '.join(shown)}{more}")
    return ", ".join(parts)


def _line(position: SourceCommit, why: str) -> str:
    return f"{position.group} in {position.topic}-{position.partition}: {why}"
