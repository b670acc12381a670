"""Computes the lag of a lane: how many records, and how many seconds of records, the target lacks."""

FRESH_S = 2.0
"""The last known log end of a source partition counts as current up to this age in seconds."""


def lag(source_offset: int, source_end: int | None) -> int | None:
    """Return the number of source offsets that have not been copied yet, or None if the log end of the source partition
    is unknown."""
    return None if source_end is None or source_end < 0 else max(0, source_end - source_offset)


def lag_seconds(lag_records: int | None, last_record_ms: int, now_ms: int, held_s: float | None = None) -> float | None:
    """Return how many seconds ago the target last held all records of the source, or None if the time is unknown. If no
    record is known to be missing, return 0, or `held_s` if it is longer than `FRESH_S`.

    If records are missing, there are two estimates. The first is `held_s`: the lane has copied up to a log end of the
    source that was seen `held_s` seconds ago. The second is the age of the newest copied record by its timestamp,
    because all missing records are newer. If the timestamps of the records are correct, neither estimate is too low, so
    the lower one is returned. If the newest copied record has a timestamp in the future, there is no second estimate.
    """
    if lag_records is None:
        return None
    if lag_records == 0:
        return held_s if held_s is not None and held_s > FRESH_S else 0.0
    ages = [] if held_s is None else [held_s]
    if 0 <= last_record_ms <= now_ms:
        ages.append((now_ms - last_record_ms) / 1000)
    return min(ages, default=None)
