"""How fast something grows, from samples over time. Pure."""

import statistics
from collections.abc import Sequence
from itertools import combinations, pairwise

Sample = tuple[float, float]
"""A time, and a value."""


def slope(samples: Sequence[Sample]) -> float:
    """Return the median of the slopes between any two samples (Theil-Sen), or 0 if there is none.

    A few outliers, for example a process that is just starting, do not change it.
    """
    slopes = [(y - x) / (later - at) for (at, x), (later, y) in combinations(samples, 2) if later > at]
    return statistics.median(slopes) if slopes else 0.0


def thinned(samples: Sequence[Sample], most: int) -> list[Sample]:
    """Return at most so many samples: the median time and value of each of as many equal parts."""
    if len(samples) <= most:
        return list(samples)
    edges = [round(at * len(samples) / most) for at in range(most + 1)]
    parts = [samples[low:high] for low, high in pairwise(edges)]
    return [(statistics.median(at for at, _ in part), statistics.median(value for _, value in part)) for part in parts]
