"""Keeps track of which lost records the target had acknowledged, if these records get different ordinals.

When a target log loses acknowledged records, the lane copies them again. If the source has deleted some of them by
then, the records that follow the deleted ones get lower ordinals than before. The lane must still remember that the
target had these records. If the target log then loses more records, all of them must be looked up again, just as they
would be under their former ordinals.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from mirrord.model.runs import Run
from mirrord.replication.lane.limits import NEVER


class AcknowledgedPart(NamedTuple):
    """Acknowledged records at the source offsets [start, end)."""

    start: int
    end: int
    leader_epoch: int
    """The target's leader epoch when these records were last known to be in its log."""
    source_epoch: int
    """Leader epoch that these records had in the source when they were copied."""


class Forgotten(msgspec.Struct, frozen=True):
    """The acknowledgements that a lane had received before it reassigned ordinals. They are kept until the ledger
    records the reassignment."""

    first: int
    """The lowest ordinal that was reassigned."""
    round: int
    """The lane's round when the ordinals were reassigned."""
    acknowledged: tuple[tuple[int, int], ...]
    epochs: tuple[tuple[int, int], ...]
    """Pairs (ordinal, leader epoch of the source) of the acknowledged records."""
    rewinds: int
    """Number of `Rewound` notes in the ledger before the reassignment."""
    records: tuple[AcknowledgedPart, ...] = ()
    """The acknowledged records of the reassigned ordinals, in the order of their source offsets, without overlaps.
    Records whose source epoch is not known are omitted."""


class AcknowledgedOrdinals(NamedTuple):
    """A range of ordinals, [first, end), that have been assigned to acknowledged records."""

    first: int
    end: int
    leader_epoch: int
    source_epoch: int


def assigned_again(records: Sequence[AcknowledgedPart], runs: Sequence[Run]) -> list[AcknowledgedOrdinals]:
    """Return the ordinals that these runs assign to acknowledged records, starting with the first ordinal of `runs`.
    The result ends before the first ordinal that is assigned to any other record."""
    found: list[AcknowledgedOrdinals] = []
    for run, end in zip(runs, [*(each.ordinal for each in runs[1:]), NEVER], strict=True):
        ordinal = run.ordinal
        for at in range(bisect_right(records, run.offset, key=_end), len(records)):
            each, position = records[at], run.offset + ordinal - run.ordinal
            if each.start > position or ordinal >= end:
                break
            behind = min(ordinal + each.end - position, end)
            found.append(AcknowledgedOrdinals(ordinal, behind, each.leader_epoch, each.source_epoch))
            ordinal = behind
        if ordinal < end:
            break
    return found


def _end(part: AcknowledgedPart) -> int:
    return part.end


def planned_apart(first: int, last: int, known: int) -> list[tuple[int, int]]:
    """Split a range of lost ordinals at `known`, because its two parts are looked up separately. Ordinals below `known`
    were acknowledged. Ordinals at or above `known` were planned for records that had been lost earlier and had not yet
    been copied again."""
    return [(first, last)] if last < known or first >= known else [(first, known - 1), (known, last)]
