"""When the work beside a daemon is due: at moments that any two daemons agree on, and that differ from flow to flow."""

from zlib import crc32

from mirrord.model.jobs import Job


def next_ms(flow: str, job: Job, every_ms: int, now_ms: int) -> int:
    """The next moment after `now_ms`, on the wall clock.

    The moments of one job lie `every_ms` apart, whoever counts them and whenever it began; a flow's name says where
    they lie, so that flows take turns, and a flow's jobs too.
    """
    offset_ms = crc32(f"{flow}/{job}".encode()) * every_ms >> 32
    return offset_ms + ((now_ms - offset_ms) // every_ms + 1) * every_ms
