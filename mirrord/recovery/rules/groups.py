"""Determines for which positions of consumer groups the next record on the target is known."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from mirrord.kafka.protocol.primitives import TopicAndPartition
from mirrord.ledger.facts.last_seen import SeenPosition
from mirrord.ledger.last_seen.group_positions import GroupAndTopic, SeenGroups
from mirrord.model.group_status import GroupState
from mirrord.model.readiness import GroupsReadiness, PositionReadiness

TargetBounds = Mapping[TopicAndPartition, tuple[int, int]]
"""The log start offset and the high watermark of target partitions, by target topic and partition."""
Commits = Mapping[str, Mapping[TopicAndPartition, int]]
"""The committed offsets on the target, by group, target topic and partition."""
IsExpired = Callable[[TopicAndPartition, int], bool]
"""A function that takes a target partition and a target offset. It returns whether the source had deleted the record
too when it was last seen."""

_EXACT: frozenset[GroupState] = frozenset({"in step", "waits", "active", "ahead"})
"""States in which it is known which record the group reads next, if it has a position on the target. If it waits for
records that have not been copied, it continues after the last copied one."""


class PositionTally:
    """Collects the readiness of all positions, one group after the other.

    The recorded positions are those that did not match on both sides. All other positions are known from the commits on
    the target. If the target has fewer of them in a topic than there were, some of them have been lost.
    """

    def __init__(
        self,
        seen: SeenGroups,
        commits: Commits,
        copies: Mapping[TopicAndPartition, TopicAndPartition],
        bounds: TargetBounds,
        is_expired: IsExpired,
    ) -> None:
        """`copies` maps each target partition to its source partition."""
        self._seen = seen
        self._commits = commits
        self._copies = copies
        self._bounds = bounds
        self._is_expired = is_expired
        self._noted: dict[tuple[str, TopicAndPartition], PositionReadiness] = {}
        self._matching = Counter[GroupAndTopic]()
        self._exact = 0
        targets = {place: target for target, place in copies.items()}
        for each in seen.positions:
            if (target := targets.get((each.topic, each.partition))) is not None:
                offset = commits.get(each.group, {}).get(target)
                self._noted[each.group, (each.topic, each.partition)] = _noted(each, offset)

    def groups(self) -> Iterator[str]:
        """Add the commits of one group after the other. Yield each group after it has been added."""
        for group, offsets in self._commits.items():
            for target, offset in offsets.items():
                place = self._copies.get(target)
                if place is None:
                    continue
                is_matching = (group, place) not in self._noted
                self._matching[group, place[0]] += is_matching
                removed = _removed(group, place, offset, self._bounds.get(target))
                if removed is None or self._is_expired(target, offset):
                    self._exact += is_matching
                else:
                    self._noted[group, place] = removed
            yield group

    def result(self) -> GroupsReadiness:
        """Return the readiness of the positions. All groups must have been added."""
        positions = sorted(
            self._noted.values(), key=lambda each: (each.is_known, each.group, each.topic, each.partition)
        )
        topics = {topic for topic, _ in self._copies.values()}
        in_step = self._seen.in_step
        lost = sum(max(0, count - self._matching[key]) for key, count in in_step.items() if key[1] in topics)
        known = sum(each.is_known for each in positions)
        return GroupsReadiness(
            groups=max(self._seen.groups, len(self._commits)),
            exact=self._exact + known,
            inexact=len(positions) - known + self._seen.omitted + lost,
            seen_ms=None if self._seen.at_ms < 0 else self._seen.at_ms,
            positions=tuple(positions),
            note=_note(self._seen.omitted, lost),
        )


def _note(omitted: int, lost: int) -> str:
    lines = [f"nothing is recorded about {omitted} more positions, because there are too many"] if omitted else []
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
