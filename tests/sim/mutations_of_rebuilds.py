"""Rules switched off that determine which records a compacted target lacks when its offset map is rebuilt."""

from collections.abc import Callable
from typing import Any

import pytest

from mirrord.replication.host import batch_relocation, newer_copies
from mirrord.replication.host.newer_copies import NewerCopies
from mirrord.replication.lane.target import lookup_after_rebuild

SwitchOff = Callable[[pytest.MonkeyPatch], None]


def all_missing_records_are_copied(patch: pytest.MonkeyPatch) -> None:
    async def nothing(*_: Any) -> NewerCopies:
        return NewerCopies()

    patch.setattr(batch_relocation, "newer_copies", nothing)


def a_missing_record_may_be_anywhere(patch: pytest.MonkeyPatch) -> None:
    """Whatever other clients have written in the range of the search may be newer than a missing record."""
    patch.setattr(newer_copies, "_known_until", lambda wanted, *_: wanted.start)
    patch.setattr(newer_copies, "_removed_from", lambda wanted, *_: wanted.start)


def no_record_gave_way(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(newer_copies, "superseded_before", lambda *_: False)


def a_rebuilt_map_has_no_lost_records(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(lookup_after_rebuild, "note_missing", lambda *_: None)


_BESIDE = "compacted copy, unclean, beside others"
RULES: tuple[tuple[str, SwitchOff, str, str], ...] = (
    (
        "a rebuild looks up what the target lacks",
        all_missing_records_are_copied,
        _BESIDE,
        "refused_batches_come_back",
    ),
    (
        "a missing record is after those that the log has",
        a_missing_record_may_be_anywhere,
        "compacted copy, beside others",
        "expired_before_it_arrives",
    ),
    ("a record that gave way does so again", no_record_gave_way, _BESIDE, "others_where_all_copies_were"),
    (
        "lost records are looked up again after a rebuild",
        a_rebuilt_map_has_no_lost_records,
        _BESIDE,
        "refused_batches_come_back",
    ),
)
