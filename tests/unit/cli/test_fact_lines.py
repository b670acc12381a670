"""The texts of facts."""

from mirrord.cli.fact_lines import describe
from mirrord.ledger.facts.base import Origin
from mirrord.ledger.facts.commands import CommandGiven
from mirrord.ledger.facts.core import MapRebuilt, TakeoverChecked
from tests.fixtures.ledger import lane_id

LANE = lane_id(0)


def _text(fact: TakeoverChecked | MapRebuilt) -> str:
    return describe(fact, str).removeprefix(f"{LANE}: ")


def test_a_check_of_ordinals_names_them_only_if_there_are_some() -> None:
    assert _text(TakeoverChecked(LANE, 1, 0, 2, "equal", "")) == "takeover of ordinals 0 to 2 checked: equal"
    assert _text(TakeoverChecked(LANE, 1, 0, -1, "different", "gone")) == "takeover checked: different (gone)"


def test_a_rebuilt_map_names_ordinals_only_if_the_target_has_some() -> None:
    assert _text(MapRebuilt(LANE, 1, 0, 2, 4)) == "the map was rebuilt from ordinal 0 to 2, 1 missing records follow"
    assert _text(MapRebuilt(LANE, 1, 0, -1, 0)) == "the map was rebuilt from ordinal 0 on, 0 missing records follow"


def test_a_refused_command_is_told_from_one_that_was_carried_out() -> None:
    origin = Origin("", "", 0, "see", "10.0.0.7")
    reason = 'the token "see" has the role view; needed: configure'
    line = describe(CommandGiven("stop", origin, refused=reason, omitted=7), str)
    assert line == (
        f"stop refused, given by unknown (token see, from 10.0.0.7): {reason}; 7 more since the previous record"
    )
    assert describe(CommandGiven("stop", origin), str) == "stop by unknown (token see, from 10.0.0.7)"
