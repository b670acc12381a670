"""Acknowledgements of records that a target log has lost, and that get different ordinals before they are copied again.

This happens if the source deletes some of the lost records first. The records after these get lower ordinals. They are
still records that the target had: if the target log loses more, they must be looked up again as before.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from mirrord.model.runs import Run
from mirrord.replication.lane.limits import NEVER


class AcknowledgedPart(NamedTuple):
    """Acknowledged records with the source offsets [start, end)."""

    start: int
    end: int
    leader_epoch: int
    """Leader epoch of the target in which these records were last known to be in its log."""
    source_epoch: int
    """Leader epoch of the source with which these records were copied."""


class Forgotten(msgspec.Struct, frozen=True):
    """What was acknowledged before ordinals were reassigned, kept until the ledger records the reassignment."""

    first: int
    """The lowest ordinal that was reassigned."""
    round: int
    """The lane's round at that time."""
    acknowledged: tuple[tuple[int, int], ...]
    epochs: tuple[tuple[int, int], ...]
    """Pairs (ordinal, leader epoch of the source) of the acknowledged records."""
    rewinds: int
    """Number of `Rewound` notes in the ledger before the reassignment."""
    records: tuple[AcknowledgedPart, ...] = ()
    """The acknowledged records of the reassigned ordinals, in the order of their source offsets. They do not overlap.
    Records whose source epoch is not known are left out."""


class AcknowledgedOrdinals(NamedTuple):
    """The ordinals [first, end), which are now assigned to acknowledged records."""

    first: int
    end: int
    leader_epoch: int
    source_epoch: int


def assigned_again(records: Sequence[AcknowledgedPart], runs: Sequence[Run]) -> list[AcknowledgedOrdinals]:
    """Return the ordinals, from the first one of `runs` on, that these runs assign to acknowledged records. The result
    ends before the first ordinal of any other record."""
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
