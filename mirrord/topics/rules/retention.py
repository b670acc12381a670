"""How a topic's configs let brokers remove its records: by age, by size, and by compaction."""

from collections.abc import Mapping
from typing import NamedTuple


class Retention(NamedTuple):
    """The limits by which a source topic's records are deleted.

    None means that there is no such limit, or it is not known.
    """

    ms: int | None = None
    bytes: int | None = None


NOTHING_KNOWN = Retention()


def retention_of(settings: Mapping[str, str | None]) -> Retention:
    """Return the limits, given the effective configs of a topic."""
    policy = settings.get("cleanup.policy") or ""
    if "delete" not in [each.strip() for each in policy.split(",")]:
        return NOTHING_KNOWN
    return Retention(*(_limit(settings.get(name)) for name in ("retention.ms", "retention.bytes")))


def _limit(value: str | None) -> int | None:
    try:
        limit = int(value or "")
    except ValueError:
        return None
    return limit if limit >= 0 else None  # -1: without one


def is_compacted(policy: str) -> bool:
    """Return whether a topic with this cleanup.policy is compacted."""
    return any(word.strip() == "compact" for word in policy.split(","))
