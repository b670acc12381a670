"""The positions of consumer groups.

Only those positions are recorded that do not match on both sides: the others are known from the target. The summary
says up to which time the commits on the source were known.
"""

from collections.abc import Iterable
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
from mirrord.model.group_status import GroupStatus

MOST_POSITIONS = 2_000
"""Maximum number of positions in one record. If there are more, the summary says how many are missing."""
_KIND = "seen-groups"
_SUMMARY = summary_key(_KIND)


class SeenGroups(NamedTuple):
    """The consumer groups of a flow, as they were last seen."""

    at_ms: int = -1
    """The latest time up to which the groups' commits on the source are known, or -1 if none were seen."""
    groups: int = 0
    in_step: int = 0
    """Number of positions that matched on both sides."""
    positions: tuple[SeenPosition, ...] = ()
    """The other positions, sorted by group, topic and partition."""
    omitted: int = 0
    """Number of other positions that are not recorded, because there are too many."""


def seen_groups(state: FlowState) -> SeenGroups:
    """Return the consumer groups according to the records of the state topic."""
    summary = contents(state, _SUMMARY)
    if summary is None:
        return SeenGroups()
    positions = sorted(
        (each for bucket in buckets(state, _KIND) for each in bucket.positions),
        key=lambda each: (each.group, each.topic, each.partition),
    )
    return SeenGroups(summary.at_ms, summary.groups, summary.in_step, tuple(positions), summary.omitted)


def group_records(
    state: FlowState, statuses: Iterable[GroupStatus], groups: int, seen_ms: int, lease_epoch: int, now_ms: int
) -> list[Progress]:
    """Return the records to write if the positions of all groups have these statuses, according to the commits on the
    source up to the time `seen_ms`. The summary is the last record."""
    divided: list[list[SeenPosition]] = [[] for _ in range(BUCKETS)]
    in_step = omitted = 0
    for each in statuses:
        if each.state == "in step":
            in_step += 1
            continue
        bucket = divided[bucket_of(each.group)]
        if len(bucket) >= MOST_POSITIONS:
            omitted += 1
            continue
        offset = -1 if each.source_offset is None else each.source_offset
        # The line of a position that waits contains a number that changes all the time.
        why = "" if each.state == "waits" else each.why
        bucket.append(SeenPosition(each.group, each.topic, each.partition, offset, each.state, why))
    records: list[Progress] = []
    for number, bucket in enumerate(divided):
        key, positions = bucket_key(_KIND, number), tuple(bucket)
        before = contents(state, key)
        if positions != (() if before is None else before.positions):
            records.append(state_record(key, "", LastSeen(now_ms, positions=positions), lease_epoch, now_ms))
    summary = LastSeen(seen_ms, groups=groups, in_step=in_step, omitted=omitted)
    if summary != contents(state, _SUMMARY):
        records.append(state_record(_SUMMARY, "", summary, lease_epoch, now_ms))
    return records
