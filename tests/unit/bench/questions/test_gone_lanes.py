"""The memory for lanes of deleted topics that docs/how-to/manage-topics.md states."""

import re
from pathlib import Path

import pytest

from bench.questions import gone_lanes
from bench.questions.gone_lanes import measure
from mirrord.ledger import prune

PAGE = Path(__file__).parents[4] / "docs" / "how-to" / "manage-topics.md"
TOLERANCE = 1.1
"""Other versions of Python need slightly more memory for the same objects."""


def test_the_page_states_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (prune, gone_lanes):
        monkeypatch.setattr(module, "FORGOTTEN_KEPT", 50)
    numbers = re.findall(r"^\|.*\| ([\d,]+) \|$", PAGE.read_text(), re.MULTILINE)
    stated = [int(number.replace(",", "")) for number in numbers]
    measured = [each.bytes_per_lane for each in measure(lanes=40)]
    assert len(stated) == len(measured)
    for most, found in zip(stated, measured, strict=True):
        assert found <= most * TOLERANCE + 16, "16: one resized dictionary, divided by 40 lanes"
