"""The ledger has the decisions of a filter on records that the source has lost. They do not apply to the records that
have replaced them."""

import pytest

from mirrord.ledger.facts.core import LaneFact, SourceRun, TargetRun, Verdict
from mirrord.model.runs import Run
from mirrord.replication.lane.second_path import RebuildRequest, RebuiltBatch
from mirrord.replication.lane.signals import FetchFrom
from mirrord.replication.lane.source.declared_runs import decided
from tests.sim import toy
from tests.unit.replication.lane.source.test_source_epochs import chunk, data
from tests.unit.replication.lane.test_fourth_faults import offsets
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import Faulty, one, opened, progress_at

# Offsets 0 to 9 have been copied. A holder has read offsets 10 to 15, and a filter has kept 10 and 13 of them. The
# target has none of these.
READ: tuple[LaneFact, ...] = (
    SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 1),)),
    TargetRun(LANE, 1, 0, 0, 1),
    SourceRun(
        LANE, 1, (Run(11, 13), Run(12, 16)), (Verdict(11, 13, "filtered"), Verdict(14, 16, "filtered")), ((11, 2),)
    ),
)


def resumed(*facts: LaneFact) -> tuple[Faulty, list[int], FetchFrom]:
    """The next holder. The filter keeps offsets from 12 on. Also return the offsets about which it is asked."""
    play, asked = opened(*facts), list[int]()

    def keeps(offset: int) -> bool:
        asked.append(offset)
        return offset >= 12

    def rebuild(request: RebuildRequest) -> RebuiltBatch | None:
        return toy.rebuild(request, keeps)

    play.take(progress_at(10))
    play.lane.has_policies, play.lane.rebuild = True, rebuild
    return play, asked, one(play.ask_target(10, last=9), FetchFrom)


@pytest.mark.parametrize(
    ("batches", "asked", "copied"),
    [
        (((10, 1, 1, 0), (11, 5, 2, 0)), [], [10, 13]),
        (((10, 6, 4, 0),), [10, 11, 12, 13, 14, 15], [12, 13, 14, 15]),
        (((10, 1, 1, 0), (11, 5, 4, 0)), [11, 12, 13, 14, 15], [10, 12, 13, 14, 15]),
        (((10, 6, 1, 0),), [10, 11, 12, 13, 14, 15], [12, 13, 14, 15]),
    ],
)
def test_a_decision_does_not_apply_to_a_record_of_another_epoch(
    batches: tuple[tuple[int, int, int, int], ...], asked: list[int], copied: list[int]
) -> None:
    """LOSS. The source has other records at the offsets that were filtered. They were not copied, and nothing asked the
    filter about them."""
    play, found, fetch = resumed(*READ)
    play.bind_all(play.tell(chunk(fetch, data(*batches))))
    assert found == asked
    assert offsets(play, 10, 10 + len(copied) - 1) == copied


# The source has lost offsets 11 to 14, which had been copied, and has other records there. A filter has kept offsets 11
# and 14 of these.
REPLACED: tuple[LaneFact, ...] = (
    SourceRun(LANE, 1, (Run(0, 0),), (), ((0, 1),)),
    SourceRun(LANE, 1, (Run(15, 11),), (Verdict(11, 15, "truncated"),), ((15, 1),)),
    SourceRun(
        LANE, 1, (Run(15, 11), Run(16, 14), Run(17, 16)), (Verdict(12, 14, "filtered"), Verdict(15, 16, "filtered")),
        ((15, 4),),
    ),
)  # fmt: skip


@pytest.mark.parametrize("ordinal", [11, 13, 15])
def test_records_that_the_source_has_lost_do_not_count_as_decided(ordinal: int) -> None:
    """COPIED ALTHOUGH FILTERED. The target has lost its records from an ordinal on. The ledger maps ordinals 12 and 13
    to the offsets of the lost records, so the new records at these offsets were copied."""
    found = decided(opened(*REPLACED).record, ordinal)
    assert [found.keeps(offset) for offset in range(11, 17)] == [True, False, False, True, False, None]


@pytest.mark.parametrize("ordinal", [11, 15])
def test_a_verdict_on_lost_records_is_no_decision(ordinal: int) -> None:
    """LOSS. The fact with the decisions on offsets 13 and 14 was lost, whereas the next one took effect. The ledger has
    a verdict on these offsets, but it is about the records that the source has lost."""
    play = opened(*REPLACED[:2])
    play.fold(SourceRun(LANE, 1, (Run(15, 11),), (), ((15, 4),)))
    play.fold(SourceRun(LANE, 1, (Run(17, 16),), (Verdict(15, 16, "filtered"),)))
    found = decided(play.record, ordinal)
    assert [found.keeps(offset) for offset in range(11, 17)] == [True, True, None, None, False, None]
