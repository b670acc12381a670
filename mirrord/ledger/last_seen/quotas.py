"""The client quotas of the source. They are recorded when they change. mirrord does not sync them."""

from collections.abc import Collection
from typing import NamedTuple

from mirrord.ledger.facts.core import Progress
from mirrord.ledger.facts.last_seen import LastSeen
from mirrord.ledger.last_seen.records import (
    BUCKETS,
    bucket_of,
    buckets,
    changed_contents,
    contents,
    refusal_record,
    summary_key,
)
from mirrord.ledger.state import FlowState
from mirrord.model.quotas import ClientQuota

MOST_QUOTAS = 20_000
"""Maximum number of client quotas that are recorded. If the source has more, none of them are."""
_KIND = "seen-quotas"


class SeenQuotas(NamedTuple):
    """The client quotas of the source."""

    at_ms: int = -1
    """Time at which they were last read, or -1 if they never were. They may have been read later, but at most
    `mirrord.ledger.last_seen.records.CHECKED_MS` milliseconds later."""
    quotas: frozenset[ClientQuota] = frozenset()
    refused: str = ""
    """Why they could not be read, or an empty string."""


def seen_quotas(state: FlowState) -> SeenQuotas:
    """Return the client quotas of the source according to the records of the state topic."""
    summary = contents(state, summary_key(_KIND))
    if summary is None:
        return SeenQuotas()
    quotas = frozenset(quota for bucket in buckets(state, _KIND) for quota in bucket.quotas)
    return SeenQuotas(summary.at_ms, quotas, summary.refused)


def quota_records(
    state: FlowState, quotas: Collection[ClientQuota], refused: str, lease_epoch: int, now_ms: int
) -> list[Progress]:
    """Return the records to write if the source has these client quotas now. If they could not be read (`refused`), or
    if there are too many of them, the recorded ones stay in force. The summary is the last record."""
    if len(quotas) > MOST_QUOTAS:
        refused = f"there are {len(quotas)} on the source; at most {MOST_QUOTAS} can be recorded"
    if refused:
        return refusal_record(state, _KIND, refused, lease_epoch, now_ms)
    divided: list[list[ClientQuota]] = [[] for _ in range(BUCKETS)]
    for quota in sorted(quotas, key=str):
        divided[bucket_of(quota.clients)].append(quota)
    divided_records = [LastSeen(now_ms, quotas=tuple(each)) for each in divided]
    return changed_contents(state, _KIND, divided_records, LastSeen(now_ms), lease_epoch)
