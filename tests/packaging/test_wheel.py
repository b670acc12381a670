"""The wheel: its content, and its console script, which runs without the checkout."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    (path,) = folder.glob("*.whl")
    return path


def test_the_wheel_holds_exactly_the_three_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"mirrord", "actors", "policies"}
    samples = {path.relative_to(ROOT / "conf").as_posix() for path in (ROOT / "conf").rglob("*") if path.is_file()}
    packed = {name.removeprefix("mirrord/_conf/") for name in names if name.startswith("mirrord/_conf/")}
    assert packed == samples


def test_the_console_script_runs_from_the_wheel(wheel: Path, tmp_path: Path) -> None:
    site = tmp_path / "site"
    command = ["-m", "uv", "pip", "install", "--quiet", "--no-deps", "--no-index", "--target", str(site), str(wheel)]
    subprocess.run([sys.executable, *command], check=True)
    script = site / "bin" / "mirrord"
    # The isolated folder comes first on the path, so the checkout of an editable install is never reached.
    answer = subprocess.run(
        [sys.executable, str(script), "--help"],
        cwd=tmp_path,
        env={"PYTHONPATH": str(site), "PATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    assert answer.returncode == 0, answer.stderr
    assert "usage: mirrord" in answer.stdout
