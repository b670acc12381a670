"""A lane that may resume below a resume position that a former holder has saved, because the target's cleaner removed
all records that show how far that holder came."""

import msgspec
import pytest

from mirrord.ledger.facts.core import Progress, Rewound, SourceRun
from mirrord.model.runs import Run
from mirrord.replication.lane.phases import Phase
from mirrord.replication.lane.signals import Append, AppendFailed, Effects, Halted, OwnBatch, Wake, Woken
from mirrord.replication.lane.target.superseded_records import AskSuperseded, SupersededAnswer
from tests.unit.replication.lane.test_eighth_faults import read
from tests.unit.replication.lane.test_rebuilding import LANE
from tests.unit.replication.lane.test_second_faults import BEGUN, Faulty, one, opened

# Ordinals 0 to 11 were acknowledged, and this position was saved. An election removed all that followed.
SAVED = Progress(LANE, 1, 1, 12, 12, 5, 12, 20, 1, 1, False, "copying", epochs_told=True)


def resumed(play: Faulty, until: int = -1) -> Effects:
    """A holder without a resume position finds a log of 12 offsets without a record. According to the lookup, ordinals
    below `until` were appended."""
    asked = one(read(play, play.ask_target(12, epoch=5), (5, 12), own=(), others=()), AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("last", 0, 11)]
    return play.tell(SupersededAnswer(asked.question, 0, (), until))


@pytest.fixture
def play() -> Faulty:
    play = opened(*BEGUN)
    play.take(None, cleanly=False)
    return play


def recorded(effects: Effects) -> list[SourceRun]:
    appends = [each for each in effects if isinstance(each, Append)]
    return [fact for each in appends for fact in each.facts if isinstance(fact, SourceRun)]


def test_a_next_holder_with_a_higher_position_does_not_take_copies_for_doubled(play: Faulty) -> None:
    """HALT. The records are copied from ordinal 0 on again, because no newer ones of their keys are left. The next
    holder gets a resume position that a former one saved: the records below it are not in the log twice."""
    play.bind_all(resumed(play))
    assert (play.lane.phase, play.lane.next_ordinal) == (Phase.COPYING, 0)
    play.take(msgspec.structs.replace(SAVED, grant=1), cleanly=False)
    effects = read(play, play.ask_target(15, epoch=5), (5, 15), own=(OwnBatch(12, 3, 0, 0, 5),), others=())
    assert not any(isinstance(each, Halted) for each in effects)
    asked = one(effects, AskSuperseded)
    assert [(each.kind, each.first, each.last) for each in asked.missing] == [("lost", 3, 11)]


def test_the_lower_position_is_recorded_before_anything_is_sent(play: Faulty) -> None:
    effects = resumed(play)
    (fact,) = recorded(effects)
    assert (fact.runs, fact.rewound) == ((Run(0, 0),), Rewound(12, 0, 12, 5))
    assert [*play.lane.intents] == [(one(effects, Append).tag, 0)]


def test_a_position_is_not_revoked_if_the_look_up_proves_how_far_the_former_holder_came(play: Faulty) -> None:
    assert recorded(resumed(play, until=12)) == []


def test_a_position_is_revoked_once(play: Faulty) -> None:
    play.bind_all(resumed(play))
    effects = read(play, play.ask_target(12, epoch=5), (5, 12), own=(), others=())
    assert recorded(effects) == []
    assert len(play.record.rewinds) == 1


def test_a_position_is_revoked_although_the_first_append_failed(play: Faulty) -> None:
    failed = one(resumed(play), Append)
    wake = one(play.tell(AppendFailed(failed.tag, play.record)), Wake)
    play.now = wake.at
    play.bind(play.tell(Woken(wake.question)))
    effects = read(play, play.ask_target(12, epoch=5), (5, 12), own=(), others=())
    (fact,) = recorded(effects)
    assert fact.rewound == Rewound(12, 0, 12, 5)


def test_the_runs_of_the_former_holder_still_apply() -> None:
    """The source has no records at offsets 5 and 6. If the ledger lost the run after them, later ordinals would belong
    to other records for the next holder."""
    play = opened(*BEGUN, SourceRun(LANE, 1, (Run(5, 7),)))
    play.take(None, cleanly=False)
    (fact,) = recorded(resumed(play))
    assert (fact.runs, fact.rewound) == ((Run(0, 0), Run(5, 7)), Rewound(12, 0, 12, 5))
