"""The file with which the user of a daemon may command it from its own machine."""

import os
import stat
from pathlib import Path

import msgspec
import pytest

from mirrord.control import local_token
from mirrord.control.local_token import LocalToken, read_local_token
from mirrord.ledger.facts.jobs import Worker
from mirrord.model.errors import EnvironmentFault


def test_only_its_user_can_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "state" / "control"
    os.umask(os.umask(0o000))
    made = LocalToken(folder)
    (file,) = folder.iterdir()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert read_local_token(folder, made.key_id) == made.token
    assert len(made.token) >= 40
    made.remove()
    assert read_local_token(folder, made.key_id) is None
    made.remove()


def test_two_daemons_of_one_user_have_two_tokens(tmp_path: Path) -> None:
    one, two = LocalToken(tmp_path / "c"), LocalToken(tmp_path / "c")
    assert one.token != two.token
    assert read_local_token(tmp_path / "c", one.key_id) == one.token
    one.remove()
    assert read_local_token(tmp_path / "c", two.key_id) == two.token


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_folder_that_others_can_use_is_refused(tmp_path: Path, mode: int) -> None:
    made = LocalToken(tmp_path / "c")
    (tmp_path / "c").chmod(mode)
    with pytest.raises(EnvironmentFault, match="no one else may access it"):
        LocalToken(tmp_path / "c")
    assert read_local_token(tmp_path / "c", made.key_id) is None


def test_a_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = LocalToken(tmp_path / "c")
    monkeypatch.setattr(os, "geteuid", lambda: (tmp_path / "c").stat().st_uid + 1)
    with pytest.raises(EnvironmentFault, match="must belong to the user who runs mirrord"):
        LocalToken(tmp_path / "c")
    assert read_local_token(tmp_path / "c", made.key_id) is None


def test_a_link_in_place_of_the_folder_or_the_file_is_not_followed(tmp_path: Path) -> None:
    made = LocalToken(tmp_path / "c")
    (tmp_path / "link").symlink_to(tmp_path / "c")
    with pytest.raises(EnvironmentFault, match="cannot be used for tokens"):
        LocalToken(tmp_path / "link")
    assert read_local_token(tmp_path / "link", made.key_id) is None
    (file,) = (tmp_path / "c").iterdir()
    file.rename(tmp_path / "elsewhere")
    file.symlink_to(tmp_path / "elsewhere")
    assert read_local_token(tmp_path / "c", made.key_id) is None


def test_a_file_that_others_can_read_is_not_believed(tmp_path: Path) -> None:
    made = LocalToken(tmp_path / "c")
    (file,) = (tmp_path / "c").iterdir()
    file.chmod(0o644)
    assert read_local_token(tmp_path / "c", made.key_id) is None


@pytest.mark.parametrize("key_id", ["", "../../etc/passwd", "x" * 32, "A" * 32, "a" * 31, "a" * 32 + "/.."])
def test_a_daemon_names_no_other_file(tmp_path: Path, key_id: str) -> None:
    LocalToken(tmp_path / "c")
    assert read_local_token(tmp_path / "c", key_id) is None


def test_the_file_of_a_dead_daemon_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    former = LocalToken(tmp_path / "c")
    LocalToken(tmp_path / "c")
    (tmp_path / "c" / f"{'e' * 32}.token").write_text("not JSON")
    monkeypatch.setattr(local_token, "is_dead_worker", lambda worker: isinstance(worker, Worker))
    latest = LocalToken(tmp_path / "c")
    assert read_local_token(tmp_path / "c", former.key_id) is None
    assert {path.name for path in (tmp_path / "c").iterdir()} == {f"{'e' * 32}.token", f"{latest.key_id}.token"}


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EnvironmentFault, match="cannot be used for tokens"):
        LocalToken(tmp_path / "file" / "control")


def test_the_file_holds_the_token_and_the_process(tmp_path: Path) -> None:
    made = LocalToken(tmp_path / "c")
    (file,) = (tmp_path / "c").iterdir()
    found = msgspec.json.decode(file.read_bytes())
    assert (found["token"], found["process"][1]) == (made.token, os.getpid())
