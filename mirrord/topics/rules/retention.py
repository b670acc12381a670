"""Determines from a topic's configs how brokers remove the topic's records: by age, by size or by compaction."""

from collections.abc import Mapping
from typing import NamedTuple

RETENTION_CONFIGS = ("cleanup.policy", "retention.bytes", "retention.ms")
"""The topic configs that decide what retention deletes."""


class Retention(NamedTuple):
    """The limits above which brokers delete a topic's records: an age in milliseconds and a partition size in bytes.

    A value is None if there is no such limit, or if the limit is unknown.
    """

    ms: int | None = None
    bytes: int | None = None


NOTHING_KNOWN = Retention()


def retention_of(settings: Mapping[str, str | None]) -> Retention:
    """Return the limits that the effective configs of a topic define."""
    policy = settings.get("cleanup.policy") or ""
    if "delete" not in [each.strip() for each in policy.split(",")]:
        return NOTHING_KNOWN
    return Retention(*(_limit(settings.get(name)) for name in ("retention.ms", "retention.bytes")))


def _limit(value: str | None) -> int | None:
    try:
        limit = int(value or "")
    except ValueError:
        return None
    return limit if limit >= 0 else None  # -1 means no limit


def is_compacted(policy: str) -> bool:
    """Return whether a topic with this value of cleanup.policy is compacted."""
    return any(word.strip() == "compact" for word in policy.split(","))
