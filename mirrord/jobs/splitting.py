"""Splits ranges of offsets so that each task reads about the same number of bytes. This module does no I/O."""

from collections.abc import Iterator
from itertools import pairwise

from mirrord.jobs.kafka_batches_options import LogRange

MOST_SPLITS = 10_000
"""Maximum number of parts of one range. The limit prevents a wrong estimate from creating a million tasks."""


def split(whole: LogRange, size_bytes: int, split_bytes: int) -> Iterator[LogRange]:
    """Yield consecutive parts of a range of `size_bytes` bytes, each with about `split_bytes`. The parts are not empty,
    and there are no gaps or overlaps between them."""
    offsets = whole.end - whole.start
    pieces = max(1, min(-(-size_bytes // split_bytes), offsets, MOST_SPLITS))
    edges = [whole.start + offsets * number // pieces for number in range(pieces + 1)]
    for start, end in pairwise(edges):
        if end > start:
            yield LogRange(whole.partition, start, end)


def estimated_bytes(whole: LogRange, samples: list[tuple[int, int, int]]) -> int:
    """Estimate the size of a range in bytes from samples of its contents. Each sample is (first offset, last offset,
    bytes)."""
    sampled = sum(last - first + 1 for first, last, _ in samples)
    if not sampled:
        return 0
    return sum(size for _, _, size in samples) * (whole.end - whole.start) // sampled
