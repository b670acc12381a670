"""The positions of consumer groups.

A position is recorded only if it does not match on both sides. The others are known from the target, so only their
number is recorded, for each group and topic: a reader notices if the target has fewer of them. The summary says up to
which time the commits on the source were known.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from mirrord.ledger.facts.core import Progress
from mirrord.ledger.facts.last_seen import LastSeen, SeenPosition
from mirrord.ledger.last_seen.records import (
    BUCKETS,
    bucket_key,
    bucket_of,
    buckets,
    contents,
    state_record,
    summary_key,
)
from mirrord.ledger.state import FlowState
from mirrord.model.group_status import GroupState, GroupStatus

MOST_IN_RECORD = 2_000
"""Maximum number of positions in one record, and of numbers of positions. If there are more, the summary says how many
positions are missing."""
_IRRELEVANT: frozenset[GroupState] = frozenset({"not copied", "expired"})
"""States of positions that the flow has nothing to do with."""
_KIND = "seen-groups"
_SUMMARY = summary_key(_KIND)

GroupAndTopic = tuple[str, str]
"""A consumer group and a source topic."""


class SeenGroups(NamedTuple):
    """The consumer groups of a flow, as they were last seen."""

    at_ms: int = -1
    """The latest time up to which the groups' commits on the source are known, or -1 if none were seen."""
    groups: int = 0
    in_step: Mapping[GroupAndTopic, int] = {}
    """Numbers of positions that matched on both sides."""
    positions: tuple[SeenPosition, ...] = ()
    """The other positions in topics that are copied, sorted by group, topic and partition."""
    omitted: int = 0
    """Number of positions about which nothing is recorded, because there are too many."""


def seen_groups(state: FlowState) -> SeenGroups:
    """Return the consumer groups according to the records of the state topic."""
    summary = contents(state, _SUMMARY)
    if summary is None:
        return SeenGroups()
    found = list(buckets(state, _KIND))
    positions = sorted(
        (each for bucket in found for each in bucket.positions),
        key=lambda each: (each.group, each.topic, each.partition),
    )
    in_step = {(group, topic): count for bucket in found for group, topic, count in bucket.commits}
    return SeenGroups(summary.at_ms, summary.groups, in_step, tuple(positions), summary.omitted)


def group_records(
    state: FlowState, statuses: Iterable[GroupStatus], groups: int, seen_ms: int, lease_epoch: int, now_ms: int
) -> list[Progress]:
    """Return the records to write if the positions of all groups have these statuses, according to the commits on the
    source up to the time `seen_ms`. The summary is the last record."""
    positions: list[list[SeenPosition]] = [[] for _ in range(BUCKETS)]
    in_step: Counter[GroupAndTopic] = Counter()
    omitted = 0
    for each in statuses:
        if each.state == "in step":
            in_step[each.group, each.topic] += 1
        elif each.state not in _IRRELEVANT:
            bucket = positions[bucket_of(each.group)]
            if len(bucket) < MOST_IN_RECORD:
                bucket.append(_position(each))
            else:
                omitted += 1
    commits: list[list[tuple[str, str, int]]] = [[] for _ in range(BUCKETS)]
    for (group, topic), count in sorted(in_step.items()):
        bucket = commits[bucket_of(group)]
        if len(bucket) < MOST_IN_RECORD:
            bucket.append((group, topic, count))
        else:
            omitted += count
    records: list[Progress] = []
    for number in range(BUCKETS):
        found = LastSeen(now_ms, positions=tuple(positions[number]), commits=tuple(commits[number]))
        key = bucket_key(_KIND, number)
        before = contents(state, key) or LastSeen(0)
        if (found.positions, found.commits) != (before.positions, before.commits):
            records.append(state_record(key, "", found, lease_epoch, now_ms))
    summary = LastSeen(seen_ms, groups=groups, omitted=omitted)
    if summary != contents(state, _SUMMARY):
        records.append(state_record(_SUMMARY, "", summary, lease_epoch, now_ms))
    return records


def _position(status: GroupStatus) -> SeenPosition:
    offset = -1 if status.source_offset is None else status.source_offset
    # The line of a position that waits contains a number that changes all the time.
    why = "" if status.state == "waits" else status.why
    return SeenPosition(status.group, status.topic, status.partition, offset, status.state, why)
