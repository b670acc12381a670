"""The runner of the tiers: the last lines name whatever fails."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import tiers
from tests.tiers import Tier

SECONDS = 120
BROKEN = """
import pytest

@pytest.fixture
def broken():
    raise AssertionError("no")

def test_good(): pass
def test_bad(): assert False
def test_broken(broken): pass
"""
HANGING = """
import time
from pathlib import Path

def test_hanging():
    Path(__file__).with_suffix(".begun").touch()
    time.sleep(600)
"""
MEETING = """
import time
from pathlib import Path

def test_meeting():
    (Path(__file__).parent.parent / "NAME.here").touch()
    deadline = time.monotonic() + 60
    while not (Path(__file__).parent.parent / "OTHER.here").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
"""
OPTIONS = ("-p", "tests.conftest", "-p", "no:cacheprovider", "-q")


def folder_with(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(parents=True)
    test = folder / f"test_{name}.py"
    test.write_text(text)
    return test


def test_the_last_lines_name_what_failed_in_every_tier(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    for name in ("first", "second"):
        folder_with(tmp_path / "tests" / name, name, BROKEN)
    monkeypatch.setenv("PYTHONPATH", str(tiers.ROOT))
    monkeypatch.setattr(tiers, "ROOT", tmp_path)
    monkeypatch.setattr(tiers, "TIERS", tuple(Tier(name, (name,), SECONDS, OPTIONS) for name in ("first", "second")))
    assert tiers.main([]) == 1
    *_, bad, broken, second_bad, second_broken, names, closing = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in (bad, broken)] == ["FAILED", "ERROR"]
    assert [line.rpartition("/")[2] for line in (bad, broken, second_bad, second_broken)] == [
        "test_first.py::test_bad",
        "test_first.py::test_broken",
        "test_second.py::test_bad",
        "test_second.py::test_broken",
    ]
    assert names.startswith("tiers that failed: first, second; the same again: MIRRORD_SEED=")
    assert " 2 failed, 2 passed, 2 error in " in closing


def test_two_tracks_run_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each of the two tests waits for the other one."""
    names = ("alone", "left", "right")
    texts = {"alone": "def test_alone(): pass\n"}
    for name, other in (("left", "right"), ("right", "left")):
        texts[name] = MEETING.replace("NAME", name).replace("OTHER", other)
    for name in names:
        folder_with(tmp_path / "tests" / name, name, texts[name])
    monkeypatch.setenv("PYTHONPATH", str(tiers.ROOT))
    monkeypatch.setattr(tiers, "ROOT", tmp_path)
    each = tuple(Tier(name, (name,), SECONDS, OPTIONS, track=track) for track, name in enumerate(names))
    monkeypatch.setattr(tiers, "TIERS", each)
    assert tiers.main([]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert " 3 passed in " in lines[-1]
    begins = [line.split()[2] for line in lines if "(budget" in line]
    assert begins[0] == "alone:"
    assert sorted(begins[1:]) == ["left:", "right:"]


def test_a_tier_that_is_stopped_has_reported_earlier_failures(tmp_path: Path) -> None:
    test = folder_with(tmp_path / "hanging", "hanging", BROKEN + HANGING)
    tally = tmp_path / "tally.json"
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *OPTIONS, str(test)],
        cwd=tiers.ROOT,
        env=os.environ | {"MIRRORD_TALLY": str(tally)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    deadline = time.monotonic() + SECONDS
    while not test.with_suffix(".begun").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    tiers.stop(process)
    failed = [line.rpartition("::")[2] for line in json.loads(tally.read_text())["failed"]]
    assert failed == ["test_bad", "test_broken"]
