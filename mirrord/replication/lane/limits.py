"""Limits on how much data a lane may hold and on how long it waits."""

import msgspec

NEVER = 1 << 62
"""Larger than any ordinal or offset."""


class Reach(msgspec.Struct, frozen=True):
    """Limits on how much data of one lane may be in flight."""

    batches: int
    bytes: int
    """While at least this many bytes have been fetched but not acknowledged, the lane neither requests a chunk nor
    sends a batch."""


NEAR = Reach(64, 8 << 20)
FAR = Reach(1_024, 24 << 20)


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of one lane. Unless their names say otherwise, times are in seconds, measured with the `LaneHost`'s
    monotonic clock."""

    near: Reach = NEAR
    far: Reach = FAR
    """The limits while the target broker is far away: the longer a round trip takes, the more data must be in
    flight."""
    producer_expiry_ms: int = 24 * 3600 * 1000
    """The target's producer.id.expiration.ms: a broker forgets a producer once the timestamp of the producer's last
    record is this old."""
    request_timeout_s: float = 8.0
    """The longest time for which a batch can still be appended after it has been sent."""
    poll_s: float = 0.05
    retry_s: float = 0.2
    denied_s: float = 5.0
    skipped_offsets_noted: int = 10_000
    """Once the lane has skipped this many offsets since the last copied record, its position is recorded in the
    ledger."""
