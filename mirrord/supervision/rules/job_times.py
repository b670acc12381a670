"""Compute when background jobs are due.

Any two daemons compute the same moments, and the moments differ from flow to flow.
"""

from zlib import crc32

from mirrord.model.jobs import Job


def next_ms(flow: str, job: Job, every_ms: int, now_ms: int) -> int:
    """Return the next due moment after `now_ms`, by the wall clock.

    The moments of a job are `every_ms` apart, whichever daemon computes them and whenever it started. The flow's name
    and the job determine their offset, so that flows take turns, and so do the jobs of a flow.
    """
    offset_ms = crc32(f"{flow}/{job}".encode()) * every_ms >> 32
    return offset_ms + ((now_ms - offset_ms) // every_ms + 1) * every_ms
