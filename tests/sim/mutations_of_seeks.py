"""Rules about seeks on operator commands, switched off (`tests.sim.mutations`)."""

import pytest

from mirrord.replication.lane import seek
from mirrord.replication.lane.signals import Effects
from mirrord.replication.lane.source import truncation
from mirrord.replication.lane.source.epoch_search import EpochSearch
from mirrord.replication.lane.state import Lane


def a_seek_is_not_carried_out(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(seek, "carry_out", lambda _: [])


def the_epoch_of_a_seek_is_not_known(patch: pytest.MonkeyPatch) -> None:
    true = seek.carry_out

    def carry_out(state: Lane) -> Effects:
        state.source_epoch = -1
        return true(state)

    patch.setattr(seek, "carry_out", carry_out)


def only_the_highest_epoch_of_a_seek_is_known(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EpochSearch, "after", lambda self, _: self._replace(is_done=True))


def copied_records_are_there_before_a_seek(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(truncation, "confirm_before_seek", lambda *_: [])


def the_end_is_not_read_again_before_a_seek(patch: pytest.MonkeyPatch) -> None:
    true = seek.carry_out

    def carry_out(state: Lane) -> Effects:
        confirms, state.confirm_end = state.confirm_end, False
        effects = true(state)
        state.confirm_end = confirms
        return effects

    patch.setattr(seek, "carry_out", carry_out)
