"""Computes when scheduled jobs are due.

All daemons compute the same times for a flow, and the times differ from flow to flow.
"""

from zlib import crc32

from mirrord.model.jobs import Job


def next_ms(flow: str, job: Job, every_ms: int, now_ms: int) -> int:
    """Return the next time after `now_ms` at which a job is due, by the wall clock.

    A job is due every `every_ms`, at the same times whichever daemon computes them and whenever that daemon started.
    The flow's name and the kind of job determine how these times are shifted, so that not all jobs start at the same
    time.
    """
    offset_ms = crc32(f"{flow}/{job}".encode()) * every_ms >> 32
    return offset_ms + ((now_ms - offset_ms) // every_ms + 1) * every_ms
