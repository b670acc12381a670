"""Decides which positions of consumer groups a drill compares, and which of them cannot be used at all."""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from mirrord.config.flow_features import GroupsConfig
from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.ledger.facts.last_seen import SeenPosition
from mirrord.ledger.offset_map import Translation
from mirrord.model.archived_runs import ArchiveLost
from mirrord.recovery.rules.drill_verdicts import DrillPosition
from mirrord.supervision.rules.final_positions import CopiedPlace, Offsets

_INEXACT = frozenset({"unsure", "refused", "unknown"})
Findings = dict[str, str]
"""One line for each finding, by a text that is the same each time the drill looks."""
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
    refused: Mapping[str, str] = {}
    """For each group whose offsets are not known, which cluster does not return them, and why."""


class DrillPlan(NamedTuple):
    """The positions to compare."""

    positions: tuple[DrillPosition, ...]
    active: int
    """Number of positions of groups that have members on the target."""
    kept: int
    """Number of positions that do not have to match."""
    findings: Findings
    """One line for each position from which the group could not continue on the target."""


def plan_positions(
    commits: BothCommits,
    places: Mapping[TopicAndPartition, CopiedPlace],
    seen: Iterable[SeenPosition],
    groups: GroupsConfig,
) -> DrillPlan:
    """Return the positions to compare. `places` holds the source partitions that are copied, `seen` the positions that
    did not match on both sides when they were last examined.

    With `groups.both_ways`, a position on the target counts the records of two flows, so it does not have to match the
    one on the source. Only the offset map is then compared.
    """
    known = {(each.group, (each.topic, each.partition)): each for each in seen}
    positions, active = list[DrillPosition](), 0
    findings = {f"{group} refused": f"group {group}: {why}" for group, why in commits.refused.items()}
    for (group, place), offset in _each(commits.source):
        copied = places.get(place)
        later = commits.later.get(group, {}).get(place)
        if copied is None or later is None or group in commits.refused:
            continue
        if group in commits.busy:
            active += 1
            continue
        before = known.get((group, place))
        there = commits.target.get(group, {}).get((copied.topic, copied.partition))
        position = DrillPosition(group, *place, offset, later, None if _is_kept(before, groups) else there)
        why = _why_not(_translated(copied, offset), before)
        if not why and there is None and not groups.both_ways:
            why = "it has no position on the target"
        if why:
            findings[position.key] = f"{position} at {offset}: {why}"
        else:
            positions.append(position)
    kept = sum(each.target_offset is None for each in positions)
    return DrillPlan(tuple(positions), active, kept, findings)


def lags(
    commits: BothCommits, places: Mapping[TopicAndPartition, CopiedPlace], *, both_ways: bool
) -> Iterator[PositionKey]:
    """Yield the positions that cannot be compared yet: records before them have not been copied, or the position on
    the target does not include what the group has read on the source."""
    for (group, place), offset in _each(commits.source):
        copied = places.get(place)
        if copied is None or group in commits.busy or group in commits.refused:
            continue
        translated = _translated(copied, offset)
        if isinstance(translated, str):
            continue
        if translated.ahead:
            yield group, place
            continue
        if translated.offset is None or translated.kind == "at_end":
            continue
        there = commits.target.get(group, {}).get((copied.topic, copied.partition), -1)
        if there < translated.offset and not both_ways:
            yield group, place


def unlisted(followed: Iterable[str], listed: Iterable[str]) -> Findings:
    """Return a finding if the source does not list groups whose positions mirrord syncs: they cannot be examined."""
    missing = sorted(set(followed) - set(listed))
    if not missing:
        return {}
    more = f" and {len(missing) - 1} more groups" if len(missing) > 1 else ""
    line = f"the source does not list group {missing[0]}{more}: DESCRIBE may be missing on it"
    return {"unlisted groups": line}


def _translated(copied: CopiedPlace, offset: int) -> Translation | str:
    try:
        return copied.map.to_target(offset)
    except ArchiveLost as fault:
        return str(fault)


def _why_not(translated: Translation | str, before: SeenPosition | None) -> str:
    """Return why the next record of a position is not known on the target, or an empty string."""
    if isinstance(translated, str):
        return translated
    if before is not None and before.state in _INEXACT:
        return before.why or before.state
    if translated.offset is None:
        return translated.reason or "its position cannot be translated"
    return ""


def _each(offsets: Offsets) -> Iterator[tuple[PositionKey, int]]:
    for group, places in offsets.items():
        for place, offset in places.items():
            yield (group, place), offset


def _is_kept(before: SeenPosition | None, groups: GroupsConfig) -> bool:
    """Return whether the position on the target stays as it is, although it does not match the one on the source.

    Without `groups.reverse`, a position on the target that is ahead comes from another client, or from a test. The
    group would skip records, so it has to match.
    """
    if groups.both_ways:
        return True
    if before is None:
        return False
    ahead = before.state == "ahead" and (groups.reverse or groups.mode == "forward-only")
    return ahead or (before.state == "behind" and groups.mode == "forward-only")
