"""How far retention is from deleting records that are still needed."""

import pytest
from msgspec.structs import replace

from mirrord.ledger.last_seen.source_ends import SeenEnd
from mirrord.model.readiness import PartitionReadiness, SourceHeadroom, TargetHeadroom
from mirrord.recovery.rules.headroom import (
    RetentionLimits,
    UnreadPosition,
    is_near,
    limits_of,
    oldest_unread,
    source_headroom,
    summary,
    target_headroom,
)

HOUR_MS = 3_600_000
HOUR_S = 3_600.0
COPY = ("eu.orders", 0)


def configs(policy: str = "delete", ms: str = str(HOUR_MS), size: str = "-1") -> dict[str, str | None]:
    return {"cleanup.policy": policy, "retention.ms": ms, "retention.bytes": size}


def partition(lag_s: float | None = 0.0, seen_ms: int | None = 60_000) -> PartitionReadiness:
    return PartitionReadiness(
        topic="orders",
        partition=0,
        target_topic="eu.orders",
        state="unknown",
        source_offset=100,
        source_end=100,
        seen_ms=seen_ms,
        lag_records=0,
        lag_s=lag_s,
    )


def test_limits_of_a_topic() -> None:
    assert limits_of(configs()) == RetentionLimits(HOUR_MS)
    assert limits_of(configs("compact, delete")) == RetentionLimits(HOUR_MS)
    assert limits_of(configs(size="500")) == RetentionLimits(HOUR_MS, by_size=True)
    assert limits_of(configs(ms="-1", size="500")).by_size
    for never in (configs("compact"), configs(ms="-1"), configs(ms=str(2**63 - 1))):
        limits = limits_of(never)
        assert (limits.ms, limits.is_known) == (None, True)
        assert limits.note


@pytest.mark.parametrize(
    ("known", "note"),
    [
        (None, "cleanup.policy, retention.bytes, retention.ms of the topic was not recorded"),
        ({"cleanup.policy": "delete", "retention.bytes": "-1"}, "retention.ms of the topic was not recorded"),
        ("sync.configs is false", "sync.configs is false"),
        (configs(ms="soon"), "retention.ms or retention.bytes of the topic is not a number"),
    ],
)
def test_limits_that_are_not_known(known: dict[str, str | None] | str | None, note: str) -> None:
    assert limits_of(known) == RetentionLimits(None, is_known=False, note=note)


def test_the_source_keeps_what_was_not_copied_for_retention_ms_after_it_was_written() -> None:
    """All records that were not copied are newer than the time at which the target held everything."""
    found = source_headroom(partition(), SeenEnd(100, 60_000, start=40), limits_of(configs()), None, 70_000)
    assert (found.offsets, found.left_s, found.limit_s, found.is_known) == (60, HOUR_S - 10, HOUR_S, True)
    found = source_headroom(partition(lag_s=600.0), SeenEnd(100, 60_000), limits_of(configs()), 900.0, 70_000)
    assert (found.offsets, found.left_s, found.forecast_s) == (None, HOUR_S - 610, 900.0)
    late = source_headroom(partition(), SeenEnd(100, 60_000), limits_of(configs()), None, 60_000 + 2 * HOUR_MS)
    assert late.left_s == 0.0, "the source was last seen two hours ago"


def test_what_the_source_has_deleted() -> None:
    found = source_headroom(partition(), SeenEnd(300, 60_000, start=120), limits_of(configs()), None, 70_000)
    assert (found.offsets, found.left_s) == (-20, 0.0)
    assert found.note == "the source has deleted offsets 100 up to 120, which were not copied as far as is recorded"


@pytest.mark.parametrize("found", [partition(lag_s=None), partition(seen_ms=None)])
def test_without_an_age_nothing_is_known(found: PartitionReadiness) -> None:
    headroom = source_headroom(found, SeenEnd(100, 60_000, start=40), limits_of(configs()), None, 70_000)
    assert (headroom.left_s, headroom.is_known) == (None, False)
    assert headroom.note == "it is not known how old the next record is that has to be copied"
    never = source_headroom(found, SeenEnd(100, 60_000), limits_of(configs("compact")), None, 70_000)
    assert (never.left_s, never.is_known) == (None, True)


def test_the_lowest_position_of_a_partition_counts() -> None:
    commits = {"billing": {COPY: 7}, "audit": {COPY: 5, ("other", 0): 1}, "read": {COPY: 10}, "gone": {COPY: 2}}
    assert oldest_unread(commits, {COPY: (3, 10), ("other", 0): (0, 9)}, [COPY]) == {COPY: UnreadPosition("audit", 5)}
    assert oldest_unread(commits, {}, [COPY]) == {}


def test_the_headroom_of_a_group() -> None:
    found = target_headroom(UnreadPosition("audit", 5), 3, limits_of(configs()), 450.0)
    assert found == TargetHeadroom(group="audit", target_offset=5, offsets=2, left_s=450.0, limit_s=HOUR_S)
    for kept, note in ((None, "the target was not asked how old the record is"), ("no answer", "no answer")):
        found = target_headroom(UnreadPosition("audit", 5), 3, limits_of(configs()), kept)
        assert (found.left_s, found.is_known, found.note) == (None, False, note)
    found = target_headroom(UnreadPosition("audit", 5), 3, limits_of(configs("compact")), None)
    assert (found.left_s, found.is_known) == (None, True)


def test_the_shortest_headroom_counts() -> None:
    def with_headroom(left_s: float | None, forecast_s: float | None, *, is_known: bool = True) -> PartitionReadiness:
        source = SourceHeadroom(left_s=left_s, forecast_s=forecast_s, is_known=is_known)
        target = TargetHeadroom(group="audit", target_offset=5, offsets=2, left_s=left_s, is_known=is_known)
        return replace(partition(), source_headroom=source, target_headroom=target)

    found = summary([with_headroom(9.0, None), with_headroom(7.0, 3.0), with_headroom(None, 5.0, is_known=False)], 500)
    assert (found.seen_ms, found.source_left_s, found.forecast_s, found.target_left_s) == (500, 7.0, 3.0, 7.0)
    assert (found.source_unknown, found.target_unknown) == (1, 1)
    assert summary([partition()], None).source_left_s is None


def test_retention_is_near() -> None:
    assert is_near(SourceHeadroom(left_s=0.0))
    assert is_near(SourceHeadroom(left_s=449.0, limit_s=HOUR_S))
    assert not is_near(SourceHeadroom(left_s=450.0, limit_s=HOUR_S))
    assert not is_near(SourceHeadroom(limit_s=HOUR_S))
