"""Decides which positions of consumer groups a drill compares, and which of them cannot be used at all."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from mirrord.config.flow_features import GroupsMode
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.ledger.facts.last_seen import SeenPosition
from mirrord.recovery.rules.drill_verdicts import DrillPosition
from mirrord.supervision.rules.final_positions import CopiedPlace, Offsets

_INEXACT = frozenset({"unsure", "refused", "unknown"})
PositionKey = tuple[str, TopicAndPartition]
"""A group, and a source partition."""


class BothCommits(NamedTuple):
    """The committed offsets of the chosen groups on both clusters."""

    source: Offsets
    """Before the target was asked."""
    later: Offsets
    """After the target was asked."""
    target: Offsets
    busy: frozenset[str]
    """Groups that have members on the target."""


class DrillPlan(NamedTuple):
    """The positions to compare."""

    positions: tuple[DrillPosition, ...]
    active: int
    """Number of positions of groups that have members on the target."""
    findings: tuple[str, ...]
    """One line for each position from which the group could not continue on the target."""


def plan_positions(
    commits: BothCommits,
    places: Mapping[TopicAndPartition, CopiedPlace],
    seen: Iterable[SeenPosition],
    mode: GroupsMode,
    *,
    both_ways: bool,
) -> DrillPlan:
    """Return the positions to compare. `places` holds the source partitions that are copied, `seen` the positions that
    did not match on both sides when they were last examined.

    With `groups.both_ways`, a position on the target counts the records of two flows, so it does not have to match the
    one on the source. Only the offset map is then compared.
    """
    known = {(each.group, (each.topic, each.partition)): each for each in seen}
    positions, lines, active = list[DrillPosition](), list[str](), 0
    for (group, place), offset in _each(commits.source):
        copied = places.get(place)
        later = commits.later.get(group, {}).get(place)
        if copied is None or later is None:
            continue
        if group in commits.busy:
            active += 1
            continue
        before = known.get((group, place))
        there = commits.target.get(group, {}).get((copied.topic, copied.partition))
        where = DrillPosition(group, *place, offset, later, None if both_ways or _is_kept(before, mode) else there)
        translated = copied.map.to_target(offset)
        if before is not None and before.state in _INEXACT:
            lines.append(f"{where} at {offset}: {before.why or before.state}")
        elif translated.offset is None:
            lines.append(f"{where} at {offset}: {translated.reason or 'its position cannot be translated'}")
        elif there is None and not both_ways:
            lines.append(f"{where} at {offset}: it has no position on the target")
        else:
            positions.append(where)
    return DrillPlan(tuple(positions), active, tuple(lines))


def lags(
    commits: BothCommits, places: Mapping[TopicAndPartition, CopiedPlace], *, both_ways: bool
) -> Iterator[PositionKey]:
    """Yield the positions that cannot be compared yet: records before them have not been copied, or the position on
    the target does not include what the group has read on the source."""
    for (group, place), offset in _each(commits.source):
        copied = places.get(place)
        if copied is None or group in commits.busy:
            continue
        translated = copied.map.to_target(offset)
        if translated.ahead:
            yield group, place
            continue
        if translated.offset is None or translated.kind == "at_end":
            continue
        there = commits.target.get(group, {}).get((copied.topic, copied.partition), -1)
        if there < translated.offset and not both_ways:
            yield group, place


def _each(offsets: Offsets) -> Iterator[tuple[PositionKey, int]]:
    for group, places in offsets.items():
        for place, offset in places.items():
            yield (group, place), offset


def _is_kept(before: SeenPosition | None, mode: GroupsMode) -> bool:
    """Return whether the position on the target stays as it is, although it does not match the one on the source."""
    if before is None:
        return False
    return before.state == "ahead" or (before.state == "behind" and mode == "forward-only")
