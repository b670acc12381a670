"""The runner of the tiers: the last lines name whatever fails."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests import tiers
from tests.conftest import worker_group
from tests.tiers import ROOT, Tier

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
WHERE = """
import os
from pathlib import Path

import pytest

@pytest.mark.parametrize("number", range(4))
def test_where(number):
    with (Path(__file__).parent / "workers").open("a") as file:
        print(os.environ["PYTEST_XDIST_WORKER"], file=file)
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
        "test_first.py::test_bad: assert False",
        "test_first.py::test_broken: AssertionError: no",
        "test_second.py::test_bad: assert False",
        "test_second.py::test_broken: AssertionError: no",
    ]
    assert names.startswith("tiers that failed: first, second; the same again: MIRRORD_SEED=")
    assert " 2 failed, 2 passed, 2 error in " in closing


def test_tiers_that_need_brokers_share_their_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each of the two tests waits for the other one."""
    texts = {"alone": "def test_alone(): pass\n"}
    for name, other in (("left", "right"), ("right", "left")):
        texts[name] = MEETING.replace("NAME", name).replace("OTHER", other)
    for name, text in texts.items():
        folder_with(tmp_path / "tests" / name, name, text)
    monkeypatch.setenv("PYTHONPATH", str(tiers.ROOT))
    monkeypatch.setattr(tiers, "ROOT", tmp_path)
    monkeypatch.setattr(tiers, "save_time_of_brokers", lambda: None)
    shared = (*OPTIONS, "-n", "2", "--dist", "loadfile")
    each = (
        Tier("left", ("left",), SECONDS, shared, needs_brokers=True),
        Tier("alone", ("alone",), SECONDS, OPTIONS),
        Tier("right", ("right",), SECONDS, shared, needs_brokers=True),
    )
    monkeypatch.setattr(tiers, "TIERS", each)
    assert tiers.main([]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert " 3 passed in " in lines[-1]
    begins = [line.partition(": ")[0] for line in lines if "(budget" in line]
    assert begins == ["--- tier alone", "--- tier left + right"]


def test_one_worker_runs_all_tests_of_ray(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "ray"
    folder.mkdir()
    for name in ("first", "second"):
        (folder / f"test_{name}.py").write_text(WHERE)
    monkeypatch.setenv("PYTHONPATH", str(tiers.ROOT))
    options = (*OPTIONS, "-n", "2", "--dist", "loadfile")
    subprocess.run([sys.executable, "-m", "pytest", *options, str(folder)], cwd=tmp_path, check=True)
    workers = (folder / "workers").read_text().split()
    assert len(workers) == 8
    assert len({*workers}) == 1


def test_one_worker_runs_the_whole_folder_or_the_whole_file() -> None:
    ray = [worker_group(ROOT / "tests" / "ray" / name) for name in ("test_a.py", "test_b.py")]
    kafka = [worker_group(ROOT / "tests" / "kafka" / name) for name in ("test_a.py", "test_b.py")]
    assert len({*ray}) == 1
    assert len({*ray, *kafka}) == 3


def test_a_tier_that_does_not_end_in_time_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder_with(tmp_path / "tests" / "hanging", "hanging", HANGING)
    monkeypatch.setenv("PYTHONPATH", str(tiers.ROOT))
    monkeypatch.setattr(tiers, "ROOT", tmp_path)
    monkeypatch.setattr(tiers, "LIMIT_MINUTES", 5 / 60)
    monkeypatch.setattr(tiers, "TIERS", (Tier("hanging", ("hanging",), SECONDS, OPTIONS),))
    assert tiers.main([]) == 1
    assert "tier hanging: stopped after" in capfd.readouterr().out


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
    assert failed == ["test_bad: assert False", "test_broken: AssertionError: no"]
