"""Computes when scheduled jobs are due.

All daemons compute the same times for a flow, and the times differ from flow to flow.
"""

from zlib import crc32

from mirrord.model.jobs import Job


def next_ms(flow: str, job: Job, every_ms: int, now_ms: int) -> int:
    """Return the next time after `now_ms` at which a job is due. Both times are wall-clock times in milliseconds.

    A job is due once every `every_ms` milliseconds. The times do not depend on the daemon that computes them or on its
    start time. They are shifted by an amount derived from the flow name and the kind of job, so that not all jobs start
    at the same time.
    """
    offset_ms = crc32(f"{flow}/{job}".encode()) * every_ms >> 32
    return offset_ms + ((now_ms - offset_ms) // every_ms + 1) * every_ms
