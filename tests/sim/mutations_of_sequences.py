"""Mutations of the rules by which ordinals are found by sequence numbers, which start again at 0 after 2^31 records
(`tests.sim.mutations`)."""

import sys
from collections.abc import Callable

import pytest

from mirrord.kafka.protocol import sequence
from mirrord.kafka.protocol.sequence import SEQUENCES


def _find_by(patch: pytest.MonkeyPatch, nearest: Callable[[int, int], int]) -> None:
    true = sequence.nearest
    for name, module in [*sys.modules.items()]:
        if name.startswith("mirrord.") and getattr(module, "nearest", None) is true:
            patch.setattr(module, "nearest", nearest)


def a_sequence_is_an_ordinal(patch: pytest.MonkeyPatch) -> None:
    """A lane does not know that sequence numbers have ever started again."""
    _find_by(patch, lambda sequence, _: sequence)


def zero_does_not_follow(patch: pytest.MonkeyPatch) -> None:
    """A lane does not know that they start again between two batches that it compares with each other."""
    _find_by(patch, lambda sequence, ordinal: ordinal - ordinal % SEQUENCES + sequence)


RULES: tuple[tuple[str, Callable[[pytest.MonkeyPatch], None], str], ...] = (
    ("sequence numbers start again", a_sequence_is_an_ordinal, ""),
    ("sequence number 0 follows 2^31 - 1", zero_does_not_follow, ""),
)
